"""A server that speaks no protocol at all: it does one thing with the first bytes, or with the connection itself."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

Reaction = Callable[[asyncio.Transport], None]


class _Raw(asyncio.Protocol):
    def __init__(self, site: "RawSite") -> None:
        self._site = site

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._site.transports.append(self._transport)
        self._site.on_connect(self._transport)

    def data_received(self, data: bytes) -> None:
        self._site.received.append(data)
        self._site.on_data(self._transport)


class RawSite:
    def __init__(self, on_connect: Reaction, on_data: Reaction) -> None:
        self.on_connect, self.on_data = on_connect, on_data
        self.transports: list[asyncio.Transport] = []
        self.received: list[bytes] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def nothing(transport: asyncio.Transport) -> None:
    """Stay connected and silent."""


@asynccontextmanager
async def raw_site(
    *, on_connect: Reaction = nothing, on_data: Reaction = nothing, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawSite]:
    site = RawSite(on_connect, on_data)
    server = await asyncio.get_running_loop().create_server(lambda: _Raw(site), "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for transport in site.transports:
            transport.abort()
