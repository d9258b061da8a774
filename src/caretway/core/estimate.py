"""Token counts for when nobody else counts: four characters a token, and always marked as an estimate."""

from collections.abc import Iterable
from typing import Final

from .events import Usage
from .fold import Reply
from .request import Image, Message, Reasoning, Text, ToolCall, ToolResult, TurnRequest

CHARS_PER_TOKEN: Final = 4
TOOL_CHARS: Final = 200
"""What a tool's schema adds to its description, roughly."""
IMAGE_CHARS: Final = 1600 * CHARS_PER_TOKEN
"""A picture of the size that models read, as if it were text."""


def tokens(chars: int) -> int:
    """Something said is never free."""
    return -(-chars // CHARS_PER_TOKEN)


def prompt_chars(request: TurnRequest) -> int:
    return message_chars(request.messages) + sum([len(tool.description) + TOOL_CHARS for tool in request.tools])


def message_chars(messages: Iterable[Message]) -> int:
    count = 0
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text=text) | Reasoning(text=text):
                    count += len(text)
                case ToolCall(name=name, arguments=arguments):
                    count += len(name) + len(arguments)
                case ToolResult():
                    count += result_chars(part)
                case Image():
                    count += IMAGE_CHARS
    return count


def result_chars(result: ToolResult) -> int:
    return sum([len(part.text) if isinstance(part, Text) else IMAGE_CHARS for part in result.content])


def reply_chars(reply: Reply) -> int:
    """Everything that was said, calls included."""
    calls = sum([len(call.name) + len(call.arguments) for call in reply.calls])
    return len(reply.text) + len(reply.reasoning) + calls


def estimated_usage(request: TurnRequest, reply: Reply) -> Usage:
    """Of an answer that ended before anybody counted it."""
    read = reply.context_tokens if reply.context_tokens is not None else tokens(prompt_chars(request))
    return Usage(max(1, read), max(1, tokens(reply_chars(reply))), estimated=True)
