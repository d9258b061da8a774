"""Anthropic's usage object and token counts: the estimate behind `/v1/messages/count_tokens` and `message_start` (four
characters a token, a flat price for an image), cached tokens apart from `input_tokens`; estimates are marked.

Four characters per token and a flat price for an image: good enough for "does it fit?", not for a bill.
"""

from typing import Final

import msgspec

from ...core.events import Usage
from ...core.request import Image, Part, Reasoning, Text, ToolCall, ToolResult, TurnRequest
from ..usage import beside

CHARACTERS_PER_TOKEN: Final = 4
TOKENS_PER_IMAGE: Final = 1600


def estimate_input(request: TurnRequest) -> int:
    characters = images = 0
    for message in request.messages:
        for part in message.parts:
            more, pictures = _size(part)
            characters += more
            images += pictures
    for tool in request.tools:
        characters += len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.schema))
    return estimate_text(characters) + images * TOKENS_PER_IMAGE


def estimate_text(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def first_usage(request: TurnRequest, context: int | None) -> dict[str, object]:
    """For `message_start`, which needs both totals before they are known: the estimated input (`context`, else the size
    of the request), and the shortest possible answer."""
    return {"input_tokens": max(1, estimate_input(request) if context is None else context), "output_tokens": 1}


def usage_object(
    usage: Usage | None, request: TurnRequest, characters: int, context: int | None = None
) -> dict[str, object]:
    """Usage under Anthropic's names. Its clients need the two totals, so a figure that was not reported is estimated
    from the request and from the length of the answer, and marked. Unlike ours, `input_tokens` excludes the cache."""
    counted = usage or Usage()
    cached = (counted.cache_read_tokens or 0) + (counted.cache_write_tokens or 0)
    if counted.input_tokens is not None:
        whole = counted.input_tokens
    else:
        whole = estimate_input(request) if context is None else context
    shown: dict[str, object] = {
        "input_tokens": max(0, whole - cached),
        "output_tokens": estimate_text(characters) if counted.output_tokens is None else counted.output_tokens,
    }
    if counted.cache_write_tokens is not None:
        shown["cache_creation_input_tokens"] = counted.cache_write_tokens
    if counted.cache_read_tokens is not None:
        shown["cache_read_input_tokens"] = counted.cache_read_tokens
    if counted.reasoning_tokens is not None:
        shown["output_tokens_details"] = {"thinking_tokens": counted.reasoning_tokens}
    if counted.input_tokens is None or counted.output_tokens is None:
        shown["estimated"] = True
    return shown | beside(counted)


def _size(part: Part) -> tuple[int, int]:
    """Characters and images."""
    match part:
        case Text(text=text) | Reasoning(text=text):
            return len(text), 0
        case Image():
            return 0, 1
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(arguments), 0
        case ToolResult(content=content):
            sizes = [_size(inner) for inner in content]
            return sum(size[0] for size in sizes), sum(size[1] for size in sizes)
