"""Events -> Reply. Non-streaming answers, tests and the end-of-turn log line all use this fold.

In: the events of one response, in order. Out: a `Reply`. Remembered: text pieces and calls, joined once at the end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from .errors import GatewayError
from .events import (
    AgentActivity,
    Event,
    Note,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from .request import ToolCall


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole response."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    notes: tuple[Note, ...] = ()
    reason: StopReason = StopReason.END
    stop_sequence: str | None = None
    paused: bool = False
    error: GatewayError | None = None


@dataclass(slots=True)
class Fold:
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)
    _notes: list[Note] = field(default_factory=list)
    _usage: Usage | None = None
    _end: TurnEnded | TurnPaused | TurnFailed | None = None

    def feed(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._text.append(text)
            case ReasoningDelta(text=text):
                self._reasoning.append(text)
            case ToolCallReady(id=call, name=name, arguments=arguments):
                self._calls.append(ToolCall(call, name, arguments))
            case UsageReported(usage=usage):
                self._usage = usage
            case Note():
                self._notes.append(event)
            case TurnEnded() | TurnPaused() | TurnFailed():
                self._end = event
            case TurnStarted() | ToolCallStarted() | ToolCallDelta() | AgentActivity():
                pass
            case _:
                assert_never(event)

    def reply(self) -> Reply:
        end = self._end
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=tuple(self._calls),
            usage=self._usage,
            notes=tuple(self._notes),
            reason=end.reason if isinstance(end, TurnEnded) else StopReason.END,
            stop_sequence=end.stop_sequence if isinstance(end, TurnEnded) else None,
            paused=isinstance(end, TurnPaused),
            error=end.error if isinstance(end, TurnFailed) else None,
        )


def fold(events: Iterable[Event]) -> Reply:
    folding = Fold()
    for event in events:
        folding.feed(event)
    return folding.reply()
