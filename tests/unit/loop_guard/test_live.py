"""Calls that run here, counted one by one."""

from caretway.loop_guard.live import CallCounter
from caretway.loop_guard.rule import RepeatLevel


def levels(counter: CallCounter, key: str, times: int, *, changes: bool = False) -> list[RepeatLevel]:
    return [counter.count(key, changes=changes)[0] for _ in range(times)]


def test_a_call_is_warned_about_and_then_past_its_limit() -> None:
    below, at, past = RepeatLevel.BELOW_LIMIT, RepeatLevel.AT_LIMIT, RepeatLevel.PAST_LIMIT
    assert levels(CallCounter(1), "read a", 8) == [below] * 5 + [at] + [past] * 2


def test_a_new_change_starts_the_count_again_and_a_repeated_one_does_not() -> None:
    counter = CallCounter(1)
    levels(counter, "read a", 6)
    assert counter.count("write b", changes=True) == (RepeatLevel.BELOW_LIMIT, 1)
    assert counter.count("read a", changes=False) == (RepeatLevel.BELOW_LIMIT, 1)
    levels(counter, "write b", 6, changes=True)
    assert counter.count("write b", changes=True) == (RepeatLevel.PAST_LIMIT, 8)
    assert counter.count("read a", changes=False) == (RepeatLevel.BELOW_LIMIT, 2)
