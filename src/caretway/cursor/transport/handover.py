"""A connection that changes hands: first the proxy handshake uses it, then its real owner takes it over.

Nothing that arrives in between is lost: after a TLS handshake, the other end often speaks before its new owner is
there.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, TypeVar, cast

P = TypeVar("P", bound=asyncio.Protocol)

MAX_HELD_BYTES: Final = 1024 * 1024


class HeldConnection(asyncio.Protocol):
    """Keeps what arrives until it is read, or until another protocol takes the connection over."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.gone = False
        self.cause: Exception | None = None
        self._arrived = bytearray()
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        if len(self._arrived) > MAX_HELD_BYTES:
            self.abort()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone, self.cause = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def write(self, data: bytes) -> None:
        if data and self.transport is not None:
            self.transport.write(data)

    def taken(self) -> bytes:
        data = bytes(self._arrived)
        self._arrived.clear()
        return data

    async def read(self) -> bytes:
        """What has arrived, at least one byte; none when the connection is over."""
        while not self._arrived and not self.gone:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        return self.taken()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


async def hand_over(
    held: HeldConnection, protocol_factory: Callable[[], P], rest: bytes, tls: ssl.SSLContext | None, host: str
) -> tuple[asyncio.Transport, P]:
    """Its new owner, with TLS to `host` in between if there is a context. `rest` was read already, and is its too."""
    if tls is not None:
        held = await _inside_tls(held, tls, host)
        rest = b""
    if held.transport is None or held.gone:
        raise held.cause if isinstance(held.cause, OSError) else ConnectionResetError("the connection was closed")
    protocol = protocol_factory()
    held.transport.set_protocol(protocol)
    protocol.connection_made(held.transport)
    if arrived := rest + held.taken():
        protocol.data_received(arrived)
    return held.transport, protocol


async def _inside_tls(outer: HeldConnection, tls: ssl.SSLContext, host: str) -> HeldConnection:
    if outer.transport is None or outer.gone or outer.transport.is_closing():
        raise ConnectionResetError("the connection was closed before the TLS handshake")
    inner = HeldConnection()
    transport = await asyncio.get_running_loop().start_tls(outer.transport, inner, tls, server_hostname=host)
    if transport is None:  # how asyncio says that the connection was lost meanwhile
        raise ConnectionResetError("the connection was closed in the TLS handshake")
    inner.transport = transport
    return inner
