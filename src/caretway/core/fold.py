"""Joins the events of a response into one Reply, for non-streaming answers and the log, and counts its size for the
limit of an answer's length.
Input: the events of one response, in order. Output: a `Reply`. State: text and calls, and their size. A run of text (or
reasoning) ends where the other kind, or a call, begins. Events are folded in batches, because folding each one would
slow every delta of a stream.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from . import events as ev
from .errors import GatewayError
from .events import Event, Usage
from .request import Reasoning, Text, ToolCall


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    notes: tuple[ev.Note, ...] = ()
    reason: ev.StopReason = ev.StopReason.END
    stop_sequence: str | None = None
    paused: bool = False
    error: GatewayError | None = None
    context_tokens: int | None = None
    """The estimate of the context from the start of the turn."""
    shown: tuple[ToolCall, ...] = ()
    """Calls that ran without the client and are shown for display only."""
    parts: "tuple[ReplyPart, ...]" = field(default=(), compare=False)
    """Text, reasoning, calls and web searches in the order of their beginning, for dialects whose answer is a list of
    items. Empty for a reply that was not folded from events."""

    @property
    def searches(self) -> list[ev.WebSearch]:
        return [part for part in self.parts if isinstance(part, ev.WebSearch)]

    @property
    def sources(self) -> list[ev.WebSource]:
        return [source for search in self.searches for source in search.found or ()]


ReplyPart = Text | Reasoning | ToolCall | ev.WebSearch
_Run = tuple[type[Text] | type[Reasoning], list[str]]


_AT_ONCE: Final = 64
_TOKEN_CHARS: Final = 4
_PART_BYTES: Final = 256
"""The memory of a call, a note or a run of text in addition to its text."""
_json: Final = msgspec.json.Encoder().encode
_LINE_ENDS: Final = tuple((end.encode(), 6 - len(end.encode())) for end in "\u2028\u2029\u0085")
"""Characters that a stream escapes in addition to JSON, and the additional length."""


class Fold(msgspec.Struct):
    weight: int = 0
    """Bytes of the answer so far, as JSON. It lags a few events behind."""
    _chars: int = 0
    _unfolded: list[Event] = msgspec.field(default_factory=list)
    _began: list[_Run | str | ev.WebSearch] = msgspec.field(default_factory=list)
    """Runs of text, the ids of calls, and web searches."""
    _kind: type[Text] | type[Reasoning] | None = None
    _run: list[str] = msgspec.field(default_factory=list)
    _words: list[str] = msgspec.field(default_factory=list)
    """The newest pieces of the run, not yet joined."""
    _ready: dict[str, ToolCall] = msgspec.field(default_factory=dict)
    _searches: dict[str, ev.WebSearch] = msgspec.field(default_factory=dict)
    _notes: list[ev.Note] = msgspec.field(default_factory=list)
    _shown: list[ToolCall] = msgspec.field(default_factory=list)
    _usage: Usage | None = None
    _context: int | None = None
    _end: ev.TurnEnded | ev.TurnPaused | ev.TurnFailed | None = None

    @property
    def tokens(self) -> int:
        """Estimated tokens of text, reasoning and calls so far. Folds the waiting events first."""
        self._catch_up()
        return -(-self._chars // _TOKEN_CHARS)

    def feed(self, event: Event) -> None:
        self._unfolded.append(event)

    def add(self, events: Sequence[Event]) -> None:
        unfolded = self._unfolded
        unfolded += events
        if len(unfolded) > _AT_ONCE:
            self._catch_up()

    def _catch_up(self) -> None:
        unfolded, self._unfolded = self._unfolded, []
        for event in unfolded:
            if type(event) is ev.TextDelta:  # the usual case; a class pattern takes ten times as long
                if event.text:
                    if self._kind is not Text:
                        self._open(Text)
                    self._words.append(event.text)
                continue
            match event:  # the most frequent events first
                case ev.TurnStarted(context_tokens=context):
                    self._context = context
                case ev.UsageReported(usage=usage):
                    self._usage = usage
                case ev.TurnEnded() | ev.TurnPaused() | ev.TurnFailed():
                    self._end = event
                case ev.ReasoningDelta(text=text):
                    if text:
                        if self._kind is not Reasoning:
                            self._open(Reasoning)
                        self._words.append(text)
                case ev.ToolCallStarted(id=call):
                    self._join()
                    self._began.append(call)
                    self._kind = None
                    self.weight += _PART_BYTES
                case ev.ToolCallReady(id=call, name=name, arguments=arguments):
                    self._ready[call] = ToolCall(call, name, arguments)
                    self.weight += len(name) + _size(arguments)
                    self._chars += len(name) + len(arguments)
                case ev.WebSearch(id=search):
                    if search not in self._searches:
                        self._join()
                        self._began.append(event)
                        self._kind = None
                        self.weight += _PART_BYTES
                    self._searches[search] = event
                    self.weight += sum(_PART_BYTES + len(source.url) for source in event.found or ())
                case ev.Note(value=value):
                    self._notes.append(event)
                    self.weight += _PART_BYTES + len(value)
                case ev.AgentActivity(call=call) if call is not None:
                    self._shown.append(call)
                    self.weight += _PART_BYTES + len(call.arguments)
                case ev.ToolCallDelta() | ev.AgentActivity() | ev.Recovered():
                    pass
                case _:
                    assert_never(event)
        if self._words:
            self._join()

    def _join(self) -> None:
        if self._words:
            joined = "".join(self._words)
            self._words = []
            self._run.append(joined)
            self._chars += len(joined)
            if self._end is None:
                self.weight += _size(joined)

    def _open(self, kind: type[Text] | type[Reasoning]) -> None:
        self._join()
        self._kind, self._run = kind, []
        self._began.append((kind, self._run))
        self.weight += _PART_BYTES

    def _parts(self) -> list[ReplyPart]:
        parts: list[ReplyPart] = []
        for began in self._began:
            if isinstance(began, ev.WebSearch):
                parts.append(self._searches[began.id])
            elif not isinstance(began, str):
                kind, pieces = began
                parts.append(kind("".join(pieces)))
            elif began in self._ready:
                parts.append(self._ready[began])
        return parts

    def reply(self) -> Reply:
        self._catch_up()
        end = self._end
        parts = self._parts()
        return Reply(
            text="".join([part.text for part in parts if isinstance(part, Text)]),
            reasoning="".join([part.text for part in parts if isinstance(part, Reasoning)]),
            calls=tuple([part for part in parts if isinstance(part, ToolCall)]),
            context_tokens=self._context,
            shown=tuple(self._shown),
            usage=self._usage,
            notes=tuple(self._notes),
            reason=end.reason if isinstance(end, ev.TurnEnded) else ev.StopReason.END,
            stop_sequence=end.stop_sequence if isinstance(end, ev.TurnEnded) else None,
            paused=isinstance(end, ev.TurnPaused),
            error=end.error if isinstance(end, ev.TurnFailed) else None,
            parts=tuple(parts),
        )


def _size(text: str) -> int:
    data = _json(text)
    return len(data) if text.isascii() else len(data) + sum(data.count(end) * more for end, more in _LINE_ENDS)


def fold(events: Iterable[Event]) -> Reply:
    folding = Fold()
    folding.add(tuple(events))
    return folding.reply()
