"""Turns that every test of the encoder goes through: what happened, and for what kind of request."""

from typing import Any

import msgspec

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
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
from caretway.dialects import Dialect, ResponseMeta
from caretway.dialects.openai_responses import ResponseStore, openai_responses

META = ResponseMeta(id="abc", created=1_700_000_000, model='m"1')
USAGE = UsageReported(Usage(10, 5, cache_read_tokens=4, cache_write_tokens=1, reasoning_tokens=2))
BODY: dict[str, Any] = {
    "model": "m",
    "input": "hi",
    "instructions": "be brief",
    "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"k": "v"},
    "tools": [
        {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "crm", "description": "d", "tools": [{"type": "function", "name": "find"}]},
        {"type": "tool_search", "execution": "client", "description": "finds", "parameters": {"type": "object"}},
    ],
}
WHOLE: dict[str, list[Event]] = {
    "nothing": [TurnStarted(), TurnEnded()],
    "text": [TurnStarted(), TextDelta("PO"), TextDelta(""), TextDelta('NG\n"é\u2028'), USAGE, TurnEnded()],
    "reasoning, then text": [
        TurnStarted(),
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        TextDelta("x"),
        USAGE,
        TurnEnded(),
    ],
    "both in turns": [
        TurnStarted(),
        TextDelta("a"),
        ReasoningDelta("b"),
        AgentActivity("ls"),
        ReasoningDelta("c"),
        TextDelta("d"),
        TurnEnded(),
    ],
    "one call": [
        TurnStarted(),
        TextDelta("wait"),
        ToolCallStarted("call_a", "shell"),
        ToolCallDelta("call_a", '{"command": '),
        ToolCallDelta("call_a", '"ls"}'),
        ToolCallReady("call_a", "shell", '{"command": "ls"}'),
        USAGE,
        TurnPaused(),
    ],
    "parallel calls interleave": [
        TurnStarted(),
        ToolCallStarted("call_a", "shell"),
        ToolCallStarted("call_b", "find"),
        ToolCallDelta("call_a", "{"),
        ToolCallDelta("call_b", '{"n"'),
        TextDelta("meanwhile"),
        ToolCallReady("call_b", "find", '{"n":1}'),
        ToolCallReady("call_a", "shell", "{}"),
        TurnPaused(),
    ],
    "a custom tool": [
        TurnStarted(),
        ToolCallStarted("call_a", "patch"),
        ToolCallDelta("call_a", '{"input": "a'),
        ToolCallReady("call_a", "patch", '{"input": "a\\nb"}'),
        ToolCallStarted("call_b", "patch"),
        ToolCallReady("call_b", "patch", "not JSON"),
        TurnPaused(),
    ],
    "a tool search": [
        TurnStarted(),
        ToolCallStarted("call_a", "tool_search"),
        ToolCallDelta("call_a", '{"query": '),
        ToolCallReady("call_a", "tool_search", '{"query": "x"}'),
        ToolCallStarted("call_b", "tool_search"),
        ToolCallReady("call_b", "tool_search", "not JSON"),
        TurnPaused(),
    ],
    "cut off": [TurnStarted(), ReasoningDelta("h"), TextDelta("half"), TurnEnded(StopReason.LENGTH)],
    "refused": [TurnStarted(), TextDelta("no"), TurnEnded(StopReason.REFUSAL)],
    "a note": [TurnStarted(), TextDelta("{}"), Note("response_format", "valid"), TurnEnded()],
    "an estimate": [TurnStarted(), TextDelta("x"), UsageReported(Usage(1, 2, estimated=True)), TurnEnded()],
    "half a count": [TurnStarted(), TextDelta("x"), UsageReported(Usage(1)), TurnEnded()],
}
"""Turns that have a whole answer too."""
FAILED: dict[str, list[Event]] = {
    "at once": [TurnFailed(GatewayError(ErrorKind.SIGNED_OUT, "Signed out.", hint="Run `caretway login`."))],
    "after text": [
        TurnStarted(),
        ReasoningDelta("h"),
        TextDelta("PART"),
        USAGE,
        TurnFailed(GatewayError(ErrorKind.UPSTREAM_ERROR, "It broke.")),
    ],
    "in a call": [
        TurnStarted(),
        ToolCallStarted("call_a", "shell"),
        ToolCallDelta("call_a", "{"),
        TurnFailed(GatewayError(ErrorKind.RATE_LIMITED, "Too fast.")),
    ],
}


def dialect() -> Dialect:
    return openai_responses(ResponseStore())


def stream(events: list[Event], **more: Any) -> bytes:
    made = dialect()
    return made.encoder(made.decode({**BODY, **more}, {}), META).feed(events)


def frames(raw: bytes) -> list[Any]:
    """The payloads of a stream; each frame says its type twice, and in the same words."""
    pieces = raw.decode().split("\n\n")
    assert pieces.pop() == ""
    payloads = []
    for piece in pieces:
        event, data = piece.split("\n")
        payload = msgspec.json.decode(data.removeprefix("data: "))
        assert event == f"event: {payload['type']}"
        payloads.append(payload)
    return payloads
