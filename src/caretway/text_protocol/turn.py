"""A turn whose upstream speaks text only: the inner turn's text, parsed, as events.

A turn that made calls ends with them. What a model writes behind its calls are results it invented, so that is dropped
and upstream is closed at its first word. A wrong call (no such tool, no JSON) is told to the model when upstream keeps
its conversation, and shown as text otherwise.
"""

from collections.abc import Awaitable, Callable, Sequence

from ..core.errors import ErrorKind, GatewayError
from ..core.estimate import tokens
from ..core.events import (
    Event,
    ReasoningDelta,
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
from ..core.request import Text, ToolResult
from ..core.source import Pulled, receive
from ..core.turn import Snapshot, Turn
from ..core.usage import together
from .limits import TextLimits
from .parser import BadCall, CallPiece, Parser, Piece, TextPiece, ThinkingPiece

Correct = Callable[[Snapshot, str, Sequence[BadCall]], Awaitable[Turn]]
"""(the conversation so far, what the model said, its wrong calls) -> the turn that goes on."""


class TextTurn(Pulled):
    def __init__(
        self, inner: Turn, parser: Parser, correct: Correct, limits: TextLimits, *, prompt_chars: int = 0
    ) -> None:
        """`prompt_chars`: the size of the prompt, for an estimate of usage where upstream reports none."""
        self._inner = inner
        self._prompt_chars = prompt_chars
        self._answer_chars = 0
        self._parser = parser
        self._correct = correct
        self._limits = limits
        self._corrections = limits.corrections
        self._started = False
        self._calls = 0
        self._over = False
        self._closed = False
        self._usage: Usage | None = None
        self._said: list[str] = []
        """The model's own words, as long as it may have to be corrected."""
        self._wrong: list[BadCall] = []
        self._held: list[str] = []
        """What was said behind a wrong call. Shown only if the model is not corrected."""
        self._held_chars = 0

    async def receive(self) -> list[Event]:
        while True:
            out: list[Event] = []
            for event in await receive(self._inner):
                await self._take(event, out)
                if self._over:
                    return out
            if out:
                return out

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "A turn over text has ended with its calls.")

    def snapshot(self) -> Snapshot | None:
        """None after calls: upstream's memory may hold less, or more, than the calls that were made."""
        return None if self._calls else self._inner.snapshot()

    async def aclose(self) -> None:
        self._closed = True
        await self._inner.aclose()

    # ---- events of the inner turn

    async def _take(self, event: Event, out: list[Event]) -> None:
        match event:
            case TextDelta(text=text):
                self._answer_chars += len(text)
                if self._corrections:
                    self._said.append(text)
                for piece in self._parser.feed(text):
                    self._show(piece, out)
                    if self._over:
                        await self._inner.aclose()
                        return
            case TurnEnded():
                self._flush(out)
                if self._over:
                    return
                if self._wrong and await self._corrected():
                    return
                self._give_up(out)
                self._end(event, out)
            case TurnFailed():
                self._flush(out)
                if not self._over:
                    self._give_up(out)
                    self._end(event, out)
            case TurnStarted():
                if not self._started:
                    self._started = True
                    out.append(event)
            case UsageReported(usage=usage):
                self._usage = together(self._usage, usage)
                out.append(UsageReported(self._usage))
            case _:
                out.append(event)

    def _flush(self, out: list[Event]) -> None:
        for piece in self._parser.finish():
            if not self._over:
                self._show(piece, out)

    def _end(self, event: TurnEnded | TurnFailed, out: list[Event]) -> None:
        self._over = True
        if self._usage is None and isinstance(event, TurnEnded):
            spent, given = tokens(self._prompt_chars), tokens(self._answer_chars)
            out.append(UsageReported(Usage(max(1, spent), max(1, given), estimated=True)))
        out.append(event)

    # ---- pieces of the answer

    def _show(self, piece: Piece, out: list[Event]) -> None:
        match piece:
            case CallPiece():
                self._give_up(out)
                self._call(piece, out)
            case BadCall() if self._corrections and not self._calls:
                self._wrong.append(piece)
            case BadCall(raw=raw):
                out.append(TextDelta(raw))
            case TextPiece(text=text) | ThinkingPiece(text=text) if self._calls:
                if not text.isspace():
                    self._end(TurnEnded(), out)
            case ThinkingPiece(text=text):
                out.append(ReasoningDelta(text))
            case TextPiece(text=text) if self._wrong:
                self._held.append(text)
                self._held_chars += len(text)
                if self._held_chars > self._limits.max_call_chars:
                    self._give_up(out)
            case TextPiece(text=text):
                out.append(TextDelta(text))

    def _call(self, call: CallPiece, out: list[Event]) -> None:
        self._calls += 1
        call_id = f"text_{self._calls}"
        out += [
            ToolCallStarted(call_id, call.name),
            ToolCallDelta(call_id, call.arguments),
            ToolCallReady(call_id, call.name, call.arguments),
        ]
        if self._calls >= self._limits.max_calls:
            self._end(TurnEnded(), out)

    # ---- wrong calls

    def _give_up(self, out: list[Event]) -> None:
        """The model will not be corrected any more: its wrong calls, and what it said behind them, are text."""
        shown = "".join([*(wrong.raw for wrong in self._wrong), *self._held])
        if shown:
            out.append(TextDelta(shown))
        self._wrong, self._held, self._held_chars = [], [], 0

    async def _corrected(self) -> bool:
        """True when the model was told what was wrong and goes on."""
        kept = self._inner.snapshot()
        if kept is None or not self._corrections:
            return False
        self._corrections -= 1
        await self._inner.aclose()
        following = await self._correct(kept, "".join(self._said), self._wrong)
        self._said, self._wrong, self._held, self._held_chars = [], [], [], 0
        if self._closed:
            await following.aclose()
            raise GatewayError(ErrorKind.CANCELLED, "The gateway is stopping.")
        self._inner = following
        return True
