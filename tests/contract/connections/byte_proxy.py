"""A TCP relay that can lose bytes: those of one direction, those of both, or the connection itself.

Nothing is closed when bytes are lost: both ends go on believing in their sockets, as behind a NAT that forgot them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast


class Link:
    """One connection from the client's side, and the one to the server that belongs to it."""

    def __init__(self, dark: bool) -> None:
        self.to_server_lost = self.to_client_lost = dark
        self.client: asyncio.Transport | None = None
        self.server: asyncio.Transport | None = None
        self.early: list[bytes] = []
        self.over = False
        """The client has closed it."""

    def lose_everything(self) -> None:
        self.to_server_lost = self.to_client_lost = True

    def from_client(self, data: bytes) -> None:
        if self.to_server_lost:
            return
        if self.server is None:
            self.early.append(data)
        else:
            self.server.write(data)

    def from_server(self, data: bytes) -> None:
        if not self.to_client_lost and self.client is not None:
            self.client.write(data)

    def close(self) -> None:
        self.over = True
        for end in (self.client, self.server):
            if end is not None:
                end.abort()


class _Front(asyncio.Protocol):
    def __init__(self, proxy: "ByteProxy") -> None:
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.link = Link(self._proxy.dark)
        self.link.client = cast(asyncio.Transport, transport)
        self._proxy.links.append(self.link)
        self._dialling = asyncio.ensure_future(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: _Back(self.link), "127.0.0.1", self._proxy.server_port)

    def data_received(self, data: bytes) -> None:
        self.link.from_client(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.close()


class _Back(asyncio.Protocol):
    def __init__(self, link: Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.server = cast(asyncio.Transport, transport)
        if self._link.over:
            self._link.server.abort()
        for data in self._link.early:
            self._link.server.write(data)
        self._link.early.clear()

    def data_received(self, data: bytes) -> None:
        self._link.from_server(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._link.to_client_lost:
            self._link.close()


class ByteProxy:
    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.port = 0
        self.links: list[Link] = []
        self.dark = False
        """New connections are taken and lead nowhere."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def black_hole(self) -> None:
        self.dark = True
        for link in self.links:
            link.lose_everything()

    def light(self) -> None:
        """New connections work again. What was lost stays lost."""
        self.dark = False


@asynccontextmanager
async def byte_proxy(server_port: int) -> AsyncIterator[ByteProxy]:
    proxy = ByteProxy(server_port)
    server = await asyncio.get_running_loop().create_server(lambda: _Front(proxy), "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for link in proxy.links:
            link.close()
