"""Rewrites a client's history for Cursor, as JSON roots or typed fields: hashes foreign call ids, writes results
without a call as text, moves images of results to a user message, keeps broken arguments as text. Pure.

Cursor refuses a whole run for one id of another maker, for a result without its call, and for an unexpected image. An
id is always rewritten in the same way. Model makers refuse calls without a result and empty messages: such calls get a
result that says so, and empty messages are left out.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from ...core.json_bounds import crowded
from ...core.request import Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from ...cursor.wire.blobs import image_part, text_part, tool_call_part, tool_result_part, write_message
from ...cursor.wire.messages import pb

_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ORPHAN: Final = "[Result of an earlier tool call]"
FAILED_ORPHAN: Final = "[Error of an earlier tool call]"
PICTURES: Final = "[Pictures from the tool results above]"
_NOTHING: Final = Text("")
NO_RESULT: Final = "[No result: the call was given up]"


def plain_id(call_id: str) -> str:
    """The id if it has at most 64 letters, digits, `_` and `-`; otherwise an id made from its hash."""
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='surrogatepass')).hexdigest()[:32]}"


def sendable(history: Sequence[Message]) -> list[Message]:
    """The history with ids, results and images as Cursor accepts them. Correct messages stay as they are."""
    made: list[Message] = []
    called: dict[str, None] = {}  # calls without a result so far
    orphaned: list[Part] = []  # held until the end of the step, because nothing may separate its results
    for message in history:
        if message.role is not Role.TOOL:
            _end_step(made, called, orphaned)
        parts = [_sendable(part, called, orphaned) for part in message.parts]
        kept = tuple(part for part in parts if part is not None)
        if not any(map(_says_something, kept)):
            continue
        if len(kept) == len(parts) and all(map(_same, kept, message.parts)):
            made.append(message)
        else:
            made.append(Message(message.role, kept))
    _end_step(made, called, orphaned)
    return made


def _end_step(made: list[Message], called: dict[str, None], orphaned: list[Part]) -> None:
    if called:
        given_up = [ToolResult(plain_id(call), (Text(NO_RESULT),), is_error=True) for call in called]
        made.append(Message(Role.TOOL, tuple(given_up)))
        called.clear()
    if orphaned:
        made.append(Message(Role.USER, tuple(orphaned)))
        orphaned.clear()


def _says_something(part: Part) -> bool:
    return not isinstance(part, Reasoning) and part != _NOTHING


def _same(one: object, other: object) -> bool:
    return one is other


def _sendable(part: Part, called: dict[str, None], orphaned: list[Part]) -> Part | None:
    """The part as Cursor accepts it; None if the part moves to another message."""
    match part:
        case ToolCall(id=call, name=name, arguments=arguments):
            called[call] = None
            return part if (plain := plain_id(call)) == call else ToolCall(plain, name, arguments)
        case ToolResult(call_id=call, content=content, is_error=failed):
            pictures = [one for one in content if isinstance(one, Image)]
            if call not in called:
                said = f"{FAILED_ORPHAN if failed else ORPHAN}\n{result_text(part)}"
                orphaned += [Text(f"\n\n{said}" if orphaned else said), *pictures]
                return None
            del called[call]  # a second result of the call is an orphan
            if pictures:
                orphaned += [Text(f"\n\n{PICTURES}" if orphaned else PICTURES), *pictures]
            elif (plain := plain_id(call)) == call:
                return part
            return ToolResult(plain_id(call), tuple(_texts(content)), failed)
        case _:
            return part


def _texts(content: Iterable[Text | Image]) -> list[Text]:
    return [one for one in content if isinstance(one, Text)]


def root_messages(history: Sequence[Message], prefix: str = "") -> list[bytes]:
    """One JSON message for each message of a sendable history. `prefix` is added to the names of tools."""
    names: dict[str, str] = {}
    written: list[bytes] = []
    for message in history:
        parts: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text(text=text):
                    if text:
                        parts.append(text_part(text))
                case Image(data=data, mime_type=mime_type):
                    parts.append(image_part(mime_type, base64.b64encode(data).decode()))
                case ToolCall(id=call, name=name, arguments=arguments):
                    names[call] = prefix + name
                    parts.append(tool_call_part(call, names[call], read_arguments(arguments)))
                case ToolResult(call_id=call, is_error=failed):
                    parts.append(tool_result_part(call, names.get(call, ""), result_text(part), is_error=failed))
                case Reasoning():
                    pass  # a client's copy of old thinking has no signature Cursor would accept
        written.append(write_message(message.role.value, parts))
    return written


def typed_history(history: Sequence[Message]) -> pb.ConversationHistory:
    """The history in the typed fields of newer clients; unverified against the real service."""
    typed = pb.ConversationHistory()
    names: dict[str, str] = {}
    for message in history:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
        match message.role:
            case Role.USER:
                user = typed.messages.add().user
                for part in message.parts:
                    if isinstance(part, Text):
                        user.content.add().text.text = part.text
                    elif isinstance(part, Image):
                        image = user.content.add().image
                        image.data, image.mime_type = base64.b64encode(part.data).decode(), part.mime_type
            case Role.ASSISTANT:
                assistant = typed.messages.add().assistant
                for part in message.parts:
                    if isinstance(part, Text):
                        assistant.content.add().text.text = part.text
                    elif isinstance(part, ToolCall):
                        call = assistant.content.add().tool_call
                        call.tool_call_id, call.tool_name, call.args_json = part.id, part.name, part.arguments
            case Role.TOOL:
                for part in message.parts:
                    if isinstance(part, ToolResult):
                        tool = typed.messages.add().tool
                        tool.tool_call_id, tool.tool_name = part.call_id, names.get(part.call_id, "")
                        tool.is_error = part.is_error
                        tool.content.add().text.text = result_text(part)
    return typed


def read_arguments(arguments: str) -> Any:
    """The arguments of an earlier call as a value. Broken JSON, or JSON that would take long to read, stays text, so
    that it does not end the conversation."""
    if crowded(arguments):
        return arguments
    try:
        return msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return arguments


def result_text(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, Text))
