"""The floor: every byte is passed on as it is, in both directions. `python -m bench.stubs.relay PORT UPSTREAM_PORT`.

One upstream connection for each client connection, no parsing, no limits: nothing that relays in Python does less.
"""

import asyncio
import sys
from typing import cast

from .serving import serve

UPSTREAM_PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class _Upstream(asyncio.Protocol):
    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()


class Relay(asyncio.Protocol):
    def __init__(self) -> None:
        self._upstream: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        client = cast(asyncio.Transport, transport)
        self._dialling = asyncio.get_running_loop().create_task(self._dial(client))

    async def _dial(self, client: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        made, _ = await loop.create_connection(lambda: _Upstream(client), "127.0.0.1", UPSTREAM_PORT)
        self._upstream = made
        for data in self._early:
            made.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._upstream is None:
            self._early.append(data)
        else:
            self._upstream.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._upstream is not None:
            self._upstream.close()
        elif self._dialling is not None:
            self._dialling.cancel()


if __name__ == "__main__":
    serve(Relay)
