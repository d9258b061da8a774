"""A turn over a text-only backend: stops the inner turn at the first text after its calls, and starts a correction if
upstream keeps the conversation. It has no snapshot after calls.

This happens in the callback that brings the text (`core/event_buffer.py`). Only a correction is a task.
"""

from collections.abc import Awaitable, Callable, Sequence

from ...core.errors import ErrorKind, GatewayError
from ...core.event_buffer import OuterTurn
from ...core.events import (
    TERMINAL,
    Event,
    ReasoningDelta,
    Recovered,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    Usage,
    UsageReported,
)
from ...core.recovery import Fact, Loss, NewRuns, Remedy
from ...core.request import Text, ToolResult
from ...core.tally import tokens
from ...core.turn import Snapshot, Turn
from ...processes.tasks import spawn
from .parser import BadCall, CallPiece, Parser, Piece, TextLimits, TextPiece, ThinkingPiece
from .thinking import unclosed

# ---- Converts parsed text into the events of a turn: calls end it, text after calls (invented results) is dropped, a
# wrong call is held for a correction or shown as text, usage is estimated if none is reported. Pure.
#
# Input: batches of the inner turn's events. A wrong call (no such tool, no JSON) stops the reader at the end of the
# answer, and `wrong` holds it. The caller then calls `corrected`, or `give_up` if a correction is not possible.


class TextReader:
    def __init__(
        self,
        parser: Parser,
        limits: TextLimits,
        *,
        prompt_chars: int = 0,
        only: str = "",
        corrects: bool = False,
        opened: int = 0,
    ) -> None:
        """`prompt_chars`: the size of the prompt, to estimate usage if upstream reports none. `only`: the tool that
        the request demands by name; calls of other tools are dropped. `corrects`: wrong calls may be corrected.
        `opened`: how many new runs earlier turns of the request opened."""
        self.over = False
        """The last event was returned; later events of the inner turn are ignored."""
        self.calls = 0
        self.wrong: list[BadCall] = []
        self.ended: TurnEnded | None = None
        """The inner turn's end, if the answer has wrong calls that may be corrected."""
        self._parser = parser
        self._limits = limits
        self._corrects = corrects
        self.asked_again = False
        """The model was corrected."""
        self.runs = NewRuns(opened)
        self._prompt_chars = prompt_chars
        self._only = only
        self._answer_chars = 0
        self._started = False
        self._usage: Usage | None = None
        self._said: list[str] = []
        """The model's own text, kept while a correction is possible."""
        self._held: list[str] = []
        """The text after a wrong call, shown only if the model is not corrected."""
        self._held_chars = 0

    @property
    def listens(self) -> bool:
        """Whether the inner turn's events are still read."""
        return not self.over and self.ended is None

    @property
    def said(self) -> str:
        """The model's text since the last correction."""
        return "".join(self._said)

    def feed(self, batch: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            if not self.listens:
                break
            self._read(event, out)
        return out

    def corrected(self) -> None:
        """Continue after a correction was sent to the model."""
        self.asked_again = True
        self.ended = None
        self._said, self.wrong, self._held, self._held_chars = [], [], [], 0

    def give_up(self) -> list[Event]:
        """End the turn without a correction: a wrong call is made if only its arguments do not fit the
        schema, and otherwise shown as text."""
        assert self.ended is not None
        ended, self.ended = self.ended, None
        out: list[Event] = []
        self._show_wrong(out)
        self._end_once(ended, out)
        return out

    # ---- events of the inner turn

    def _read(self, event: Event, out: list[Event]) -> None:
        match event:
            case TextDelta(text=text):
                self._answer_chars += len(text)
                if self._corrects:
                    self._said.append(text)
                for piece in self._parser.feed(text):
                    if not self.over:
                        self._show(piece, out)
            case TurnEnded():
                self._flush(out)
                if self._parser.unclosed and not self.calls and not self.over:
                    out.append(unclosed())
                if self.wrong and not self.over:
                    self.ended = event
                elif not self.over:
                    self._show_wrong(out)
                    self._end_once(event, out)
            case TurnFailed():
                self._parser.break_off()
                self._flush(out)
                if not self.over:
                    self._show_wrong(out)
                    self._end_once(event, out)
            case TurnStarted():
                if not self._started:
                    self._started = True
                    out.append(event)
            case Recovered(reopened=reopened):
                self.runs.opened = reopened
                out.append(event)
            case UsageReported(usage=usage):
                self._usage = usage.after(self._usage)
                out.append(UsageReported(self._usage))
            case _:
                out.append(event)

    def _flush(self, out: list[Event]) -> None:
        for piece in self._parser.finish():
            if not self.over:
                self._show(piece, out)

    def _end_once(self, event: TurnEnded | TurnFailed, out: list[Event]) -> None:
        if not self.over:
            self._end(event, out)

    def _end(self, event: TurnEnded | TurnFailed, out: list[Event]) -> None:
        self.over = True
        if self._usage is None and isinstance(event, TurnEnded):
            spent, given = tokens(self._prompt_chars), tokens(self._answer_chars)
            out.append(UsageReported(Usage(max(1, spent), max(1, given), estimated=True)))
        out.append(event)

    # ---- pieces of the answer

    def _show(self, piece: Piece, out: list[Event]) -> None:
        match piece:
            case CallPiece():
                self._show_wrong(out)
                self._call(piece, out)
            case BadCall() if self._corrects and not self.calls:
                self.wrong.append(piece)
            case BadCall(call=CallPiece() as call):
                self._show_wrong(out)
                self._call(call, out)
            case BadCall(raw=raw):
                out.append(TextDelta(raw))
            case TextPiece(text=text) | ThinkingPiece(text=text) if self.calls:
                if not text.isspace():
                    self._end(TurnEnded(), out)
            case ThinkingPiece(text=text):
                out.append(ReasoningDelta(text))
            case TextPiece(text=text) if self.wrong:
                self._held.append(text)
                self._held_chars += len(text)
                if self._held_chars > self._limits.max_call_chars:
                    self._show_wrong(out)
            case TextPiece(text=text):
                out.append(TextDelta(text))

    def _call(self, call: CallPiece, out: list[Event]) -> None:
        if self._only not in ("", call.name):
            return
        self.calls += 1
        call_id = f"text_{self.calls}"
        out += [
            ToolCallStarted(call_id, call.name),
            ToolCallDelta(call_id, call.arguments),
            ToolCallReady(call_id, call.name, call.arguments),
        ]
        if self.calls >= self._limits.max_calls:
            self._end(TurnEnded(), out)

    def _show_wrong(self, out: list[Event]) -> None:
        """Emit the wrong calls without a correction: calls whose arguments do not fit the schema are made, other wrong
        calls become text. The text after them is shown only if no call is made."""
        calls = [wrong.call for wrong in self.wrong if wrong.call is not None]
        words = [wrong.raw for wrong in self.wrong if wrong.call is None]
        shown = "".join(words if calls else [*words, *self._held])
        self.wrong, self._held, self._held_chars = [], [], 0
        if shown:
            out.append(TextDelta(shown))
        for call in calls:
            if not self.over:
                self._call(call, out)


Correct = Callable[[Snapshot, TextReader], Awaitable[Turn]]
"""(the conversation so far, the reader with the model's text and its wrong calls) -> the turn that continues."""


class TextTurn(OuterTurn):
    def __init__(self, inner: Turn, reader: TextReader, correct: Correct) -> None:
        super().__init__(inner)
        self._reader = reader
        self._correct = correct
        self._follow(inner)

    parks = False

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "A turn over text has ended with its calls.")

    def snapshot(self) -> Snapshot | None:
        """The inner turn's snapshot; None after calls, because upstream's history may differ from the calls made."""
        return None if self._reader.calls else self._inner.snapshot()

    # ---- the inner turn

    @property
    def _listens(self) -> bool:
        return self._reader.listens

    def _digest(self, batch: list[Event]) -> list[Event]:
        reader = self._reader
        events = reader.feed(batch)
        if reader.ended is not None:
            kept = self._inner.snapshot()
            step, news = reader.runs.lost(
                Loss.WRONG_CALL, (Fact.FIXED, kept is None), (Fact.ASKED_TWICE, reader.asked_again)
            )
            if kept is None or step.remedy is not Remedy.CORRECTION:
                events += reader.give_up()
            else:
                events += news
                spawn(self._corrected(kept), "correct-text-calls")
        elif reader.over and not isinstance(batch[-1], TERMINAL):
            self._inner.close()  # at the first text after its calls
        return events

    async def _corrected(self, kept: Snapshot) -> None:
        reader = self._reader
        try:
            await self._inner.aclose()
            following = await self._correct(kept, reader)
        except Exception as failure:  # any failure goes to the reader, because no caller awaits this task
            self._buffer.close(failure)
            return
        if self._closed:
            await following.aclose()
            return
        reader.corrected()
        self._follow(following)
