"""Token estimates where Cursor reports none: four characters a token, a price for tools and images, usage of an answer
that was stopped early; always marked. And the size of a request, by bytes, for clients that ask before they send.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from .events import Usage
from .fold import Reply
from .request import Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, TurnRequest, last_answer

CHARS_PER_TOKEN: Final = 4
TOOL_CHARS: Final = 200
"""Roughly what a tool's schema adds to its description."""
IMAGE_CHARS: Final = 1600 * CHARS_PER_TOKEN
"""An image of the size that models read, counted as text."""


def tokens(chars: int) -> int:
    """Text that is not empty costs at least one token."""
    return -(-chars // CHARS_PER_TOKEN)


def prompt_chars(request: TurnRequest) -> int:
    return message_chars(request.messages) + sum([len(tool.description) + TOOL_CHARS for tool in request.tools])


def history_tokens(request: TurnRequest) -> int:
    """What was said before the news of a request."""
    return tokens(message_chars(request.messages[: last_answer(request.messages)]))


def message_chars(messages: Iterable[Message]) -> int:
    text = Text  # histories are long, and most of them is this
    return sum(
        [len(part.text) if type(part) is text else _chars(part) for message in messages for part in message.parts]
    )


def _chars(part: Part) -> int:
    match part:
        case Text(text=text) | Reasoning(text=text):
            return len(text)
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case ToolResult():
            return result_chars(part)
        case Image():
            return IMAGE_CHARS


def result_chars(result: ToolResult) -> int:
    return sum([len(part.text) if isinstance(part, Text) else IMAGE_CHARS for part in result.content])


def reply_chars(reply: Reply) -> int:
    """All text of the answer, calls included."""
    calls = sum([len(call.name) + len(call.arguments) for call in reply.calls])
    return len(reply.text) + len(reply.reasoning) + calls


def estimated_usage(request: TurnRequest, reply: Reply) -> Usage:
    """The usage of an answer that ended before it was reported."""
    read = reply.context_tokens if reply.context_tokens is not None else tokens(prompt_chars(request))
    return Usage(max(1, read), max(1, tokens(reply_chars(reply))), estimated=True)


def estimate_input(request: TurnRequest) -> int:
    """What `count_tokens` tells: four bytes a token, so that a script of three bytes a letter counts as more, the
    tools' schemas, and a flat price for an image. Good enough for "does it fit?", not for a bill."""
    size = sum([_weight(part) for message in request.messages for part in message.parts])
    for tool in request.tools:
        size += _bytes(tool.name) + _bytes(tool.description) + len(msgspec.json.encode(tool.schema))
    return tokens(size)


def _weight(part: Part) -> int:
    match part:
        case Text(text=text):
            return _bytes(text)
        case Reasoning():
            return 0  # that of earlier answers is not sent
        case Image():
            return IMAGE_CHARS
        case ToolCall(name=name, arguments=arguments):
            return _bytes(name) + _bytes(arguments)
        case ToolResult(content=content):
            return sum([_weight(inner) for inner in content])


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
