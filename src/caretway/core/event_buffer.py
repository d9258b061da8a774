"""The bounded buffer of a turn's events, with backpressure: unread events are weighed, upstream is paused above the
limit and resumed when all were taken; what a reader gets after the turn was closed.

`put` tells the listener in the same call, so a reader that keeps up finds the buffer empty and pays nothing for it.
What a slow reader leaves here is weighed. Above the limit `on_full` asks for backpressure: no more is to be read from
upstream. `on_drained` ends it, as soon as everything was taken.

A producer puts last, with its own state in order: the listener may take, settle and close the turn before `put`
returns (see `core.turn.Source.listen`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from .errors import ErrorKind, GatewayError, gateway_stops
from .events import Event, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallReady, TurnFailed
from .request import Text, ToolResult
from .turn import Snapshot, Turn


def nobody() -> None:
    """The listener of a source that nobody listens to."""


def weight(event: Event) -> int:
    """Bytes that an unread event holds, roughly, and what passing it on takes: all that is unread is taken at once."""
    if isinstance(event, TextDelta | ReasoningDelta):
        return 128 + len(event.text)
    return 1024 + (len(event.arguments) if isinstance(event, ToolCallDelta | ToolCallReady) else 0)


class EventBuffer:
    __slots__ = (
        "_closed",
        "_events",
        "_failure",
        "_limit",
        "_on_drained",
        "_on_full",
        "_ready",
        "_telling",
        "_weighed",
        "_weight",
        "full",
    )

    def __init__(
        self, limit: int, on_full: Callable[[], None] = nobody, on_drained: Callable[[], None] = nobody
    ) -> None:
        """`on_drained` is called before `take` returns. It must not put: that would overtake what is being taken."""
        self.full = False
        self._limit = limit
        self._on_full = on_full
        self._on_drained = on_drained
        self._events: list[Event] = []
        self._ready: Callable[[], None] = nobody
        self._weight = self._weighed = 0  # bytes, and how many events they are
        self._telling = False
        self._closed = False
        self._failure: Exception | None = None

    def put(self, events: list[Event]) -> None:
        """The list is the buffer's from now on. What comes after `close` is dropped."""
        if not events or self._closed:
            return
        if self._events:
            self._events += events
        else:
            self._events = events
        self._ready()
        if self._events and not self.full:
            self._weigh()

    def put_soon(self, events: list[Event]) -> None:
        """For those that hear of one piece at a time: what comes in one go is one batch, in a callback of its
        own. A piece that comes before its reader had that callback is weighed at once, with those before it."""
        if not events or self._closed:
            return
        self._events += events
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)
        elif not self.full:
            self._weigh()

    def _tell(self) -> None:
        self._telling = False
        if self._events:
            self._ready()
            if self._events and not self.full:
                self._weigh()

    def listen(self, ready: Callable[[], None]) -> None:
        self._ready = ready

    def take(self) -> list[Event]:
        events = self._events
        if not events:
            if self._closed:
                raise self._last_word()
            return []
        self._events = []
        if self._weighed:
            self._drained()
        return events

    def begin(self, events: list[Event]) -> None:
        """A response begins with these; what nobody took of the one before is not wanted any more. Nobody is told:
        the next reader takes first."""
        self._events = events
        if self._weighed:
            self._drained()

    def close(self, failure: Exception | None = None) -> None:
        """Nothing more will come. What is here can still be taken; after that `take` raises `failure`, or that the
        gateway is stopping. Backpressure is over, untold, and the hooks are let go of: a turn and its buffer are
        freed without a search for cycles."""
        if self._closed:
            return
        self._closed = True
        self._failure = failure
        self.full = False
        self._on_full = self._on_drained = nobody
        ready, self._ready = self._ready, nobody
        ready()

    def _weigh(self) -> None:
        """Events stay here; nothing is held back after the close."""
        if self._closed:
            return
        self._weight += sum(map(weight, self._events[self._weighed :]))
        self._weighed = len(self._events)
        if self._weight > self._limit:
            self.full = True
            self._on_full()

    def _drained(self) -> None:
        self._weight = self._weighed = 0
        if self.full:
            self.full = False
            self._on_drained()

    def _last_word(self) -> Exception:
        failure, self._failure = self._failure, None
        return failure or gateway_stops()


# ---- The frame of a turn around another one (text protocol, MCP bridge): takes the inner turn's events only while its
# own buffer has room (backpressure), and hands an exception to its reader.
#
# `_digest` runs in the callback that brought the events. While this turn's own buffer is full nothing is taken from the
# inner turn, whose buffer then holds upstream back. Knows nothing of what is made of the events, nor of results.

AHEAD_BYTES: Final = 64 * 1024
"""How far it reads ahead of its reader. The inner turn has a buffer of its own behind that."""


class OuterTurn(ABC):
    def __init__(self, inner: Turn) -> None:
        """The creator calls `_follow` when it is ready to digest."""
        self._inner = inner
        self._closed = False
        self._buffer = EventBuffer(AHEAD_BYTES, on_drained=self._hear_soon)
        self.listen, self.take = self._buffer.listen, self._buffer.take

    @property
    @abstractmethod
    def _listens(self) -> bool:
        """The inner turn's events are wanted. When they are wanted again, `_hear` is called."""

    @abstractmethod
    def _digest(self, batch: list[Event]) -> list[Event]:
        """What the reader gets of the inner turn's events. The batch may be empty."""

    def snapshot(self) -> Snapshot | None:
        return self._inner.snapshot()

    def close(self) -> None:
        self._closed = True
        self._inner.close()
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()
        await self._inner.aclose()

    def _follow(self, inner: Turn) -> None:
        self._inner = inner
        inner.listen(self._hear)
        self._hear()

    def _hear(self) -> None:
        """Something can be taken from the inner turn, and this one has room for it."""
        if self._closed or self._buffer.full or not self._listens:
            return
        try:
            events = self._digest(self._inner.take())
        except Exception as failure:  # whatever it is, it is for the reader: the inner turn's callback cannot handle it
            self._buffer.close(failure)
            return
        self._buffer.put(events)

    def _hear_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._hear)


# ---- A turn whose events are all known when it begins: a failure before the start, or an answer that is sent once
# more.


class FixedTurn:
    __slots__ = ("_buffer", "listen", "take")

    def __init__(self, events: list[Event]) -> None:
        self._buffer = EventBuffer(0)
        self._buffer.put(events)
        self.listen, self.take = self._buffer.listen, self._buffer.take

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "There is no turn to give results to.")

    def snapshot(self) -> Snapshot | None:
        return None

    def close(self) -> None:
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()


def failed_turn(error: GatewayError) -> FixedTurn:
    """A turn that failed before it could begin."""
    return FixedTurn([TurnFailed(error)])
