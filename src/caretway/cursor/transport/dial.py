"""Opens one connection to Cursor: DNS, TCP, connect timeout, TLS (own CA file, TLS 1.2, host name check, ALPN),
directly or through a proxy, or on a given socket. Each failure becomes UPSTREAM_DOWN with a reason.
A `Dial` also names the `Origin`: transports put that name into request heads, and know no addresses, proxies or
certificates. A `Dialler`, which knows the proxies, opens all outgoing connections of this process.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from ...core.errors import ErrorKind, GatewayError
from ...processes.tasks import aside
from .proxies import Proxy, ProxyRoute, ProxyRules
from .tunnels import not_through, proxy_broke_off, proxy_down, tunnel_to

# ---- A connection with two successive owners: the proxy handshake, then the final protocol.
#
# Bytes that arrive in between are kept: after a TLS handshake, the peer often sends before the new owner is ready.

P = TypeVar("P", bound=asyncio.Protocol)

MAX_HELD_BYTES: Final = 1024 * 1024


class HeldConnection(asyncio.Protocol):
    """Buffers received bytes until they are read, or until another protocol takes the connection over."""

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
        """The received bytes, at least one; empty if the connection is closed."""
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
    """Give the connection to a new protocol, with TLS to `host` if `tls` is set. `rest`: bytes already read."""
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
    if transport is None:  # asyncio: the connection was lost meanwhile
        raise ConnectionResetError("the connection was closed in the TLS handshake")
    inner.transport = transport
    return inner


ALPN_H2: Final = "h2"
ALPN_HTTP1: Final = "http/1.1"
ALPN_BOTH: Final = (ALPN_H2, ALPN_HTTP1)
CONNECT_TIMEOUT_S: Final = 8.0
CLOSE_GRACE_S: Final = 1.0
"""How long to wait for an orderly close of sockets."""
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

RETRY_HINT: Final = (
    "Check the network, --agent-url, and HTTPS_PROXY if there is a proxy; `caretway doctor` tests the connection."
)
CA_HINT: Final = "Set --agent-ca FILE if this is your own CA."
PROXY_CA_HINT: Final = "If the proxy has a certificate of your company, set --agent-ca FILE to the CA that signed it."


class Origin(Struct, frozen=True):
    scheme: str
    host: str
    port: int
    prefix: str = ""
    """The path of the base URL, without the last slash."""
    via: str = ""
    """The proxy's name for messages."""

    @property
    def shown(self) -> str:
        """The host, as messages name it."""
        return f"{self.host} (through the proxy {self.via})" if self.via else self.host

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"


class Dial(Protocol):
    @property
    def origin(self) -> Origin: ...

    async def __call__(self, protocol_factory: Callable[[], P], /) -> tuple[asyncio.Transport, P]:
        """Open one connection; raises GatewayError(UPSTREAM_DOWN)."""
        ...


def read_origin(base_url: str) -> Origin:
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as broken:
        raise _bad_url(base_url, str(broken)) from broken
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise _bad_url(base_url, "it must begin with http:// or https:// and name a host")
    if parts.query or parts.fragment or parts.username is not None:
        raise _bad_url(base_url, "it must be a plain base URL")
    return Origin(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/"))


class Dialler(Struct, frozen=True):
    """Opens connections to any host. It knows the proxies and the trusted CAs."""

    proxies: ProxyRules = field(default_factory=ProxyRules)
    ca_file: str | None = None
    """A CA file trusted in addition to the system's CAs, also for proxies. Checks cannot be switched off."""
    connect_timeout_s: float = CONNECT_TIMEOUT_S

    def dial(self, base_url: str, *, alpn: Sequence[str] = ALPN_BOTH) -> Dial:
        """A dial for one base URL. Raises GatewayError(BAD_REQUEST) if the URL or its proxy is invalid."""
        origin = read_origin(base_url)
        return self._dial(origin, tls_context(self.ca_file, tuple(alpn)) if origin.scheme == "https" else None)

    def route(self, base_url: str) -> ProxyRoute:
        origin = read_origin(base_url)
        return self.proxies.route(origin.scheme, origin.host, origin.port)

    # -- for users of many hosts

    def looks_up(self, scheme: str, host: str, port: int) -> bool:
        """Whether this machine resolves names, not a proxy."""
        proxy = self.proxies.route(scheme, host, port).proxy
        return proxy is None or not proxy.resolves

    async def connect(
        self, protocol_factory: Callable[[], P], scheme: str, host: str, port: int, address: str
    ) -> tuple[asyncio.Transport, P]:
        """Connect to `address`, directly or through the proxy for `host`. With https the peer must have a certificate
        for `host`."""
        tls = await aside(tls_context, self.ca_file, ()) if scheme == "https" else None
        return await self._dial(Origin(scheme, host, port), tls, address)(protocol_factory)

    def _dial(self, origin: Origin, tls: ssl.SSLContext | None, address: str = "") -> Dial:
        proxy = self.proxies.route(origin.scheme, origin.host, origin.port).proxy
        if proxy is None:
            return _TcpDial(origin, tls, self.connect_timeout_s, address=address)
        proxy_tls = tls_context(self.ca_file, ()) if proxy.kind == "https" else None
        return _TcpDial(replace(origin, via=proxy.name), tls, self.connect_timeout_s, proxy, proxy_tls, address=address)


def socket_dial(connect: Callable[[], Awaitable[socket.socket]], *, base_url: str = "http://in-process") -> Dial:
    """A dial for a peer in this process: `connect` gives a connected, non-blocking socket."""
    return _SocketDial(read_origin(base_url), connect)


class _TcpDial(Struct, frozen=True):
    origin: Origin
    _tls: ssl.SSLContext | None
    _timeout_s: float
    _proxy: Proxy | None = None
    _proxy_tls: ssl.SSLContext | None = None
    address: str = ""
    """The address to connect to instead of the origin's host; the certificate must still name the host."""

    async def __call__(self, protocol_factory: Callable[[], P], /) -> tuple[asyncio.Transport, P]:
        where = self.origin
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._proxy is not None:
                    return await self._through(self._proxy, protocol_factory)
                return await asyncio.get_running_loop().create_connection(
                    protocol_factory,
                    self.address or where.host,
                    where.port,
                    ssl=self._tls,
                    server_hostname=where.host if self._tls else None,
                )
        except TimeoutError as late:
            raise _down(where, f"no connection within {self._timeout_s:g} s", self._proxy) from late
        except ssl.SSLCertVerificationError as untrusted:
            raise _untrusted(where.host, untrusted, CA_HINT if self._proxy is None else PROXY_CA_HINT) from untrusted
        except ssl.SSLError as broken:
            raise _down(where, f"the TLS handshake failed: {broken.reason or broken}", self._proxy) from broken
        except OSError as refused:
            raise _down(
                where, _words(refused), self._proxy, looked_up=isinstance(refused, socket.gaierror)
            ) from refused

    async def _through(self, proxy: Proxy, protocol_factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        where = self.origin
        host = self.address or where.host
        if not proxy.resolves:
            found = await asyncio.get_running_loop().getaddrinfo(host, where.port, type=socket.SOCK_STREAM)
            host = str(found[0][4][0])
        held = await self._to_proxy(proxy)
        try:
            tunnel = tunnel_to(proxy, host, where.port)
            held.write(tunnel.begin())
            while not tunnel.open:
                if not (data := await held.read()):
                    raise proxy_broke_off(proxy, f"{where.host}:{where.port}")
                held.write(tunnel.feed(data))
            return await hand_over(held, protocol_factory, tunnel.rest, self._tls, where.host)
        except BaseException:
            held.abort()
            raise

    async def _to_proxy(self, proxy: Proxy) -> HeldConnection:
        tls = self._proxy_tls
        try:
            _, held = await asyncio.get_running_loop().create_connection(
                HeldConnection, proxy.host, proxy.port, ssl=tls, server_hostname=proxy.host if tls else None
            )
        except ssl.SSLCertVerificationError as untrusted:
            raise _untrusted(f"the proxy {proxy.name}", untrusted, PROXY_CA_HINT) from untrusted
        except ssl.SSLError as broken:
            raise proxy_down(proxy, f"the TLS handshake failed: {broken.reason or broken}") from broken
        except OSError as refused:
            raise proxy_down(proxy, _words(refused)) from refused
        return held


class _SocketDial(Struct, frozen=True):
    origin: Origin
    _connect: Callable[[], Awaitable[socket.socket]]

    async def __call__(self, protocol_factory: Callable[[], P], /) -> tuple[asyncio.Transport, P]:
        try:
            sock = await self._connect()
        except OSError as refused:
            raise _down(self.origin, str(refused)) from refused
        loop = asyncio.get_running_loop()
        try:
            sock.setblocking(False)
            if sock.family == socket.AF_UNIX:
                # uvloop refuses AF_UNIX in create_connection, and asyncio the reverse
                transport, protocol = await loop.create_unix_connection(protocol_factory, sock=sock)
            else:
                transport, protocol = await loop.create_connection(protocol_factory, sock=sock)
        except OSError as refused:
            sock.close()
            raise _down(self.origin, str(refused)) from refused
        except asyncio.CancelledError:
            sock.close()
            raise
        return transport, protocol


@lru_cache(maxsize=8)
def tls_context(ca_file: str | None, alpn: tuple[str, ...]) -> ssl.SSLContext:
    """A cached TLS context: reading the system's certificates takes tens of milliseconds."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as broken:  # ssl.SSLError is one too
            raise GatewayError(
                ErrorKind.BAD_REQUEST,
                f"the CA file {ca_file} cannot be used: {broken.strerror or broken}",
                hint="--agent-ca wants a file of PEM certificates.",
            ) from broken
    return context


def _down(where: Origin, reason: str, proxy: Proxy | None = None, *, looked_up: bool = False) -> GatewayError:
    """The error for a failed connection. `looked_up`: the name lookup failed."""
    name = f"{where.host}:{where.port}{f' through the proxy {where.via}' if where.via else ''}"
    hint = RETRY_HINT if proxy is None else not_through(proxy, looked_up=looked_up)
    return GatewayError(ErrorKind.UPSTREAM_DOWN, f"cannot connect to {name}: {reason}", hint=hint)


def _untrusted(whose: str, failure: ssl.SSLCertVerificationError, hint: str) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN, f"the certificate of {whose} is not trusted: {failure.verify_message}", hint=hint
    )


def _words(failure: OSError) -> str:
    if isinstance(failure, socket.gaierror):
        return f"the name cannot be resolved ({failure.strerror})"
    return failure.strerror or str(failure) or "the connection was closed"


def _bad_url(base_url: str, reason: str) -> GatewayError:
    return GatewayError(ErrorKind.BAD_REQUEST, f"{base_url!r} is not a usable Agent API address: {reason}")


class Closing(Protocol):
    """A connection that is closing."""

    closed: asyncio.Future[None]

    def abort(self) -> None: ...


async def all_closed(connections: Collection[Closing]) -> None:
    """Wait CLOSE_GRACE_S for connections to close in order, then abort the others."""
    if connections:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await asyncio.gather(*(connection.closed for connection in connections))
    for connection in connections:
        if not connection.closed.done():
            connection.abort()
