"""Calls that run without the client, counted one by one."""

import pytest

from caretway.sessions.loop_guard.live import EndLoop, GuardSettings, LiveGuard, LiveVerdict, Tell
from caretway.sessions.loop_guard.rule import NoProgress


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
