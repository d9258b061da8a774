"""Cursor's limits for one run: 330 tools in 120,000 bytes, and 1 MiB in the newest message; larger requests are refused
before sending. In a history with over 192 messages the oldest are joined into blocks. Pure.

Cursor answers a larger request late, with `invalid_argument` and no reason, so the gateway reports the limit itself.
A block depends only on its own messages and earlier messages, so it stays equal while the history grows, and Cursor's
cache stays warm.
"""

from collections.abc import Sequence
from itertools import chain, groupby
from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ...core.request import Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from ...cursor.transport.refusals import is_own

MAX_TOOLS: Final = 330
MAX_TOOL_BYTES: Final = 120_000
MAX_MESSAGE_BYTES: Final = 15 * 1024 * 1024
"""The default limit of one message, with images as base64."""
MAX_USER_BYTES: Final = 1024 * 1024
MAX_ROOTS: Final = 192
"""Messages of a history. All models except Cursor's own refused more than 207."""
KEPT: Final = 64
"""At least this many of the newest messages stay unchanged."""
BLOCK: Final = 64
BLOCK_BYTES: Final = 256 * 1024
"""A block ends with the message that reaches `BLOCK` messages or `BLOCK_BYTES`. Too many blocks are joined further."""
_ANYWAY: Final = "`--agent-quirks limits=false` sends it as it is."
_OPENED: Final = "[Earlier messages of this conversation]"
_CLOSED: Final = "[End of the earlier messages]"


def check_tools(count: int, size: int) -> None:
    """Refuse too many or too large tools. `size`: the bytes of all tools as sent."""
    if count <= MAX_TOOLS and size <= MAX_TOOL_BYTES:
        return
    raise GatewayError(
        ErrorKind.BAD_REQUEST,
        f"The request offers {count} tools of {size:,} bytes; Cursor takes {MAX_TOOLS} of {MAX_TOOL_BYTES:,} bytes.",
        hint="Offer fewer tools (MCP servers' tools count, too) or shorten their texts; Claude Code sends fewer with "
        f"ENABLE_TOOL_SEARCH=true. {_ANYWAY}",
        param="tools",
        code="too_many_tools",
    )


def check_user_text(text: str) -> None:
    """Refuse a newest user message that is too large. Earlier messages are stored as separate blobs."""
    if len(text) * 4 <= MAX_USER_BYTES:
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_USER_BYTES:
        raise GatewayError(
            ErrorKind.TOO_LARGE,
            f"The newest user message has {size} bytes of text; Cursor takes {MAX_USER_BYTES} in one message.",
            hint=f"Send less at a time, or let the model read it with a tool. {_ANYWAY}",
            param="messages",
            code="message_too_large",
        )


def fit_history(history: Sequence[Message], model: str) -> Sequence[Message]:
    """The history in at most MAX_ROOTS messages, if the model needs that."""
    if len(history) <= MAX_ROOTS or is_own(model):
        return history
    history = _results_together(history)
    if len(history) <= MAX_ROOTS:
        return history
    ends = _ends(history)
    together = 1
    while len(ends) // together + len(ends) % together + len(history) - ends[-1] > MAX_ROOTS and together < len(ends):
        together *= 2
    return _in_blocks(history, [*ends[together - 1 :: together], *ends[len(ends) - len(ends) % together :]])


def _results_together(history: Sequence[Message]) -> list[Message]:
    """The history with adjacent tool messages joined, which loses nothing."""
    together: list[Message] = []
    for role, beside in groupby(history, lambda message: message.role):
        if role is Role.TOOL:
            together.append(Message(role, tuple(chain.from_iterable(message.parts for message in beside))))
        else:
            together.extend(beside)
    return together


def _ends(history: Sequence[Message]) -> list[int]:
    """The ends of the blocks, with KEPT messages after the last block; [0] if there is no block. No block ends before
    a tool's result, which would lose its call."""
    ends: list[int] = []
    start = there = 0
    for number, message in enumerate(history[:-KEPT], 1):
        there += _size(message)
        if (number - start >= BLOCK or there >= BLOCK_BYTES) and history[number].role is not Role.TOOL:
            ends.append(number)
            start, there = number, 0
    return ends or [0]


def _in_blocks(history: Sequence[Message], ends: Sequence[int]) -> list[Message]:
    fitted: list[Message] = []
    names: dict[str, str] = {}
    start = 0
    for end in ends:
        if end > start:
            fitted.append(_as_one_message(history[start:end], names))
        start = end
    return [*fitted, *history[start:]]


def _size(message: Message) -> int:
    return sum(map(_part_size, message.parts))


def _part_size(part: Part) -> int:
    match part:
        case Text(text=text):
            return len(text)
        case Image(data=data):
            return len(data) * 4 // 3
        case ToolCall(arguments=arguments):
            return len(arguments)
        case ToolResult(content=content):
            return sum(map(_part_size, content))
        case Reasoning():
            return 0


def _as_one_message(messages: Sequence[Message], names: dict[str, str]) -> Message:
    """One user message with the text of all messages. Images stay in place."""
    if len(messages) == 1:
        for part in messages[0].parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
        return messages[0]
    parts: list[Part] = [Text(_OPENED)]
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text=text) if text:
                    parts.append(Text(f"\n\n{message.role.value}: {text}"))
                case Image():
                    parts.append(part)
                case ToolCall(id=call, name=name, arguments=arguments):
                    names[call] = name
                    parts.append(Text(f"\n\n{message.role.value} called {name} with {arguments or '{}'}"))
                case ToolResult(call_id=call, content=content, is_error=failed):
                    what = "error" if failed else "result"
                    parts.append(Text(f"\n\n{what} of {names.get(call, 'a tool')}: "))
                    parts.extend(content)
                case Text() | Reasoning():
                    pass
    parts.append(Text(f"\n\n{_CLOSED}"))
    return Message(Role.USER, _joined(parts))


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts, with adjacent texts joined."""
    joined: list[Part] = []
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
            continue
        if texts:
            joined.append(Text("".join(texts)))
            texts = []
        joined.append(part)
    return (*joined, Text("".join(texts))) if texts else tuple(joined)
