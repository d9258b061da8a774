"""Work in a thread: its result, its failure, and that stopping it is never too early and never too late."""

import asyncio
from collections.abc import Callable
from typing import Any

from caretway.processes.tasks import DeadlineTimer


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []
        self.set = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.set += 1
        self.timers.append(Timer(when, callback))
        return self.timers[-1]

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.when <= self.now and not timer.cancelled]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            timer.callback()


def make() -> tuple[DeadlineTimer, Any, list[str]]:
    loop: Any = Loop()
    return DeadlineTimer(loop), loop, []


def test_set_again_and_again() -> None:
    alarm, loop, rung = make()
    for number in range(50):
        alarm.set(30.0, lambda: rung.append("ping"))
        alarm.set(240.0, lambda: rung.append("idle"))
        loop.pass_by(1.0)
        assert not rung
        assert loop.set <= 2 + number // 30
    loop.pass_by(238.0)
    assert not rung
    loop.pass_by(1.0)
    loop.pass_by(1000.0)
    assert rung == ["idle"]


def test_sooner_and_not_at_all() -> None:
    alarm, loop, rung = make()
    alarm.set(240.0, lambda: rung.append("late"))
    alarm.set(0.0, lambda: rung.append("soon"))
    loop.pass_by(0.0)
    assert rung == ["soon"]
    alarm.set(5.0, lambda: rung.append("never"))
    alarm.cancel()
    loop.pass_by(1000.0)
    assert rung == ["soon"]


async def test_on_a_real_loop() -> None:
    alarm, rung = DeadlineTimer(asyncio.get_running_loop()), asyncio.Event()
    alarm.set(0.0, rung.set)
    alarm.set(0.01, rung.set)
    await rung.wait()
