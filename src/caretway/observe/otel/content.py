"""What was said, for a user who asked for content in traces: the new messages of a request and its answer, in the JSON
of OpenTelemetry's conventions, without secrets, and cut to a length. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from ...core.fold import Reply
from ...core.request import Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, TurnRequest, last_answer

MAX_TEXT_CHARS: Final = 8192
"""Of one part of a message."""
MAX_PARTS: Final = 64
"""Of one request, and of one answer; the newest are told."""
Hide = Callable[[str], str]


def told_content(request: TurnRequest, reply: Reply, hide: Hide) -> tuple[str, str]:
    """(what is new in the request, the answer)"""
    news = request.messages[last_answer(request.messages) :]
    said = [_message(message, hide) for message in news[-MAX_PARTS:]]
    parts = reply.parts or tuple(filter(None, (Text(reply.text) if reply.text else None, *reply.calls)))
    finish = "tool_call" if reply.paused else "error" if reply.error else "stop"
    answer = [{"role": "assistant", "parts": _parts(parts, hide), "finish_reason": finish}]
    return msgspec.json.encode(said).decode(), msgspec.json.encode(answer).decode()


def _message(message: Message, hide: Hide) -> dict[str, Any]:
    return {"role": message.role.value, "parts": _parts(message.parts, hide)}


def _parts(parts: Iterable[Part], hide: Hide) -> list[dict[str, Any]]:
    return [_part(part, hide) for part in [*parts][-MAX_PARTS:]]


def _part(part: Part, hide: Hide) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": _cut(text, hide)}
        case Reasoning(text=text):
            return {"type": "reasoning", "content": _cut(text, hide)}
        case ToolCall(id=call, name=name, arguments=arguments):
            return {"type": "tool_call", "id": call, "name": name, "arguments": _cut(arguments, hide)}
        case ToolResult(call_id=call):
            return {"type": "tool_call_response", "id": call, "response": _cut(part.text, hide)}
        case Image(data=data, mime_type=kind):
            return {"type": "text", "content": f"[{kind}, {len(data)} bytes]"}


def _cut(text: str, hide: Hide) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return hide(text)
    whole_words = text[:MAX_TEXT_CHARS].rpartition(" ")[0]  # half a secret could not be recognised
    return f"{hide(whole_words)} … [{len(text)} characters]"
