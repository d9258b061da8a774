"""Judges answers by the official SDKs' own types, strictly: a field that they do not know is a mistake, unless it is in
the list below; so are a missing field, another type, a value that no literal has. `watched_answers` brings the answers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, get_args

import anthropic.types as plain
import anthropic.types.beta as beta
import msgspec
from anthropic.types.shared import ErrorResponse
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import (
    CompactedResponse,
    Response,
    ResponseItemList,
    ResponsesServerEvent,
    ResponseStreamEvent,
)
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.shared import ErrorObject
from pydantic import BaseModel, TypeAdapter, ValidationError

from watched_answers import Told

OURS: Final = {
    "caretway": "what this gateway found out about the answer, and the run's own usage",
    "estimated": "in `usage`: the figures are our own count",
    "reasoning_content": "thinking in Chat Completions, under the name that clients look for",
    "details": "in an error of Anthropic's API: our code, the field, and whether asking again helps",
    "should_retry": "in an error: whether asking again helps; a stream has no header for it",
    "status": "in an error of OpenAI's APIs: the HTTP status, for a stream that has none; in a call of a custom tool, "
    "as OpenAI's own API does",
    "headers": "in a failed message of a WebSocket, beside the error: Codex looks for them there",
    "name": "in the end of a call's arguments: the types of older SDKs demand it",
    "tools": "in a response: what the client sent is repeated as it is, whatever it was",
    "annotations": "in a piece of Chat Completions: OpenAI's own search models send them there",
    "reason": "in an error: what Cursor said, where it named its reason",
    "store": "in a response: OpenAI's own API repeats it, its type does not have it",
}
"""Fields that are not in the SDKs' types, and why they are sent."""
OF_A_MODEL: Final = {
    *("name", "aliases", "stands_for", "reasoning", "input_modalities", "parameters"),
    *("context_window", "max_context_window"),
}
"""What else is told of a model in OpenAI's shape: clients look for some of it, and its own type has the id alone."""
APIS: Final = ("chat", "completions", "responses", "messages", "models")
"""Paths that also go without `/v1`."""
OF_OPENAI: Final = (["chat"], ["completions"], ["responses"])
EVENT_STREAM: Final = b"text/event-stream"
MAX_SHAPE: Final = 4096
"""Bytes of a shape that is remembered."""


FREE: Final = re.compile(
    rb'"(id|item_id|call_id|response_id|tool_use_id|message_id|delta|text|content|message|arguments|partial_json|thinking'
    rb'|reasoning_content|input|model|signature|encrypted_content)":"(?:[^"\\\\]|\\\\.)*"'
)
COUNTED: Final = re.compile(rb":\d+(?=[,}])")


def mistakes(answers: Sequence[Told]) -> Iterator[str]:
    for answer in answers:
        where = f"{answer.path} {answer.status or 'message'}"
        if answer.message:
            yield from _judged(where, message_type(answer.pieces[0]), answer.pieces[0])
            continue
        data = b"".join(answer.pieces)
        answer.beta = answer.beta or b'"compaction' in data  # such blocks are in the beta's types alone
        if answer.kind.startswith(EVENT_STREAM):
            for block in data.decode().split("\n\n")[:-1]:
                payload = block.rpartition("data: ")[2].encode()
                if payload and payload != b"[DONE]" and not block.startswith(":"):
                    yield from _judged(where, streamed_type(answer, payload), payload)
        elif answer.ended and data and b"json" in answer.kind:
            yield from _judged(where, whole_type(answer, data), data)


_passed: Final[set[tuple[int, bytes]]] = set()
"""What was right, by its type and its shape: the same with other words and numbers in it is right as well."""


def _judged(where: str, kind: Any, data: bytes) -> Iterator[str]:
    if kind is None:
        return
    shape = id(kind), COUNTED.sub(b":0", FREE.sub(rb'"\1":""', data))
    if shape in _passed:
        return
    try:
        _reader(kind).validate_json(_without_ours(data), strict=True, extra="forbid")
    except msgspec.DecodeError as wrong:
        yield f"{where}: no JSON: {wrong} in {data[:200]!r}"
    except ValidationError as wrong:
        for error in wrong.errors()[:5]:
            yield f"{where} {'.'.join(map(str, error['loc']))}: {error['msg']} in {data[:200]!r}"
    else:
        if len(shape[1]) < MAX_SHAPE:
            _passed.add(shape)


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _by_type(union: Any) -> Mapping[str, Any]:
    """The members of a union that are told apart by `type`, by its value: quicker, and mistakes are told of the right
    one."""
    members = [one for part in get_args(union) for one in get_args(part) or (part,) if hasattr(one, "model_fields")]
    return {get_args(one.model_fields["type"].annotation)[0]: one for one in members}


def _without_ours(data: bytes) -> bytes:
    return msgspec.json.encode(_cut(msgspec.json.decode(data), ""))


def _cut(value: Any, holder: str) -> Any:
    if isinstance(value, dict):
        if value.get("object") == "model":
            return {key: inner for key, inner in value.items() if key not in OF_A_MODEL}
        if value.get("object") == "response.compaction":  # its type knows messages of the assistant alone
            value = value | {"output": [item for item in value["output"] if item.get("role") != "user"]}
        if value.get("object") == "text_completion":  # its type has no word for a piece that is not the last
            value = value | {
                "choices": [one | {"finish_reason": one["finish_reason"] or "stop"} for one in value["choices"]]
            }
        # its codes are OpenAI's own list, and there are more reasons here
        if value.get("object") == "response" and value.get("error") is not None:
            value = value | {"error": {"code": "server_error", "message": value["error"]["message"]}}
        # Anthropic's documentation of errors has it, its type has not
        if holder == "error" and value.get("type") == "request_too_large":
            value = value | {"type": "invalid_request_error"}
        return {key: _cut(inner, key) for key, inner in value.items() if not _ours(key, holder, value)} | (
            {"tools": []} if "tools" in value else {}
        )
    return [_cut(one, holder) for one in value] if isinstance(value, list) else value


def _ours(key: str, holder: str, object_: Mapping[str, Any]) -> bool:
    kind = object_.get("type")
    match key:
        case "annotations":
            return holder == "delta"
        case "status":
            return holder == "error" or kind == "custom_tool_call"
        case "reason":
            return holder == "error"
        case "headers":
            return kind == "error" and holder == ""
        case "name":
            return kind == "response.function_call_arguments.done"
    return key in OURS


class OpenAIModels(BaseModel):
    """The SDKs read lists into pages of their own, which hold the connection too; this is what they read."""

    object: Literal["list"]
    data: list[Model]


class AnthropicModels(BaseModel):
    data: list[plain.ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None


class Deleted(BaseModel):
    """What OpenAI's API documents; its SDK does not read it."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class OpenAIFailure(BaseModel):
    """How every error of OpenAI's APIs is wrapped; the SDK has a type for what is inside."""

    error: ErrorObject


class Ping(BaseModel):
    """What Anthropic's API documents; its SDK reads over it."""

    type: Literal["ping"]


def message_type(data: bytes) -> Any:
    """Of a WebSocket."""
    return _by_type(ResponsesServerEvent).get(msgspec.json.decode(data)["type"], ResponsesServerEvent)


def streamed_type(answer: Told, data: bytes) -> Any:
    if data.startswith(b'{"error":'):
        return OpenAIFailure
    if answer.path.endswith("/messages") and data.startswith(b'{"type":"error"'):
        return ErrorResponse
    if answer.path.endswith("/messages") and data.startswith(b'{"type":"ping"'):
        return Ping
    match answer.path.removeprefix("/v1"):
        case "/chat/completions":
            return ChatCompletionChunk
        case "/completions":
            return Completion
        case "/responses":
            return _by_type(ResponseStreamEvent).get(msgspec.json.decode(data)["type"], ResponseStreamEvent)
        case "/messages":
            return beta.BetaRawMessageStreamEvent if answer.beta else plain.RawMessageStreamEvent
    return None


def whole_type(answer: Told, data: bytes) -> Any:
    path = answer.path.removeprefix("/v1")
    if answer.status >= 400:
        if not answer.path.startswith("/v1/") and path.split("/")[1:2] not in ([name] for name in APIS):
            return None
        owned = path.startswith("/messages") or (answer.anthropic and path.split("/")[1:2] not in OF_OPENAI)
        return ErrorResponse if owned else OpenAIFailure
    match path.split("/")[1:]:
        case ["chat", "completions"]:
            return ChatCompletion
        case ["completions"]:
            return Completion
        case ["responses", "compact"]:
            return CompactedResponse
        case ["responses", "input_tokens"]:
            return InputTokenCountResponse
        case ["responses", _, "input_items"]:
            return ResponseItemList
        case ["responses", _] if b'"deleted":' in data:
            return Deleted
        case ["responses"] | ["responses", _] | ["responses", _, "cancel"]:
            return Response
        case ["messages"]:
            return beta.BetaMessage if answer.beta else plain.Message
        case ["messages", "count_tokens"]:
            return beta.BetaMessageTokensCount if answer.beta else plain.MessageTokensCount
        case ["models"]:
            return AnthropicModels if answer.anthropic else OpenAIModels
        case ["models", _]:
            return plain.ModelInfo if answer.anthropic else Model
    return None
