"""The loopback HTTP server that the SDK's bridge calls for custom tools: bearer token, body limit, parked calls without
a thread each, a call cancelled when the bridge hangs up.

The SDK brings one of its own, which keeps a thread for each call that waits. A parked call may wait for a quarter of an
hour, and there may be hundreds: here it is a coroutine and a socket. The service is the one that the SDK's package
describes (`sdk.v1.SdkCustomToolCallbackService`): one unary Connect call with JSON on both sides.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import h11
import msgspec

from ...tasks import spawn

log = logging.getLogger(__name__)

PATH: Final = "/sdk.v1.SdkCustomToolCallbackService/CallCustomTool"
JSON_TYPE: Final = "application/json"
_CHUNK: Final = 65536

ToolAnswer = dict[str, Any]
"""`{"content": [...], "isError": bool}`, as MCP has it."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """The model wants a tool."""

    agent_id: str
    tool: str
    arguments: str
    call_id: str
    """Empty when the bridge gave none."""


Handler = Callable[[Invocation], Awaitable[ToolAnswer]]


class BadCallback(Exception):
    """Answered with an HTTP status; nobody but the bridge sees it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def read_call(method: str, target: str, headers: dict[str, str], body: bytes, token: str) -> Invocation:
    if method != "POST" or target != PATH:
        raise BadCallback(404, "not_found", "There is nothing here.")
    if not secrets.compare_digest(headers.get("authorization", "").encode(), f"Bearer {token}".encode()):
        raise BadCallback(401, "unauthenticated", "The token is not the one that was agreed on.")
    try:
        asked = msgspec.json.decode(body)
        arguments = asked.get("args") or {}
        agent_id, tool, call_id = asked["agentId"], asked["toolName"], asked.get("toolCallId") or ""
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, KeyError) as broken:
        raise BadCallback(400, "invalid_argument", f"This is no tool call: {broken}") from broken
    if not isinstance(arguments, dict) or not all(isinstance(text, str) for text in (agent_id, tool, call_id)):
        raise BadCallback(400, "invalid_argument", "This is no tool call.")
    return Invocation(agent_id, tool, msgspec.json.encode(arguments).decode(), call_id)


class CallbackServer:
    def __init__(self, *, max_body_bytes: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._max_body_bytes = max_body_bytes
        self._handlers: dict[str, Handler] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None, "start() comes first"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)

    def register(self, agent_id: str, handler: Handler) -> None:
        self._handlers[agent_id] = handler

    def unregister(self, agent_id: str) -> None:
        self._handlers.pop(agent_id, None)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections):
                writer.transport.abort()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._converse(reader, writer)
        except (OSError, h11.RemoteProtocolError) as broken:
            log.debug("a connection of the bridge broke: %s", broken)
        finally:
            self._connections.discard(writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        while (asked := await self._read(connection, reader, writer)) is not None:
            request, body = asked
            value: dict[str, Any]
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in request.headers}
            try:
                call = read_call(request.method.decode(), request.target.decode("latin-1"), headers, body, self.token)
                answer = await self._answer(call, reader)
            except BadCallback as refused:
                status, value = refused.status, {"code": refused.code, "message": str(refused)}
            else:
                if answer is None:
                    return  # the bridge hung up: the call was cancelled on its side
                status, value = 200, {"result": answer}
            data = msgspec.json.encode(value)
            head = h11.Response(
                status_code=status, headers=[("content-type", JSON_TYPE), ("content-length", str(len(data)))]
            )
            for event in (head, h11.Data(data=data), h11.EndOfMessage()):
                writer.write(connection.send(event) or b"")
            await writer.drain()
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _read(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
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
                    if len(body) > self._max_body_bytes:
                        raise h11.RemoteProtocolError("the body is too large")
                case h11.EndOfMessage():
                    assert request is not None
                    return request, bytes(body)
                case _:  # closed, or something that does not belong here
                    return None

    async def _answer(self, call: Invocation, reader: asyncio.StreamReader) -> ToolAnswer | None:
        """The handler's answer, or None when the bridge hung up before there was one."""
        handler = self._handlers.get(call.agent_id)
        if handler is None:
            raise BadCallback(404, "not_found", "This agent has no turn here.")
        waiting = spawn(_awaited(handler(call)), "custom-tool")
        listening = spawn(reader.read(1), "custom-tool-hang-up")
        try:
            await asyncio.wait({waiting, listening}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return None
            if waiting.cancelled():
                raise BadCallback(409, "aborted", "The turn is over.")
            return waiting.result()
        finally:
            waiting.cancel()
            listening.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await listening  # nobody else may read while this one does


async def _awaited(answer: Awaitable[ToolAnswer]) -> ToolAnswer:
    return await answer
