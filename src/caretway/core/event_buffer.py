"""The bounded buffer of a turn's events, with backpressure: upstream is paused above the limit and resumed when all
events were taken.
`put` calls the listener, so a fast reader keeps the buffer empty at no cost. Events that a slow reader leaves are
weighed. Above the limit `on_full` starts backpressure: nothing more should be read from upstream. `on_drained` ends it
when all events were taken. A producer must update its own state before `put`, because the listener may take, settle and
close the turn before `put` returns (see `core.turn.Source.listen`).
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
    """The listener of a source without a reader."""


def weight(event: Event) -> int:
    """A rough size of an unread event in bytes, including the cost of passing it on."""
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
        """`on_drained` is called before `take` returns. It must not `put`: that would overtake the taken events."""
        self.full = False
        self._limit = limit
        self._on_full = on_full
        self._on_drained = on_drained
        self._events: list[Event] = []
        self._ready: Callable[[], None] = nobody
        self._weight = self._weighed = 0  # bytes, and the number of events
        self._telling = False
        self._closed = False
        self._failure: Exception | None = None

    def put(self, events: list[Event]) -> None:
        """Add events; the buffer takes over the list. After `close` events are dropped."""
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
        """For producers with one piece at a time: collects pieces and calls the listener once, in a new callback. A
        piece that arrives before that callback is weighed at once, with the earlier pieces."""
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
        """Begin a response with these events and drop the previous response's rest. Does not call the listener, because
        the next reader takes first."""
        self._events = events
        if self._weighed:
            self._drained()

    def close(self, failure: Exception | None = None) -> None:
        """End the buffer. Its events can still be taken; after that `take` raises `failure`, or the error that the
        gateway stops. Backpressure ends without a call, and the hooks are released, so that no reference cycle keeps
        the turn alive."""
        if self._closed:
            return
        self._closed = True
        self._failure = failure
        self.full = False
        self._on_full = self._on_drained = nobody
        ready, self._ready = self._ready, nobody
        ready()

    def _weigh(self) -> None:
        """Weigh the remaining events. No backpressure after `close`."""
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


# ---- The base of a turn around another turn (text protocol, MCP bridge): takes the inner turn's events only while its
# own buffer has room (backpressure), and passes exceptions to its reader.
#
# `_digest` runs in the callback that delivers the events. While this turn's buffer is full, the inner turn's buffer
# fills and pauses upstream.

AHEAD_BYTES: Final = 64 * 1024
"""Bytes that an `OuterTurn` reads ahead of its reader, in addition to the inner turn's buffer."""


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
        """Whether to take the inner turn's events. When this becomes true, call `_hear`."""

    @abstractmethod
    def _digest(self, batch: list[Event]) -> list[Event]:
        """The events for the reader, from a batch of the inner turn, which may be empty."""

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
        """Take events from the inner turn if this turn has room for them."""
        if self._closed or self._buffer.full or not self._listens:
            return
        try:
            events = self._digest(self._inner.take())
        except Exception as failure:  # for the reader: the inner turn's callback cannot handle it
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
