"""Who is late: stories with the time in the test's hands."""

import math

from caretway.server.deadlines import NEVER, Deadlines


def test_nothing_is_due_at_first() -> None:
    assert Deadlines(10).due == NEVER == math.inf


def test_a_client_that_takes_nothing_is_stuck() -> None:
    story = [
        (0, 0, False),  # nothing to take
        (5, 100, False),  # the first look at it
        (14, 100, False),
        (14.5, 99, False),  # a byte is enough
        (24, 99, False),
        (24.5, 99, True),
    ]
    deadlines = Deadlines(10)
    assert [deadlines.stuck(now, unsent) for now, unsent, _ in story] == [stuck for *_, stuck in story]


def test_what_was_taken_does_not_count_against_what_comes_next() -> None:
    deadlines = Deadlines(10)
    for now, unsent in ((0, 100), (9, 0), (9.5, 300), (15, 300)):
        assert not deadlines.stuck(now, unsent)
    assert deadlines.stuck(19.5, 300)


def test_whoever_wants_to_be_woken_is_woken_once() -> None:
    deadlines, woken = Deadlines(10), list[float]()
    deadlines.wake_due(1e9)
    deadlines.wake_at(5.0, lambda: woken.append(5.0))
    for now in (4.9, 5.0, 6.0):
        deadlines.wake_due(now)
    assert woken == [5.0]


def test_whoever_is_woken_may_ask_again() -> None:
    deadlines, woken = Deadlines(10), list[float]()

    def again() -> None:
        woken.append(1)
        deadlines.wake_at(5.0 + len(woken), again)

    deadlines.wake_at(5.0, again)
    for now in (5.0, 5.5, 6.0, 6.5, 7.0):
        deadlines.wake_due(now)
    assert len(woken) == 3


def test_nobody_is_woken_any_more() -> None:
    deadlines, woken = Deadlines(10), list[int]()
    deadlines.wake_at(5.0, lambda: woken.append(1))
    deadlines.wake_at(NEVER, None)
    deadlines.wake_due(1e9)
    assert woken == []
