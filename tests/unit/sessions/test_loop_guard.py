"""Calls that run without the client, counted one by one."""

import pytest

from caretway.core.request import Message, Role, Text, ToolCall, ToolResult
from caretway.sessions.loop_guard import (
    EndLoop,
    GuardSettings,
    LiveGuard,
    LiveVerdict,
    NoProgress,
    RepeatLevel,
    Tell,
    Wander,
    only_looks,
    plain_name,
    refusal,
    repeat_level,
    wander_level,
    warning,
)
from caretway.sessions.loop_history import Correct, LoopGuard, Ok, Stop

LOOKS = [
    ("read", "{}", True),
    ("mcp__files__Read_File", "{}", True),
    ("Grep", "{}", True),
    ("write", "{}", False),
    ("edit", "{}", False),
    ("task", "{}", False),
    ("bash", '{"command": "cat a | grep b && ls -la"}', True),
    ("bash", '{"command": "git log --oneline; git status"}', True),
    ("bash", '{"command": "sed -n 1,20p a"}', True),
    ("bash", '{"command": "sed -i s/a/b/ a"}', False),
    ("bash", '{"command": "cat a > b"}', False),
    ("bash", '{"command": "cat a 2>/dev/null"}', True),
    ("bash", '{"command": "cat a 2>&1"}', True),
    ("bash", '{"command": "find . -name a -delete"}', False),
    ("bash", '{"command": "find . -name a"}', True),
    ("bash", '{"command": "git checkout main"}', False),
    ("bash", '{"command": "make test"}', False),
    ("bash", '{"command": "echo $(rm a)"}', False),
    ("shell", '{"command": ["bash", "-lc", "ls"]}', True),
    ("shell", '{"command": ["rm", "a"]}', False),
    ("bash", "{}", False),
    ("bash", "no json", False),
]


@pytest.mark.parametrize(("tool", "arguments", "looks"), LOOKS)
def test_what_only_looks(tool: str, arguments: str, looks: bool) -> None:
    assert only_looks(tool, arguments) is looks


def test_a_part_of_what_was_seen_is_nothing_new() -> None:
    wander = Wander()
    wander.step(["one\ntwo\nthree"], looks=True)
    for part in ("two\nthree", "one", "  two  ", "three\n\none"):
        wander.step([part], looks=True)
    assert wander.steps == 4
    wander.step(["three\nfour"], looks=True)
    assert wander.steps == 0


def wandering(steps: int, tool: str = "read", size: int = 10) -> list[Message]:
    """A client's history: so many looks at four files, after each of them was seen once."""
    history = [Message(Role.USER, (Text("fix it"),))]
    for n in range(steps + 4):
        file = n % 4
        history += [
            Message(Role.ASSISTANT, (ToolCall(f"c{n}", tool, f'{{"path": "{file}", "n": {n // 4}}}'),)),
            Message(Role.TOOL, (ToolResult(f"c{n}", (Text(f"text of {file} " * size),)),)),
        ]
    return history


def test_a_client_that_wanders_is_told_and_stopped_where_that_is_set() -> None:
    warns, stops, off = (LoopGuard(no_progress=rule) for rule in ("warn", "stop", "off"))
    assert warns.verdict(wandering(39)) == Ok()
    told = warns.verdict(wandering(40))
    assert isinstance(told, Correct) and told.call_ids == ("c43",) and "the last 40 steps only looked" in told.message
    assert warns.verdict(wandering(45)) == Ok(), "not at every step"
    assert isinstance(warns.verdict(wandering(100)), Correct)
    ended = stops.verdict(wandering(80))
    assert isinstance(ended, Stop) and ended.error.code == "no_progress"
    assert off.verdict(wandering(100)) == Ok()


def test_what_costs_more_is_noticed_sooner() -> None:
    assert isinstance(LoopGuard().verdict(wandering(20, size=1000)), Correct)


def test_whoever_acts_or_is_spoken_to_is_not_lost() -> None:
    assert LoopGuard().verdict(wandering(100, tool="edit")) == Ok()
    spoken = [*wandering(60), Message(Role.USER, (Text("go on"),)), *wandering(30)[1:]]
    assert LoopGuard().verdict(spoken) == Ok()


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


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def guard(max_repeat: int = 2, no_progress: NoProgress = "stop", clock: Clock | None = None) -> LiveGuard:
    return LiveGuard(GuardSettings(max_repeat, no_progress), clock or Clock())


def call(one: LiveGuard, tool: str, arguments: str = "{}", result: str = "same") -> LiveVerdict:
    return one.began(tool, arguments) or one.ended(tool, arguments, result)


def kinds(verdicts: list[LiveVerdict]) -> str:
    return "".join({Tell: "t", EndLoop: "E", type(None): "."}[type(verdict)] for verdict in verdicts)


@pytest.mark.seed("L02")
@pytest.mark.parametrize(
    ("tool", "max_repeat", "expected"),
    [
        ("save", 2, "..tEE"),
        ("read", 2, "." * 10 + "tE"),
        ("shell", 2, "." * 10 + "tE"),
        ("save", 1, ".tE"),
        ("save", 0, "." * 50),
    ],
)
def test_a_call_is_told_about_and_then_ends_the_turn(tool: str, max_repeat: int, expected: str) -> None:
    one = guard(max_repeat, "off")
    assert kinds([call(one, tool) for _ in expected]) == expected


def test_the_error_names_the_tool_the_number_and_the_way_out() -> None:
    one = guard()
    verdict = [call(one, "save") for _ in range(4)][-1]
    assert isinstance(verdict, EndLoop) and verdict.error.code == "tool_loop_detected"
    assert "`save` 4 times" in verdict.error.message and "TOOL_LOOP_MAX_REPEAT" in verdict.error.hint


def test_a_changing_result_is_progress() -> None:
    one = guard()
    assert kinds([call(one, "shell", result=str(n)) for n in range(100)]) == "." * 100


def test_anything_new_starts_the_count_again() -> None:
    one = guard()
    assert kinds([call(one, "save") for _ in range(2)] + [call(one, "save", '{"b": 1}')]) == "..."
    assert kinds([call(one, "save") for _ in range(3)]) == "..t"


def test_circling_through_several_calls_is_noticed() -> None:
    one = guard(2, "off")
    verdicts = [call(one, "save", f'{{"file": {n % 3}}}') for n in range(12)]
    assert kinds(verdicts) == "........tttE"


@pytest.mark.parametrize(("rule", "last"), [("stop", "E"), ("warn", "t"), ("off", ".")])
def test_looking_around_without_anything_new(rule: NoProgress, last: str) -> None:
    """A hundred steps through twelve files: nobody repeats a call often enough to be caught."""
    one = guard(20, rule)
    verdicts = [call(one, "read", f'{{"path": {n % 12}}}', f"text {n % 12}") for n in range(100)]
    stale = kinds(verdicts)[12:]
    if rule == "off":
        assert stale == "." * 88
    else:
        assert stale.index("t") == 39 and stale[79] == last
        assert stale.count("t") == (4 if rule == "stop" else 5)


def test_minutes_make_it_costly() -> None:
    clock = Clock()
    one = guard(20, "stop", clock)
    told = []
    for n in range(60):
        clock.now += 10.0
        told.append(call(one, "read", f'{{"path": {n % 4}}}', f"text {n % 4}"))
    assert kinds(told).index("t") == 23 and kinds(told).index("E") == 43, "20 and 40 steps after the fourth"


def test_a_new_line_now_and_then_is_progress() -> None:
    one = guard(50)
    verdicts = [call(one, "read", f'{{"path": {n}}}', f"line {n // 15}") for n in range(150)]
    assert kinds(verdicts) == "." * 150


def test_whoever_acts_is_not_lost() -> None:
    one = guard(50)
    verdicts = [call(one, "edit" if n % 10 == 0 else "read", f'{{"n": {n % 5}}}', "ok") for n in range(90)]
    assert kinds(verdicts) == "." * 90
