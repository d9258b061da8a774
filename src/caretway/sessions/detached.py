"""A turn whose client hung up in the middle of an answer: the rest is read and thrown away, so that it can end or park
by itself, within a short grace (`disconnect_grace`) and a limit of bytes. Then it is given up. Not the graceful
shutdown.

It has a short grace, and may say little: what is near its end gets there, anything else is given up.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ..core.event_buffer import weight
from .response import Response

DRAINED_BYTES: Final = 512 * 1024
"""A turn whose client hung up is closed when it says more than this, by the weight of its events."""


class Drain:
    def __init__(self, response: Response, grace: float, given_up: Callable[[Response], None]) -> None:
        """`given_up` is called at most once; never when the response came to its end."""
        self._response: Response | None = response
        """None when this is over; a parked turn may still call it."""
        self._given_up = given_up
        self._said = 0
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(grace, self._give_up)
        response.listen(self._go_on)
        loop.call_soon(self._go_on)  # soon: for its caller the response is not over yet

    def _go_on(self) -> None:
        response = self._response
        if response is None:
            return
        events = response.take()
        if not events:
            return  # also when the turn is being closed by what is just being taken: another one may follow it
        self._said += sum(map(weight, events))
        if response.over:
            self._stop()
        elif self._said > DRAINED_BYTES:
            self._give_up()

    def _give_up(self) -> None:
        response = self._response
        if response is not None:
            self._stop()
            self._given_up(response)

    def _stop(self) -> None:
        self._response = None
        self._timer.cancel()
