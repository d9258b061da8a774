"""Serialises parallel tool calls in OpenAI's streams, because some clients lose a call if another begins before it is
complete.
Input: the events of one response. Output: the same events, ordered so that a call is ready before other output begins;
a call that is interrupted at the end is dropped. State: the open call, and the queue of waiting events. Beyond the
queue's limit events are passed on at once, which both of OpenAI's APIs allow, because every piece names its item.
"""

from collections.abc import Sequence
from typing import Final

from ..core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    Usage,
)

# ---- Server-sent events as bytes: `data:` and `event:` frames, comments, `[DONE]`. Unicode line separators are
# escaped, because some clients end a line there.
#
# A payload is JSON text without raw line breaks, so it always fits one `data:` line.

DONE: Final = b"data: [DONE]\n\n"
"""The end marker of OpenAI's chat streams."""
_LINE_ENDS: Final = tuple((end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\u2028\u2029\u0085")
"""Non-ASCII characters that some clients treat as the end of a line (as Python's `splitlines` does) -> their JSON
escapes."""


def data(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload


def event(name: str, payload: bytes) -> bytes:
    """A frame with an `event:` line, for clients that dispatch on it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def comment(text: str) -> bytes:
    """A comment line that every client skips. It keeps the connection alive."""
    return b": %b\n\n" % text.encode()


def one_line(data: bytes) -> bytes:
    """Escape Unicode line separators in events, whose data is JSON, so that all clients see the same lines. ASCII stays
    unchanged."""
    if data.isascii():
        return data
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data


# ---- Additions to every API's usage object: `estimated`, and under `caretway` the total of the whole run.
#
# Clients ignore the unknown key `caretway`. A run's figures are Cursor's own; the input includes the cache. The
# response that ended the run has them, in addition to its own figures.


def beside(usage: Usage) -> dict[str, object]:
    """Caretway's own fields of a usage object: whether figures are estimated, the run's total, shared tokens."""
    guessed = usage.estimated or (usage.cache_read_tokens is None and usage.shared_tokens is not None)
    more: dict[str, object] = {"estimated": True} if guessed else {}
    run = usage.run
    if run is not None:
        run_usage: dict[str, object] = {}
        if run.input_tokens is not None:
            run_usage["input_tokens"] = run.input_tokens
        if run.output_tokens is not None:
            run_usage["output_tokens"] = run.output_tokens
        if run.cache_read_tokens is not None:
            run_usage["cache_read_tokens"] = run.cache_read_tokens
        if run.cache_write_tokens is not None:
            run_usage["cache_write_tokens"] = run.cache_write_tokens
        if run.reasoning_tokens is not None:
            run_usage["reasoning_tokens"] = run.reasoning_tokens
        run_usage["steps"] = run.steps
        if not run.complete:
            run_usage["at_least"] = True
        if run.cents is not None:
            run_usage["cents"] = run.cents
        if run.charged_cents is not None:
            run_usage["charged_cents"] = run.charged_cents
        more["caretway"] = {"run": run_usage}
    return more


MOST_WAITING: Final = 4 << 20
"""Characters that may wait."""


class _Item:
    """A waiting call, or waiting text between two calls."""

    __slots__ = ("call", "events", "whole")

    def __init__(self, call: str | None) -> None:
        self.call = call
        self.events: list[Event] = []
        self.whole = call is None


class InTurn:
    __slots__ = ("_calls", "_held", "_line", "_open", "_overrun", "busy")

    def __init__(self) -> None:
        self.busy = False
        """Whether a call is open. Otherwise only the start of a call is relevant."""
        self._open: str | None = None
        self._line: list[_Item] = []  # few items; every stream has a list, and a deque takes 0.7 KB
        self._calls: dict[str, _Item] = {}
        self._held = 0
        self._overrun = False

    def order(self, events: Sequence[Event]) -> Sequence[Event]:
        if not self.busy:
            for event in events:
                if type(event) is ToolCallStarted:
                    break
            else:
                return events
        out: list[Event] = []
        for event in events:
            if self._overrun:
                out.append(event)
            else:
                self._take(event, out)
        self.busy = self._open is not None
        return out

    def _take(self, event: Event, out: list[Event]) -> None:
        match event:
            case ToolCallStarted(id=call):
                if self._open is None:
                    self._open = call
                    out.append(event)
                else:
                    item = self._calls[call] = _Item(call)
                    self._line.append(item)
                    self._hold(item, event, len(event.name), out)
            case ToolCallDelta(id=call) | ToolCallReady(id=call):
                ready = isinstance(event, ToolCallReady)
                if call == self._open:
                    out.append(event)
                    if ready:
                        self._next(out)
                else:
                    item = self._calls[call]
                    item.whole = ready
                    self._hold(item, event, len(event.arguments), out)
            case TextDelta(text=text) | ReasoningDelta(text=text):
                if self._open is None:
                    out.append(event)
                else:
                    if not self._line or self._line[-1].call is not None:
                        self._line.append(_Item(None))
                    self._hold(self._line[-1], event, len(text), out)
            case TurnPaused() | TurnEnded() | TurnFailed():
                self._end(event, out)
            case _:
                out.append(event)  # belongs to the answer, not to an item

    def _hold(self, item: _Item, event: Event, size: int, out: list[Event]) -> None:
        item.events.append(event)
        self._held += size
        if self._held > MOST_WAITING:
            self._overrun, self._open = True, None
            for late in self._line:
                out += late.events
            self._line.clear()
            self._calls.clear()

    def _next(self, out: list[Event]) -> None:
        """The open call is ready: send the complete items after it, up to an incomplete call."""
        self._open = None
        while self._line and self._open is None:
            item = self._line.pop(0)
            out += item.events
            if item.call is not None:
                del self._calls[item.call]
                if not item.whole:
                    self._open = item.call
        if not self._line:
            self._held = 0

    def _end(self, end: TurnPaused | TurnEnded | TurnFailed, out: list[Event]) -> None:
        """Send complete waiting items before an end, but not before a failure. Only a turn that is stopped leaves a
        call open."""
        if not isinstance(end, TurnFailed):
            for item in self._line:
                if item.whole:
                    out += item.events
        self._line.clear()
        self._calls.clear()
        self._open = None
        out.append(end)
