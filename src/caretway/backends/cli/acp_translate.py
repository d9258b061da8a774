"""Translates ACP's `session/update` notifications and prompt results into events: text, thinking, the agent's own
tools, stop reasons, usage; exactly one terminal event. No I/O.

Input: updates of one prompt, then its result. The state is the announced and open calls.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    AgentActivity,
    Event,
    ReasoningDelta,
    StopReason,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    Usage,
    UsageReported,
)
from ...sessions.loop_guard import EndLoop, GuardSettings, LiveGuard, LiveVerdict, Tell, result_words
from .announced import CLOSED
from .print_translate import PLAN, OwnCall, Showing, plan_text, read_usage, run_usage, shown, title

_STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": StopReason.END,
    "max_tokens": StopReason.LENGTH,
    "max_turn_requests": StopReason.LENGTH,
    "refusal": StopReason.REFUSAL,
}
MAX_PLAN: Final = 100
UNDERWAY: Final = 5
"""Calls that may still begin before a correction reaches the model."""
_NAMES: Final[Mapping[str, str]] = {
    "execute": "bash",
    "read": "read",
    "edit": "edit",
    "search": "grep",
    "fetch": "fetch",
}


class AcpTranslator:
    def __init__(self, *, showing: Showing, prompt_chars: int = 0, guard: LiveGuard | None = None) -> None:
        self.over = self.succeeded = False
        self.correction = ""
        """The loop guard's message to the model, cleared when it is sent."""
        self._patience = 0
        """Calls that may still begin before the correction reaches the model."""
        self._guard = guard or LiveGuard(GuardSettings(), time.monotonic, prompt_chars)
        self._showing: Showing = showing
        self._started = False
        self._prompt_chars = prompt_chars
        self._spoken_chars = 0
        self._calls: dict[str, OwnCall] = {}
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
            case "plan":
                events += self._plan(update.get("entries"))
            case "cursor/update_todos":
                events += self._plan(update.get("todos"))
            case "cursor/create_plan":
                events += [AgentActivity(title(PLAN, update)), *self._written(plan_text(update))]
            case "cursor/task" | "cursor/generate_image" | "cursor/ask_question" as asked:
                name = asked.removeprefix("cursor/")
                about = {key: value for key, value in update.items() if key not in ("sessionUpdate", "sessionId")}
                headline = title(name, about | {"description": about.get("description") or about.get("title")})
                events += shown(OwnCall("", name, about, headline), self._showing, len(self._calls) + 1)
            case _:
                pass  # commands, mode, title: not shown in an answer
        return self._begun(events)

    def _written(self, text: str) -> list[Event]:
        self._spoken_chars += len(text)
        return [TextDelta(text)] if text else []

    def _plan(self, entries: object) -> list[Event]:
        """The agent's plan as activity, with the current state of each entry."""
        rows = [row for row in entries if isinstance(row, dict)] if isinstance(entries, list) else []
        steps = [f"[{row.get('status') or 'pending'}] {row.get('content') or ''}" for row in rows[:MAX_PLAN]]
        if not steps:
            return []
        activity: list[Event] = [AgentActivity(f"plan of {len(rows)} steps")]
        return [*activity, ReasoningDelta("\n" + "\n".join(steps) + "\n")] if self._showing == "reasoning" else activity

    def _tool(self, update: Mapping[str, Any]) -> list[Event]:
        call_id = str(update.get("toolCallId") or "")
        over = update.get("status") in CLOSED
        (self._open.discard if over else self._open.add)(call_id)
        events: list[Event] = []
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = self._new(call_id, update)
            events = shown(call, self._showing, len(self._calls))
            events += self._judged(self._guard.began(call.name, call.essence))
        if over and not self.over:
            given = result_words([update.get("content"), update.get("rawOutput")])
            events += self._judged(self._guard.ended(call.name, call.essence, given))
        return events

    def _judged(self, verdict: LiveVerdict) -> list[Event]:
        match verdict:
            case Tell(message=message):
                self.correction, self._patience = message, UNDERWAY
            case EndLoop() if self._patience:
                self._patience -= 1
            case EndLoop(error=error):
                return self.failed(error)
            case _:
                pass
        return []

    def corrected(self) -> None:
        """The correction was sent: later calls count for the loop guard again."""
        self._patience = 0

    def _new(self, call_id: str, update: Mapping[str, Any]) -> OwnCall:
        raw = update.get("rawInput")
        arguments = raw if isinstance(raw, dict) else {}
        named = arguments.get("_toolName")
        name = named if isinstance(named, str) else _NAMES.get(str(update.get("kind")), "tool")
        headline = update.get("title")
        label = f"{name} {headline}".strip() if isinstance(headline, str) and headline else title(name, arguments)
        return OwnCall(call_id, name, arguments or {"title": headline}, label)

    def result(self, result: object) -> list[Event]:
        """The events for the answer to the turn's last `session/prompt`."""
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

    def paused(self, call_chars: int) -> tuple[list[Event], Usage]:
        """End a response with calls. Returns its start event if it was not sent yet, and its estimated usage."""
        begun: list[Event] = [] if self._started else [TurnStarted()]
        usage = run_usage(None, 0, self._prompt_chars, self._spoken_chars + call_chars)
        self._prompt_chars += self._spoken_chars + call_chars
        self._spoken_chars, self._started = 0, False
        return begun, usage

    def resumed(self, result_chars: int) -> None:
        self._prompt_chars += result_chars

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
