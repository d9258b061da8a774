"""What an MCP server with a client's tools answers: initialize, ping, the list of tools, a call; what it refuses. Pure;
no HTTP, and no waiting for results.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...core.request import Image, Text, ToolResult, ToolSpec

SERVER: Final = "caretway"
"""The name under which the program knows the server."""
NEWEST: Final = "2025-11-25"
SPOKEN: Final = ("2024-11-05", "2025-03-26", "2025-06-18", NEWEST)
INVALID: Final = -32600
NO_METHOD: Final = -32601
BAD_PARAMETERS: Final = -32602

Answer = dict[str, Any]
"""The result of a call, as MCP has it: `{"content": [...], "isError": bool}`."""


@dataclass(frozen=True, slots=True)
class McpUse:
    """The model wants a tool."""

    id: object
    """Of the message that asks for it."""
    name: str
    arguments: Mapping[str, Any]
    progress: object = None
    """Signs of life are to be sent under this name, if it is not None."""


def listed_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    return [{"name": tool.name, "description": tool.description, "inputSchema": _schema(tool.schema)} for tool in tools]


def _schema(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """MCP wants an object."""
    return parameters if parameters.get("type") == "object" else {"type": "object", **parameters}


def reply(message: object, tools: Sequence[Mapping[str, Any]], version: str) -> Mapping[str, Any] | McpUse | None:
    """The message to send back; the call that is to be waited for; None: nothing is to be said."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return error(None, INVALID, "This is no message of JSON-RPC 2.0.")
    number, method = message.get("id"), message.get("method")
    if number is None or not isinstance(method, str):
        return None  # a notification, or an answer to nothing
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    match method:
        case "initialize":
            asked = params.get("protocolVersion")
            return result(
                number,
                {
                    "protocolVersion": asked if asked in SPOKEN else NEWEST,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": SERVER, "version": version},
                    "instructions": "These tools run where the user works. Use them for commands, files and searches.",
                },
            )
        case "ping":
            return result(number, {})
        case "tools/list":
            return result(number, {"tools": list(tools)})
        case "tools/call":
            name, arguments = params.get("name"), params.get("arguments") or {}
            if not isinstance(name, str) or not isinstance(arguments, dict):
                return error(number, BAD_PARAMETERS, "A call has a name and arguments.")
            meta = params.get("_meta")
            return McpUse(number, name, arguments, meta.get("progressToken") if isinstance(meta, dict) else None)
        case _:
            return error(number, NO_METHOD, f"{method} is not offered by this server.")


def result(number: object, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": value}


def error(number: object, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}


def progress(token: object, count: int) -> dict[str, Any]:
    params = {"progressToken": token, "progress": count}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def tool_answer(given: ToolResult, extra: Sequence[Text] = ()) -> Answer:
    """A client's result. What the user said beside it follows, marked as such."""
    content: list[dict[str, Any]] = []
    for part in given.content:
        match part:
            case Text(text=text):
                content.append({"type": "text", "text": text})
            case Image(data=data, mime_type=kind):
                content.append({"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind})
    content += [{"type": "text", "text": f"The user says: {said.text}"} for said in extra]
    return {"content": content or [{"type": "text", "text": ""}], "isError": given.is_error}


def refusal(reason: str) -> Answer:
    return {"content": [{"type": "text", "text": reason}], "isError": True}
