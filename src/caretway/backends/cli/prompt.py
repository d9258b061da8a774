"""A request's messages as one prompt text with role heads (`System:`, `User:`): lines of others that look like a head
get a backslash (prompt injection). Images go beside it; a continued chat gets only what is new. Pure.

A single message of the user travels as it is. Calls and results have become text before they come here
(`text_protocol`); what is left of them is told in so many words.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...core.request import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult

_HEADS: Final = {
    Role.SYSTEM: "System: ",
    Role.USER: "User: ",
    Role.ASSISTANT: "Assistant: ",
    Role.TOOL: "User: ",
}
_ROLE_HEAD: Final = re.compile(r"^(?=\\*(?:System:|User:|Assistant:))", re.MULTILINE | re.IGNORECASE)
_ANY_HEAD: Final = re.compile(
    r"^(?=\\*(?:System:|User:|Assistant:|\[Tool result for |\[Called tool: ))", re.MULTILINE | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    images: tuple[Image, ...] = ()


def render(messages: Sequence[Message]) -> Prompt:
    images = tuple(part for message in messages for part in _pictures(message))
    if len(messages) == 1 and messages[0].role is Role.USER:
        return Prompt(messages[0].text, images)
    blocks = (_HEADS[message.role] + text for message in messages if (text := _text(message)))
    return Prompt("\n\n".join(blocks), images)


def tail(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What was said after the last answer: all that a chat which knows the rest needs to hear."""
    answered = max((n for n, message in enumerate(messages, 1) if message.role is Role.ASSISTANT), default=0)
    return tuple(messages[answered:])


def _pictures(message: Message) -> tuple[Image, ...]:
    found: list[Image] = []
    for part in message.parts:
        if isinstance(part, Image):
            found.append(part)
        elif isinstance(part, ToolResult):
            found += [inner for inner in part.content if isinstance(inner, Image)]
    return tuple(found)


def _text(message: Message) -> str:
    pieces: list[str] = []
    backslash = r"\\"
    head = _ROLE_HEAD if message.role is Role.ASSISTANT else _ANY_HEAD  # an answer's own calls stand in its text
    for part in message.parts:
        match part:
            case Text(text=text):
                pieces.append(head.sub(backslash, text))
            case ToolCall(name=name, arguments=arguments):
                pieces.append(f"\n[Called tool: {name}({arguments})]")
            case ToolResult(call_id=call):
                pieces.append(f"\n[Tool result for {call}]: {_ANY_HEAD.sub(backslash, part.text)}")
            case Image():
                pieces.append("[image]")
            case Reasoning():
                pass
    return "".join(pieces).strip("\n")
