"""A proxy in front of the simulator: HTTP CONNECT (over TLS, if wanted) and SOCKS5, with or without a password.

It counts bytes and refusals, and records the local ports it connects from, so that the simulator can recognise
connections through the proxy. It can simulate the faults of a proxy. It connects to this machine only.
"""

import asyncio
import base64
import ipaddress
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from caretway.installation import install_command

ONLY_THERE: Final = "cursor.test"
"""A name that only this proxy resolves."""
_NAMES: Final = {ONLY_THERE: "127.0.0.1", "localhost": "127.0.0.1"}
MAX_NOTES: Final = 10_000
CHUNK: Final = 65536

ProxyFault = Literal["", "silent", "closes", "closes_later", "garbage", "forbids", "negotiate"]
"""Faults: sends nothing, hangs up at once or after it agreed, sends bytes of another protocol, forbids the host, or
demands an authentication scheme that clients do not have."""
_AGREED: Final = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
_FORBIDDEN: Final = b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"


@dataclass(eq=False)
class SimProxy:
    user: str = ""
    password: str = field(default="", repr=False)
    fault: ProxyFault = ""
    asked: list[str] = field(default_factory=list)
    """Requests to the proxy: `connect HOST:PORT` or `socks KIND HOST:PORT`."""
    up: int = 0
    down: int = 0
    refused: int = 0
    """Requests with a missing or wrong password."""
    _ports: set[int] = field(default_factory=set)
    _links: set[asyncio.StreamWriter] = field(default_factory=set)
    _servers: list[asyncio.Server] = field(default_factory=list)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen and return the port; port 0 takes a free one."""
        server = await asyncio.start_server(self._serve, host, port, ssl=tls)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def aclose(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        self.hang_up()
        for server in servers:
            await server.wait_closed()

    def hang_up(self) -> None:
        """Cut all connections."""
        for writer in list(self._links):
            writer.transport.abort()

    def comes_from_here(self, peer: Any) -> bool:
        """True if a connection from this address is the proxy's."""
        return isinstance(peer, tuple) and len(peer) > 1 and peer[1] in self._ports

    # ---- one client

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        try:
            first = await reader.readexactly(1)
            if self.fault == "closes":
                return
            if self.fault == "silent":
                while await reader.read(CHUNK):  # until the client hangs up
                    pass
                return
            if self.fault == "garbage":
                await _send(writer, b"220 mail.example ESMTP\r\n")
                return
            target = await (self._socks(reader, writer) if first == b"\x05" else self._connect(reader, writer))
            if target is not None and self.fault != "closes_later":
                await self._join(*target, reader, writer)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # the client or the server hung up, or the request is not valid for a proxy
        finally:
            self._links.discard(writer)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int] | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        where = head[0].split(" ")[1] if " " in head[0] else ""
        self._note(f"connect {where}")
        given = next((line.partition(": ")[2] for line in head if line.lower().startswith("proxy-authorization:")), "")
        wanted = "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        if self.fault == "negotiate" or (self._guarded and given != wanted):
            self.refused += 1
            scheme = "Negotiate" if self.fault == "negotiate" else 'Basic realm="simulated"'
            await _send(writer, f"HTTP/1.1 407 Who are you\r\nProxy-Authenticate: {scheme}\r\n\r\n".encode())
            return None
        host, _, port = where.rpartition(":")
        there = self._address(host.strip("[]"))
        if there is None:
            await _send(writer, b"HTTP/1.1 403 Not for you\r\nContent-Length: 0\r\n\r\n")
            return None
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return there, int(port)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int] | None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        if not await self._socks_password(methods, reader, writer):
            self.refused += 1
            return None
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self._note(f"socks {'name' if kind == 3 else 'address'} {host}:{port}")
        there = self._address(host)
        if there is None:
            await _send(writer, _FORBIDDEN)
            return None
        writer.write(_AGREED)
        return there, port

    async def _socks_password(self, methods: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if not self._guarded:
            writer.write(b"\x05\x00")
            return True
        if 2 not in methods:
            await _send(writer, b"\x05\xff")
            return False
        writer.write(b"\x05\x02")
        await reader.readexactly(1)
        user = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        good = (user.decode(), password.decode()) == (self.user, self.password)
        await _send(writer, b"\x01\x00" if good else b"\x01\x01")
        return good

    async def _join(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        family, source = (socket.AF_INET6, "::1") if ":" in host else (socket.AF_INET, "127.0.0.1")
        link = socket.socket(family)
        link.setblocking(False)
        link.bind((source, 0))
        own = link.getsockname()[1]
        self._ports.add(own)
        far_writer: asyncio.StreamWriter | None = None
        try:
            await asyncio.get_running_loop().sock_connect(link, (host, port))
            far_reader, far_writer = await asyncio.open_connection(sock=link)
            self._links.add(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, far_writer, up=True))
                both.create_task(self._pump(far_reader, writer, up=False))
        except* OSError:
            pass  # one side hung up
        finally:
            self._ports.discard(own)
            if far_writer is None:
                link.close()
            else:
                self._links.discard(far_writer)
                far_writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool) -> None:
        while data := await source.read(CHUNK):
            if up:
                self.up += len(data)
            else:
                self.down += len(data)
            await _send(sink, data)
        raise ConnectionResetError("one side is done")

    @property
    def _guarded(self) -> bool:
        return bool(self.user or self.password)

    def _address(self, host: str) -> str | None:
        """The address of a host; None if this proxy does not serve it."""
        found = _NAMES.get(host, host)
        try:
            here = ipaddress.ip_address(found).is_loopback
        except ValueError:
            here = False
        return found if here and self.fault != "forbids" else None

    def _note(self, asked: str) -> None:
        if len(self.asked) < MAX_NOTES:
            self.asked.append(asked)


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


# ---- tls

# A throw-away CA and certificate, for TLS with ALPN; an error if the package trustme is missing.

NAMES: Final = ("localhost", "127.0.0.1", "::1", ONLY_THERE)
CA_FILE: Final = "caretway-simulator-ca.pem"


class TlsUnavailable(RuntimeError):
    """The package that makes certificates is not installed."""


def throw_away_ca(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """A server context for loopback names and the proxy's name, and the file with its CA certificate."""
    try:
        import trustme
    except ImportError as missing:
        raise TlsUnavailable(
            f"the simulator needs the package trustme to serve TLS; install it with: {install_command('tls')}"
        ) from missing
    authority = trustme.CA(organization_name="Caretway simulator, not for real use")
    certificate = authority.issue_cert(*NAMES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])
    certificate.configure_cert(context)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / CA_FILE
    authority.cert_pem.write_to_path(str(path))
    return context, path
