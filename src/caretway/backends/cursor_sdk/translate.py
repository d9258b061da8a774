"""The SDK's run records -> events: text, thinking, the agent's own tools shown once, announced client calls, usage
summed over a run, how the run ended. Pure; imports nothing of the SDK.

Announced client calls are remembered so that a step is not thought complete too early.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    AgentActivity,
    Event,
    ReasoningDelta,
    RunUsage,
    TextDelta,
    TurnEnded,
    TurnFailed,
    UsageReported,
)
from ...core.tally import Tally
from ...core.usage import all_runs
from .faults import fault_from_text

_COUNT: Final = re.compile(r"[0-9]{1,18}")
PROVIDER: Final = "custom-user-tools"
"""The MCP server as which custom tools reach the model."""
STATUS_PREFIX: Final = "RUN_LIFECYCLE_STATUS_"
DISCOVERY: Final = frozenset({"getMcpTools", "get_mcp_tools", "GetMcpTools"})
"""The model looking up its tools: of no interest to anybody."""


@dataclass(slots=True)
class Translator:
    tally: Tally = field(default_factory=lambda: Tally(0))
    """Is told what is said and done, and makes each response's usage of it."""
    announced: set[str] = field(default_factory=set)
    """Client calls that the stream has shown and that have not ended."""
    running: set[str] = field(default_factory=set)
    """The agent's own tools at work."""
    conversation: int = 0
    """Tokens that the conversation holds in the end, as far as it is known."""
    unseen: int = 0
    """How much more than we knew of the model read: Cursor's own instructions."""
    _shown: set[str] = field(default_factory=set)
    _total: RunUsage | None = None
    """What the SDK has counted so far, over all model calls of the run."""

    def feed(self, record: Any) -> list[Event]:
        """One record of the stream; a terminal event ends it."""
        if record.sdk_message is not None:
            return self._message(record.sdk_message)
        if record.result is not None:
            return self._result(record.result)
        return []

    def _message(self, message: Any) -> list[Event]:
        match getattr(message, "type", ""):
            case "assistant":
                texts = [getattr(block, "text", "") for block in message.message.content]
                return [TextDelta(text) for text in texts if self._spoken(text)]
            case "thinking":
                return [ReasoningDelta(message.text)] if self._spoken(message.text) else []
            case "tool_call":
                return self._tool_call(message)
            case "usage":
                self._total = all_runs(self._total, read_usage(message.usage))  # one for each turn within the run
                return []
            case _:
                return []

    def _spoken(self, text: str) -> bool:
        if text:
            self.tally.speaking()
            self.tally.spoken_chars += len(text)
        return bool(text)

    def _tool_call(self, message: Any) -> list[Event]:
        call, over = message.call_id, message.status != "running"
        if over:
            self.tally.answered()
        else:
            self.tally.calling()
        if client_tool(message.name, message.args) is not None:
            (self.announced.discard if over else self.announced.add)(call)
            return []
        (self.running.discard if over else self.running.add)(call)
        if call in self._shown or message.name in DISCOVERY:
            return []
        self._shown.add(call)
        return [AgentActivity(title(message.name, message.args))]

    def _result(self, result: Mapping[str, Any]) -> list[Event]:
        total = self._total or read_usage_record(result.get("usage"))
        match str(result.get("status", "")).removeprefix(STATUS_PREFIX).lower():
            case "finished":
                usage = self.tally.ended(total)
                self.unseen = (usage.input_tokens or 0) - self.tally.expected
                self.conversation = (usage.input_tokens or 0) + (usage.output_tokens or 0)
                return [UsageReported(usage), TurnEnded()]
            case "cancelled":
                return [TurnFailed(GatewayError(ErrorKind.CANCELLED, "The run was cancelled."))]
            case status:
                text = str(result.get("errorMessage") or result.get("errorCode") or f"the run ended as `{status}`")
                return [TurnFailed(fault_from_text(text))]


def client_tool(name: str, arguments: Any) -> str | None:
    """The client's tool that a call is about: the SDK shows a call of a custom tool as a call of `mcp`."""
    if name == "mcp" and isinstance(arguments, Mapping) and arguments.get("providerIdentifier") == PROVIDER:
        tool = arguments.get("toolName")
        return tool if isinstance(tool, str) else None
    return None


def title(name: str, arguments: Any) -> str:
    """One short line for people."""
    told = arguments if isinstance(arguments, Mapping) else {}
    subject = next((str(told[key]) for key in ("command", "path", "pattern", "url", "toolName") if told.get(key)), "")
    return f"{name} {subject}".strip()[:200]


def read_usage(usage: Any) -> RunUsage:
    return RunUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )


def read_usage_record(usage: Any) -> RunUsage | None:
    """The same from the raw record, in which 64-bit numbers are texts; None when it has no counts."""
    if not isinstance(usage, Mapping):
        return None
    names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")
    taken, given, read, written, thought = [
        int(usage[name]) if _COUNT.fullmatch(str(usage.get(name, ""))) else None for name in names
    ]
    return None if taken is None and given is None else RunUsage(taken, given, read, written, thought)
