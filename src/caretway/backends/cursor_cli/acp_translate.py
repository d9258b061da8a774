"""ACP's `session/update` notifications and prompt results -> events: text, thinking, the agent's own tools, stop
reasons, usage; exactly one terminal event. No I/O.

In: updates of one prompt, then its result. Remembered: calls announced and open.
"""

from collections.abc import Mapping
from typing import Any, Final

from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    Event,
    ReasoningDelta,
    StopReason,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    UsageReported,
)
from .own_tools import OwnCall, Showing, shown, title
from .print_translate import read_usage, run_usage

_STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": StopReason.END,
    "max_tokens": StopReason.LENGTH,
    "max_turn_requests": StopReason.LENGTH,
    "refusal": StopReason.REFUSAL,
}
_CLOSED: Final = ("completed", "failed", "cancelled")
_NAMES: Final[Mapping[str, str]] = {
    "execute": "bash",
    "read": "read",
    "edit": "edit",
    "search": "grep",
    "fetch": "fetch",
}


class AcpTranslator:
    def __init__(self, *, showing: Showing, prompt_chars: int = 0) -> None:
        self.over = self.succeeded = False
        self._showing: Showing = showing
        self._started = False
        self._prompt_chars = prompt_chars
        self._spoken_chars = 0
        self._calls: dict[str, None] = {}
        self._open: set[str] = set()

    @property
    def tool_open(self) -> bool:
        return bool(self._open)

    def update(self, update: Mapping[str, Any]) -> list[Event]:
        if self.over:
            return []
        events: list[Event] = []
        text = _text(update)
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                events += [TextDelta(text)] if text else []
                self._spoken_chars += len(text)
            case "agent_thought_chunk":
                events += [ReasoningDelta(text)] if text else []
                self._spoken_chars += len(text)
            case "tool_call" | "tool_call_update":
                events += self._tool(update)
            case _:
                pass  # the plan, the commands, the mode: nothing that an answer shows
        return self._begun(events)

    def _tool(self, update: Mapping[str, Any]) -> list[Event]:
        call_id = str(update.get("toolCallId") or "")
        if update.get("status") in _CLOSED:
            self._open.discard(call_id)
        else:
            self._open.add(call_id)
        if call_id in self._calls:
            return []
        self._calls[call_id] = None
        raw = update.get("rawInput")
        arguments = raw if isinstance(raw, dict) else {}
        named = arguments.get("_toolName")
        name = named if isinstance(named, str) else _NAMES.get(str(update.get("kind")), "tool")
        headline = update.get("title")
        told = f"{name} {headline}".strip() if isinstance(headline, str) and headline else title(name, arguments)
        return shown(OwnCall(call_id, name, arguments, told), self._showing, len(self._calls))

    def result(self, result: object) -> list[Event]:
        """The answer to `session/prompt`."""
        if self.over:
            return []
        self.over = True
        value = result if isinstance(result, dict) else {}
        reason = value.get("stopReason")
        if reason == "cancelled":
            return [TurnFailed(GatewayError(ErrorKind.CANCELLED, "cursor-agent ended the turn before its end."))]
        self.succeeded = True
        counted = read_usage(value.get("usage"))
        usage = run_usage(counted, len(self._calls), self._prompt_chars, self._spoken_chars)
        return self._begun([UsageReported(usage), TurnEnded(_STOPS.get(str(reason), StopReason.END))])

    def failed(self, error: GatewayError) -> list[Event]:
        if self.over:
            return []
        self.over = True
        return [TurnFailed(error)]

    def _begun(self, events: list[Event]) -> list[Event]:
        if events and not self._started:
            self._started = True
            return [TurnStarted(), *events]
        return events


def _text(update: Mapping[str, Any]) -> str:
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""
