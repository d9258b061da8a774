"""Reads a conversation from each form that clients send: JSON roots, turns with steps, typed history, a user message
with images. Writes roots and counts their tokens. Pure."""

import base64
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from google.protobuf import json_format

from caretway.cursor.wire import blobs
from caretway.cursor.wire.messages import pb

from .model_input import (
    IMAGE_TOKENS,
    InputCall,
    InputMessage,
    InputResult,
    InputText,
    Part,
    Picture,
    Piece,
    Role,
    Thought,
    estimate,
)

_DATA_URI: Final = re.compile(r"data:([^;,]*);base64,")


class HistoryError(ValueError):
    """A blob that should be a message and is malformed."""


# ---------------------------------------------------------------------------------------------- JSON root prompts


def read_root(data: bytes) -> InputMessage:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as broken:
        raise HistoryError(f"a root prompt message is not JSON: {broken}") from broken
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise HistoryError("a root prompt message has no role")
    content = value.get("content")
    return InputMessage(_role(value["role"]), tuple(_read_parts(content)))


def _role(role: str) -> Role:
    match role:
        case "system" | "developer":
            return "system"
        case "assistant":
            return "assistant"
        case "tool":
            return "tool"
        case _:
            return "user"


def _read_parts(content: Any) -> Iterator[Part]:
    if isinstance(content, str):
        if content:
            yield InputText(content)
        return
    for part in content if isinstance(content, list) else []:
        if isinstance(part, str):
            yield InputText(part)
        elif isinstance(part, dict):
            yield from _read_part(part)


def _read_part(part: dict[str, Any]) -> Iterator[Part]:
    call_id, name = str(part.get("toolCallId", "")), str(part.get("toolName", ""))
    match part.get("type"):
        case "text":
            yield InputText(str(part.get("text", "")))
        case "reasoning" | "thinking":
            yield Thought(str(part.get("text", "")))
        case "image" | "file":
            yield _picture(str(part.get("mimeType") or part.get("mediaType") or "image"), _as_text(part.get("image")))
        case "tool-call":
            args = part.get("args", part.get("input", {}))
            yield InputCall(call_id, name, args if isinstance(args, str) else _as_json(args))
        case "tool-result":
            result = part.get("result", part.get("output", ""))
            yield InputResult(call_id, name, _as_text(result), part.get("isError") is True)
        case _:
            pass


def _picture(mime_type: str, data: str) -> Picture:
    """An image from bare base64 or from a data URI; both forms of one image are equal."""
    found = _DATA_URI.match(data)
    return Picture(found[1] or mime_type, data[found.end() :]) if found else Picture(mime_type, data)


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _as_text(value: Any) -> str:
    """The text of a result: the result itself, its text parts, or its JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.get("type") in ("text", "error-text") and "value" in value:
        return str(value["value"])
    if isinstance(value, list) and all(isinstance(item, dict) and item.get("type") == "text" for item in value):
        return "\n".join(str(item.get("text", "")) for item in value)
    return _as_json(value)


def write_root(message: InputMessage) -> bytes:
    """A message as the JSON blob that the state keeps."""
    if message.role == "system":
        return blobs.write_message("system", message.text)
    return blobs.write_message(message.role, [_write_part(part) for part in message.parts])


def _write_part(part: Part) -> dict[str, Any]:
    match part:
        case InputText(text):
            return blobs.text_part(text)
        case Thought(text):
            return {"type": "reasoning", "text": text}
        case Picture(mime_type, data):
            return {"type": "image", "mediaType": mime_type, "image": f"data:{mime_type};base64,{data}" if data else ""}
        case InputCall(call_id, name, args):
            return blobs.tool_call_part(call_id, name, _parse_args(args))
        case InputResult(call_id, name, text, is_error):
            return blobs.tool_result_part(call_id, name, text, is_error=is_error)


def _parse_args(args: str) -> Any:
    try:
        return msgspec.json.decode(args) if args else {}
    except msgspec.DecodeError:
        return args  # another client's history is kept as written


# ---------------------------------------------------------------------------------------------- protobuf forms


def read_user(user: pb.UserMessage) -> InputMessage:
    parts: list[Part] = [InputText(user.text)] if user.text else []
    context = user.selected_context
    parts.extend(InputText(text) for text in context.extra_context)
    parts.extend(InputText(f"{file.path}\n{file.content}") for file in context.files)
    for image in context.selected_images:
        data = image.data or image.blob_id_with_data.data
        parts.append(Picture(image.mime_type or "image", base64.b64encode(data).decode()))
    return InputMessage("user", tuple(parts))


def read_typed(history: pb.ConversationHistory) -> Iterator[InputMessage]:
    for message in history.messages:
        match message.WhichOneof("message"):
            case "user":
                yield InputMessage("user", tuple(_typed_content(message.user.content)))
            case "assistant":
                yield InputMessage("assistant", tuple(_typed_assistant(message.assistant)))
            case "tool":
                tool = message.tool
                text = "\n".join(part.text for part in _typed_content(tool.content) if isinstance(part, InputText))
                result = InputResult(tool.tool_call_id, tool.tool_name, text, tool.is_error)
                yield InputMessage("tool", (result,))
            case _:
                pass


def _typed_content(
    content: Sequence[pb.ConversationHistoryUserContent] | Sequence[pb.ConversationHistoryToolResultContent],
) -> Iterator[InputText | Picture]:
    for part in content:
        if part.HasField("text"):
            yield InputText(part.text.text)
        elif part.HasField("image"):
            yield Picture(part.image.mime_type or "image", part.image.data)


def _typed_assistant(message: pb.ConversationHistoryAssistantMessage) -> Iterator[Part]:
    for part in message.content:
        match part.WhichOneof("content"):
            case "text":
                yield InputText(part.text.text)
            case "reasoning":
                yield Thought(part.reasoning.text)
            case "tool_call":
                call = part.tool_call
                yield InputCall(call.tool_call_id, call.tool_name, call.args_json)
            case _:
                pass


def read_turn(user: pb.UserMessage, steps: Sequence[pb.ConversationStep]) -> Iterator[InputMessage]:
    """The messages of one turn, for a state with turns but no root prompts."""
    yield read_user(user)
    for step in steps:
        match step.WhichOneof("message"):
            case "assistant_message":
                yield InputMessage("assistant", (InputText(step.assistant_message.text),))
            case "thinking_message":
                yield InputMessage("assistant", (Thought(step.thinking_message.text),))
            case "tool_call":
                yield from _read_step_call(step.tool_call)
            case _:
                pass


def _read_step_call(call: pb.ToolCall) -> Iterator[InputMessage]:
    kind = call.WhichOneof("tool")
    if kind is None:
        return
    name, args, result = kind.removesuffix("_tool_call"), "{}", ""
    if kind == "mcp_tool_call":
        mcp = call.mcp_tool_call
        name = mcp.args.tool_name or mcp.args.name
        values = {key: json_format.MessageToDict(value) for key, value in mcp.args.args.items()}
        args = _as_json(values)
        result = "\n".join(item.text.text for item in mcp.result.success.content)
    yield InputMessage("assistant", (InputCall(call.tool_call_id, name, args),))
    yield InputMessage("tool", (InputResult(call.tool_call_id, name, result),))


# ---------------------------------------------------------------------------------------------- token counting


def piece(message: InputMessage) -> Piece:
    """A message as a piece of a prompt, without call ids: the model does not read them."""
    words: list[str] = [message.role]
    tokens = 1
    for part in message.parts:
        match part:
            case InputText(text) | Thought(text):
                words.append(f"{type(part).__name__}:{text}")
                tokens += estimate(text)
            case Picture(mime_type, data):
                words.append(f"Picture:{mime_type}:{data}")
                tokens += IMAGE_TOKENS
            case InputCall(_, name, args):
                canonical = _as_json(_parse_args(args))
                words.append(f"InputCall:{name}:{canonical}")
                tokens += estimate(name) + estimate(canonical)
            case InputResult(_, name, text, is_error):
                words.append(f"InputResult:{name}:{is_error}:{text}")
                tokens += estimate(text)
    return Piece("\x00".join(words), tokens)
