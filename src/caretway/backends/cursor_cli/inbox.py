"""The events of one turn between the pipe that makes them and the response that reads them. Bounded.

Being cancelled while waiting loses nothing: a response stops waiting now and then to send a sign of life.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ...core.events import Event, ReasoningDelta, TextDelta

_EVENT_WEIGHT: Final = 100


class Inbox:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: list[Event] = []
        self._weight = 0
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._resume: Callable[[], None] | None = None

    def put(self, events: Sequence[Event]) -> None:
        if not events or self._closed:
            return
        self._events += events
        for event in events:
            text = event.text if isinstance(event, TextDelta | ReasoningDelta) else ""
            self._weight += _EVENT_WEIGHT + len(text)
        self._wake()

    @property
    def full(self) -> bool:
        return self._weight >= self._limit

    def hold(self, resume: Callable[[], None]) -> None:
        """The source was stopped; `resume` is called as soon as everything was read."""
        self._resume = resume

    async def receive(self) -> list[Event]:
        while not self._events:
            if self._closed:
                raise GatewayError(ErrorKind.CANCELLED, "The gateway is stopping.")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events, self._events = self._events, []
        self._weight = 0
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()
        return events

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
