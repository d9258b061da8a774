"""Token counts for when nobody else counts: four characters a token, and always marked as an estimate."""

from typing import Final

from .events import Usage
from .request import Image, Reasoning, Text, ToolCall, ToolResult, TurnRequest

CHARS_PER_TOKEN: Final = 4
TOOL_CHARS: Final = 200
"""What a tool's schema adds to its description, roughly."""


def prompt_chars(request: TurnRequest) -> int:
    count = sum(len(tool.description) + TOOL_CHARS for tool in request.tools)
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text(text=text) | Reasoning(text=text):
                    count += len(text)
                case ToolCall(arguments=arguments):
                    count += len(arguments)
                case ToolResult():
                    count += len(part.text)
                case Image():
                    pass
    return count


def estimated_usage(request: TurnRequest, said: str) -> Usage:
    spent, given = prompt_chars(request) // CHARS_PER_TOKEN, len(said) // CHARS_PER_TOKEN
    return Usage(max(1, spent), max(1, given), estimated=True)
