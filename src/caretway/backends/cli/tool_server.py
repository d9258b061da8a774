"""The loopback MCP server through which cursor-agent calls a client's tools: one unguessable address for each turn and
a body limit. A call waits as a coroutine, sends progress messages, and is cancelled if the program disconnects.

It implements a part of Streamable HTTP: a POST is answered with one JSON message, and a tool call, which may wait for
minutes, with an event stream that ends with the result.
"""

import asyncio
import base64
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import h11
import msgspec

from ...core.request import Image, Text, ToolResult, ToolSpec, added_words
from ...processes.tasks import spawn

# ---- Answers of an MCP server with a client's tools: initialize, ping, the list of tools, calls, errors. Pure: no
# HTTP, and no waiting for results.

SERVER: Final = "caretway"
"""The server's name in the program."""
NEWEST: Final = "2025-11-25"
SPOKEN: Final = ("2024-11-05", "2025-03-26", "2025-06-18", NEWEST)
INVALID: Final = -32600
NO_METHOD: Final = -32601
BAD_PARAMETERS: Final = -32602

Answer = dict[str, Any]
"""The result of a call in MCP's form: `{"content": [...], "isError": bool}`."""


@dataclass(frozen=True, slots=True)
class McpUse:
    """The model's call of a tool."""

    id: object
    """The id of the request."""
    name: str
    arguments: Mapping[str, Any]
    progress: object = None
    """The token for progress messages, if it is not None."""


def listed_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    return [{"name": tool.name, "description": tool.description, "inputSchema": _schema(tool.schema)} for tool in tools]


def _schema(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """The schema with the type `object`, which MCP requires."""
    return parameters if parameters.get("type") == "object" else {"type": "object", **parameters}


def reply(message: object, tools: Sequence[Mapping[str, Any]], version: str) -> Mapping[str, Any] | McpUse | None:
    """The message to send back, or the call to run, or None if the message needs no answer."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return error(None, INVALID, "This is no message of JSON-RPC 2.0.")
    number, method = message.get("id"), message.get("method")
    if number is None or not isinstance(method, str):
        return None  # a notification, or an unexpected answer
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
    """A client's result as an answer, followed by the words that came with the result."""
    content: list[dict[str, Any]] = []
    for part in given.content:
        match part:
            case Text(text=text):
                content.append({"type": "text", "text": text})
            case Image(data=data, mime_type=kind):
                content.append({"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind})
    if extra:
        content.append({"type": "text", "text": added_words(extra).text})
    return {"content": content or [{"type": "text", "text": ""}], "isError": given.is_error}


def refusal(reason: str) -> Answer:
    return {"content": [{"type": "text", "text": reason}], "isError": True}


log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 16 * 2**20
SIGN_OF_LIFE_S: Final = 10.0
"""Seconds between progress messages: MCP clients give up after a minute without a message."""
_CHUNK: Final = 65536
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


class OfferingTurn(Protocol):
    """The turn whose tools are offered at one address."""

    tools: Sequence[Mapping[str, Any]]

    def listed(self) -> None:
        """Called when the program has listed the tools."""

    async def called(self, use: McpUse) -> Answer:
        """Run a call without a time limit. Cancelled when the program no longer wants the result."""
        ...


class ToolServer:
    def __init__(self, version: str, *, sign_of_life: float = SIGN_OF_LIFE_S) -> None:
        self._version = version
        self._sign_of_life = sign_of_life
        self._turns: dict[str, OfferingTurn] = {}
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self, turn: OfferingTurn) -> str:
        """Offer this turn's tools. Returns their address."""
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)
        path = f"/{secrets.token_urlsafe(24)}/mcp"
        self._turns[path] = turn
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{path}"

    def close(self, url: str) -> None:
        self._turns.pop(url[url.index("/", len("http://")) :], None)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections):
                writer.transport.abort()
            await self._server.wait_closed()

    # ---- a connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            connection = h11.Connection(h11.SERVER)
            while (asked := await _read(connection, reader, writer)) is not None:
                if not await self._answer(asked, connection, reader, writer):
                    return
                await writer.drain()
                if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                    return
                connection.start_next_cycle()
        except (OSError, h11.ProtocolError) as broken:
            log.debug("a connection of cursor-agent's MCP client broke: %s", broken)
        finally:
            self._connections.discard(writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(
        self,
        asked: tuple[h11.Request, bytes],
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request. Returns False if the connection must be closed."""
        request, body = asked
        turn = self._turns.get(request.target.decode("latin-1"))
        if turn is None:
            return _send(connection, writer, 404, {"error": "Not found."})
        if request.method != b"POST":
            return _send(connection, writer, 405, {"error": "Send POST."}, (("allow", "POST"),))
        try:
            message = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        said = reply(message, turn.tools, self._version)
        if said is None:
            return _send(connection, writer, 202, None)
        if not isinstance(said, McpUse):
            if isinstance(message, dict) and message.get("method") == "tools/list":
                turn.listed()
            return _send(connection, writer, 200, said)
        return await self._call(turn, said, connection, reader, writer)

    async def _call(
        self,
        turn: OfferingTurn,
        use: McpUse,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        headers = [("content-type", _EVENTS), ("cache-control", "no-cache"), ("transfer-encoding", "chunked")]
        writer.write(connection.send(h11.Response(status_code=200, headers=headers)) or b"")
        waiting = spawn(turn.called(use), "cursor-agent-tool")
        listening = spawn(_hung_up(reader), "cursor-agent-tool-hang-up")
        signs = 0
        try:
            while not waiting.done():
                await asyncio.wait(
                    {waiting, listening}, timeout=self._sign_of_life, return_when=asyncio.FIRST_COMPLETED
                )
                if listening.done() and not waiting.done():
                    return False
                if not waiting.done():
                    signs += 1
                    data = b": waiting\n\n" if use.progress is None else _event(progress(use.progress, signs))
                    writer.write(connection.send(h11.Data(data=data)) or b"")
            if waiting.cancelled():
                return False  # the turn is over
            for event in (h11.Data(data=_event(result(use.id, waiting.result()))), h11.EndOfMessage()):
                writer.write(connection.send(event) or b"")
            return not listening.done()
        finally:
            waiting.cancel()
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening  # the stream allows one reader at a time


async def _hung_up(reader: asyncio.StreamReader) -> None:
    """Wait until the client disconnects, or sends data, which it may not do before the answer is complete."""
    with suppress(OSError):
        await reader.read(1)


def _event(message: Mapping[str, Any]) -> bytes:
    return b"event: message\ndata: %b\n\n" % msgspec.json.encode(message)


def _send(
    connection: h11.Connection,
    writer: asyncio.StreamWriter,
    status: int,
    value: Mapping[str, Any] | None,
    headers: Sequence[tuple[str, str]] = (),
) -> bool:
    data = msgspec.json.encode(value) if value is not None else b""
    head = h11.Response(
        status_code=status, headers=[("content-type", _JSON), ("content-length", str(len(data))), *headers]
    )
    for event in (head, h11.Data(data=data), h11.EndOfMessage()):
        writer.write(connection.send(event) or b"")
    return True


async def _read(
    connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[h11.Request, bytes] | None:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    going = h11.InformationalResponse(status_code=100, headers=[])
                    writer.write(connection.send(going) or b"")
                connection.receive_data(await reader.read(_CHUNK))
            case h11.Request() as request:
                pass
            case h11.Data(data=data):
                body += data
                if len(body) > MAX_BODY_BYTES:
                    raise h11.RemoteProtocolError("the body is too large")
            case h11.EndOfMessage():
                assert request is not None
                return request, bytes(body)
            case _:  # closed, or an unexpected event
                return None
