"""A server of our own WebSocket that sends every message back, for judges of the protocol.

`python tests/contract/echo_server.py PORT` runs it, for example for Autobahn's `wstest -m fuzzingclient`.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from websockets.frames import Frame, Opcode

from caretway.core.errors import GatewayError
from caretway.server.exchange import HttpRequest, ResponseWriter, switching
from caretway.server.request_reader import Bodies, BodyLimits, ConnectionLimits
from caretway.server.server import Server
from caretway.server.socket import Socket


class EchoSocket(Socket):
    def look(self, data: bytes) -> None: ...

    def message(self, data: bytes, seen: None) -> None:
        self.say(data)

    def binary(self, data: bytes) -> None:
        self.frames(Frame(Opcode.BINARY, data).serialize(mask=False))

    def writable(self, yes: bool) -> None: ...

    @property
    def busy(self) -> bool:
        return False

    def wake(self, now: float) -> None: ...

    def hung_up(self) -> None: ...


class Upgrading:
    """Every request becomes a WebSocket."""

    def __init__(self, request: HttpRequest, response: ResponseWriter) -> None:
        self._request = request
        self._response = response

    def begin(self) -> None: ...

    def answer(self) -> Coroutine[Any, Any, None]:
        async def answer() -> None:
            self._response.switch(switching(self._request.headers), EchoSocket)

        return answer()

    def leave(self) -> None: ...


class EchoHandler:
    def accept(self, request: HttpRequest, response: ResponseWriter) -> Upgrading:
        return Upgrading(request, response)

    def refuse(
        self, path: str, response: ResponseWriter, error: GatewayError, request: HttpRequest | None = None
    ) -> None:
        response.send(400, b"{}")


@asynccontextmanager
async def echo_server(
    port: int = 0, limits: ConnectionLimits | None = None, bodies: BodyLimits | None = None
) -> AsyncIterator[tuple[Server, int]]:
    listener = socket.create_server(("127.0.0.1", port))
    server = Server(EchoHandler(), limits or ConnectionLimits(), Bodies(bodies or BodyLimits()), None)
    await server.start(listener)
    try:
        yield server, listener.getsockname()[1]
    finally:
        server.retire()
        server.cut()
        listener.close()


async def _serve(port: int) -> None:
    async with echo_server(port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
