"""The bounded buffer of a turn's events, with backpressure: unread events are weighed, upstream is paused above the
limit and resumed when all were taken; what a reader gets after the turn was closed.

`put` tells the listener in the same call, so a reader that keeps up finds the buffer empty and pays nothing for it.
What a slow reader leaves here is weighed. Above the limit `on_full` asks for backpressure: no more is to be read from
upstream. `on_drained` ends it, as soon as everything was taken.

A producer puts last, with its own state in order: the listener may take, settle and close the turn before `put`
returns (see `core.turn.Source.listen`).
"""

import asyncio
from collections.abc import Callable

from .errors import gateway_stops
from .events import Event, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallReady


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
