"""One timer that can be set again cheaply: to move its deadline later costs nothing, because the event loop's old timer
is left to ring and is set anew only then.

A timer of the event loop costs as much as a small message. A user that is busy and idle by turns does not pay for each
turn.
"""

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    __slots__ = ("_callback", "_due", "_loop", "_rings_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callback: Callable[[], None] | None = None
        self._due = self._rings_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, delay: float, callback: Callable[[], None]) -> None:
        """`callback`, once, after so many seconds, and nothing that was set before."""
        self._callback = callback
        self._due = self._loop.time() + delay
        if self._timer is None or self._rings_at > self._due:
            self._arm()

    def cancel(self) -> None:
        self._callback = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._due
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._rings_at < self._due:
            self._arm()
        elif self._callback is not None:
            callback, self._callback = self._callback, None
            callback()
