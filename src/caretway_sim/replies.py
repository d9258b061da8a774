"""The simulator's unary answers: JSON or protobuf as the request was, statuses of errors, period usage, NameAgent,
broken bodies, 415 for a wrong content type."""

from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from caretway.cursor.wire import paths
from caretway.cursor.wire.errors import ConnectError, write_unary
from caretway.cursor.wire.messages import pb

from . import faults, models
from .exchange import Request

_STATUS: Final = {"unauthenticated": 401, "unimplemented": 404, "invalid_argument": 400, "permission_denied": 403}

Reply = tuple[int, str, bytes]


class BrokenBody(ValueError):
    """A request body that cannot be read."""


def as_json(status: int, value: Any) -> Reply:
    return status, paths.JSON_TYPE, msgspec.json.encode(value)


def as_error(error: ConnectError) -> Reply:
    return _STATUS.get(error.code, 500), paths.JSON_TYPE, write_unary(error)


def as_message(request: Request, message: Message) -> Reply:
    """In protobuf or in JSON, as the request was."""
    if request.content_type == paths.JSON_TYPE:
        return 200, paths.JSON_TYPE, json_format.MessageToJson(message, indent=None).encode()
    return 200, paths.UNARY_TYPE, message.SerializeToString()


def empty(request: Request, _: bytes) -> Reply:
    is_json = request.content_type == paths.JSON_TYPE
    return (200, paths.JSON_TYPE, b"{}") if is_json else (200, paths.UNARY_TYPE, b"")


def unknown(request: Request) -> Reply:
    if request.content_type.startswith("application/") and request.path.count("/") == 2 and "." in request.path:
        return as_error(faults.unimplemented(request.path))
    return as_json(404, {"error": f"{request.method} {request.path} is not simulated"})


def as_tokens(tokens: dict[str, str] | None) -> Reply:
    return as_json(401, {"error": "the key is not accepted"}) if tokens is None else as_json(200, tokens)


def as_grant(tokens: dict[str, str] | None) -> Reply:
    """The OAuth endpoint says it in a 200 that a refresh token is over."""
    if tokens is None:
        return as_json(200, {"access_token": "", "id_token": "", "shouldLogout": True})
    given = {"access_token": tokens["accessToken"], "id_token": tokens["accessToken"], "shouldLogout": False}
    return as_json(200, given | ({"refresh_token": tokens["refreshToken"]} if "refreshToken" in tokens else {}))


def read_query(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.query).items()}


def read_object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError as broken:
        raise BrokenBody(f"the body is not JSON: {broken}") from broken
    if not isinstance(value, dict):
        raise BrokenBody("the body is not a JSON object")
    return value


def read_text(body: bytes, name: str) -> str:
    value = read_object(body).get(name)
    return value if isinstance(value, str) else ""


def available_models(request: Request, _: bytes) -> Reply:
    if request.content_type != paths.UNARY_TYPE:
        return 415, "text/plain", b"expected application/proto\n"
    return 200, paths.UNARY_TYPE, models.available().SerializeToString()


def name_agent(request: Request, body: bytes) -> Reply:
    try:
        if request.content_type == paths.JSON_TYPE:
            said = str(read_object(body).get("userMessage", ""))
        else:
            said = pb.NameAgentRequest.FromString(body).user_message
    except DecodeError as broken:
        raise BrokenBody("the body is not a NameAgentRequest") from broken
    return as_message(request, pb.NameAgentResponse(name=" ".join(said.split()[:4]) or "Simulated chat"))
