"""Opens one connection to Cursor: base URL, DNS, TCP, connect timeout, TLS (own CA file, TLS 1.2, host name check,
ALPN), or a socket that is handed over. Each failure becomes UPSTREAM_DOWN in words.

A `Dial` also names the `Origin`, so that the carriers above know what to write into their request heads and nothing of
addresses, certificates and names.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

from ..core.errors import ErrorKind, GatewayError

P = TypeVar("P", bound=asyncio.Protocol)

ALPN_H2: Final = "h2"
ALPN_HTTP1: Final = "http/1.1"
ALPN_BOTH: Final = (ALPN_H2, ALPN_HTTP1)
CONNECT_TIMEOUT_S: Final = 8.0
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

RETRY_HINT: Final = "Check the network and --agent-url; `caretway doctor` tests the connection."
CA_HINT: Final = "Set --agent-ca FILE if this is your own CA."


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str
    host: str
    port: int
    prefix: str = ""
    """The path of the base URL, without the last slash."""

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


def tcp_dial(
    base_url: str,
    *,
    ca_file: str | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    alpn: Sequence[str] = ALPN_BOTH,
) -> Dial:
    """`ca_file` is trusted in addition to the system's CAs. Certificate and host name are always checked."""
    origin = read_origin(base_url)
    context = _tls_context(ca_file, alpn) if origin.scheme == "https" else None
    return _TcpDial(origin, context, connect_timeout_s)


def socket_dial(connect: Callable[[], Awaitable[socket.socket]], *, base_url: str = "http://in-process") -> Dial:
    """For a peer in this process: `connect` gives a connected, non-blocking socket, one end of a socketpair say."""
    return _SocketDial(read_origin(base_url), connect)


@dataclass(frozen=True, slots=True)
class _TcpDial:
    origin: Origin
    _tls: ssl.SSLContext | None
    _timeout_s: float

    async def __call__(self, protocol_factory: Callable[[], P], /) -> tuple[asyncio.Transport, P]:
        where = self.origin
        try:
            async with asyncio.timeout(self._timeout_s):
                transport, protocol = await asyncio.get_running_loop().create_connection(
                    protocol_factory,
                    where.host,
                    where.port,
                    ssl=self._tls,
                    server_hostname=where.host if self._tls else None,
                )
        except TimeoutError as late:
            raise _down(where, f"no connection within {self._timeout_s:g} s") from late
        except ssl.SSLCertVerificationError as untrusted:
            raise GatewayError(
                ErrorKind.UPSTREAM_DOWN,
                f"the certificate of {where.host} is not trusted: {untrusted.verify_message}",
                hint=CA_HINT,
            ) from untrusted
        except ssl.SSLError as broken:
            raise _down(where, f"the TLS handshake failed: {broken.reason or broken}") from broken
        except socket.gaierror as unknown:
            raise _down(where, f"the name cannot be resolved ({unknown.strerror})") from unknown
        except OSError as refused:
            raise _down(where, refused.strerror or str(refused) or type(refused).__name__) from refused
        return transport, protocol


@dataclass(frozen=True, slots=True)
class _SocketDial:
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
            if sock.family == getattr(socket, "AF_UNIX", None):
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


def _tls_context(ca_file: str | None, alpn: Sequence[str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
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


def _down(where: Origin, reason: str) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN, f"cannot connect to {where.host}:{where.port}: {reason}", hint=RETRY_HINT
    )


def _bad_url(base_url: str, reason: str) -> GatewayError:
    return GatewayError(ErrorKind.BAD_REQUEST, f"{base_url!r} is not a usable Agent API address: {reason}")
