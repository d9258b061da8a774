"""How often a call may repeat: one table for the calls of clients and for those that run here."""

import pytest

from caretway.core.request import Message, Role, Text, ToolCall, ToolResult
from caretway.sessions.loop_guard.history import Correct, LoopGuard, Stop
from caretway.sessions.loop_guard.live import GuardSettings, LiveGuard, Tell
from caretway.sessions.loop_guard.rule import (
    NoProgress,
    RepeatLevel,
    plain_name,
    refusal,
    repeat_level,
    wander_level,
    warning,
)

BELOW, AT, PAST = RepeatLevel.BELOW_LIMIT, RepeatLevel.AT_LIMIT, RepeatLevel.PAST_LIMIT


@pytest.mark.seed("L04")
@pytest.mark.parametrize(
    ("max_repeat", "generous", "repeats", "level"),
    [
        (2, False, 0, BELOW),
        (2, False, 1, BELOW),
        (2, False, 2, AT),
        (2, False, 3, PAST),
        (2, True, 9, BELOW),
        (2, True, 10, AT),
        (2, True, 11, PAST),
        (1, False, 1, AT),
        (0, False, 1000, BELOW),
        (0, True, 1000, BELOW),
    ],
)
def test_levels(max_repeat: int, generous: bool, repeats: int, level: RepeatLevel) -> None:
    assert repeat_level(repeats, max_repeat, generous=generous) is level


@pytest.mark.parametrize("max_repeat", [0, 1, 2, 3])
def test_both_ways_of_counting_agree(max_repeat: int) -> None:
    """The same read, made once more each time: in a client's history, and here."""
    live = LiveGuard(GuardSettings(max_repeat, "off"), lambda: 0.0)
    history = [Message(Role.USER, (Text("look"),))]
    guard = LoopGuard(max_repeat, no_progress="off")
    for number in range(1, 5 * max_repeat + 4):
        call = Message(Role.ASSISTANT, (ToolCall(f"call_{number}", "read", "{}"),))
        history += [call, Message(Role.TOOL, (ToolResult(f"call_{number}", (Text("the same"),)),))]
        verdict = guard.verdict(history)
        assert live.calls("read", "{}") == number
        assert (live.began("read", "{}") is not None) == isinstance(verdict, Stop)
        assert isinstance(live.ended("read", "{}", "the same"), Tell) == isinstance(verdict, Correct)


def test_the_words_name_the_number_and_the_way_out() -> None:
    for words in (warning(7), refusal(7)):
        assert "7 times" in words
        assert "Do something else, or answer with what you know." in words


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Read", "read"), ("read_file", "readfile"), ("mcp__files__Read-File", "readfile"), ("run_command", "runcommand")],
)
def test_plain_name(name: str, plain: str) -> None:
    assert plain_name(name) == plain


WANDERS: list[tuple[int, int, float, NoProgress, RepeatLevel]] = [
    (19, 10**6, 0.0, "stop", BELOW),
    (20, 10**6, 0.0, "stop", AT),
    (20, 0, 121.0, "stop", AT),
    (20, 0, 0.0, "stop", BELOW),
    (25, 10**6, 0.0, "stop", BELOW),
    (30, 10**6, 0.0, "stop", AT),
    (39, 10**6, 0.0, "stop", BELOW),
    (40, 10**6, 0.0, "stop", PAST),
    (40, 10**6, 0.0, "warn", AT),
    (41, 10**6, 0.0, "warn", BELOW),
    (40, 0, 0.0, "stop", AT),
    (80, 0, 0.0, "stop", PAST),
    (500, 10**9, 10**6, "off", BELOW),
]


@pytest.mark.parametrize(("steps", "tokens", "seconds", "rule", "level"), WANDERS)
def test_how_long_a_model_may_look_around(
    steps: int, tokens: int, seconds: float, rule: NoProgress, level: RepeatLevel
) -> None:
    assert wander_level(steps, tokens, seconds, rule) is level
