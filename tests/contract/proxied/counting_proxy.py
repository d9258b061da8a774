"""A proxy for tests: HTTP CONNECT (over TLS, if wanted) and SOCKS5, with or without a password. It counts what passes,
and knows the ports that it connects from, so that a stand-in can refuse whoever does not come through it."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

Misdeed = Literal["", "silent", "closes", "closes after connecting", "garbage", "forbids", "negotiate"]


@dataclass(eq=False)
class CountingProxy:
    user: str = ""
    password: str = ""
    misdeed: Misdeed = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names that only this proxy can look up."""
    asked: list[str] = field(default_factory=list)
    """What it was asked for: `connect HOST:PORT` or `socks KIND HOST:PORT`."""
    ports: set[int] = field(default_factory=set)
    """Which it connects from."""
    up: int = 0
    down: int = 0
    refused: int = 0
    """For want of a password."""
    _links: set[asyncio.StreamWriter] = field(default_factory=set)

    def admits(self, peer: tuple[str, int]) -> bool:
        return peer[1] in self.ports

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        try:
            first = await reader.readexactly(1)
            if self.misdeed == "closes":
                return
            if self.misdeed == "silent":
                await reader.read()  # until the client hangs up
                return
            if self.misdeed == "garbage":
                writer.write(b"220 mail.example ESMTP\r\n")
                await writer.drain()
                return
            target = await (self._socks(reader, writer) if first == b"\x05" else self._connect(reader, writer))
            if target is None or self.misdeed == "closes after connecting":
                return
            await self._join(*target, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client or the server hung up
        finally:
            self._links.discard(writer)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int] | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        where = head[0].split(" ")[1]
        self.asked.append(f"connect {where}")
        given = next((line.partition(": ")[2] for line in head if line.lower().startswith("proxy-authorization:")), "")
        wanted = "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        if self.misdeed == "negotiate" or ((self.user or self.password) and given != wanted):
            self.refused += 1
            scheme = "Negotiate" if self.misdeed == "negotiate" else 'Basic realm="office"'
            writer.write(f"HTTP/1.1 407 Who are you\r\nProxy-Authenticate: {scheme}\r\n\r\n".encode())
            await writer.drain()
            return None
        if self.misdeed == "forbids":
            writer.write(b"HTTP/1.1 403 Not for you\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return None
        host, _, port = where.rpartition(":")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return host.strip("[]"), int(port)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int] | None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        if self.user or self.password:
            if 2 not in methods:
                self.refused += 1
                writer.write(b"\x05\xff")
                await writer.drain()
                return None
            writer.write(b"\x05\x02")
            await reader.readexactly(1)
            user = await reader.readexactly((await reader.readexactly(1))[0])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            good = (user.decode(), password.decode()) == (self.user, self.password)
            writer.write(b"\x01\x00" if good else b"\x01\x01")
            if not good:
                self.refused += 1
                await writer.drain()
                return None
        else:
            writer.write(b"\x05\x00")
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(f"socks {'name' if kind == 3 else 'address'} {host}:{port}")
        if self.misdeed == "forbids":
            writer.write(b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")
            await writer.drain()
            return None
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        return host, port

    async def _join(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = self.names.get(host, "127.0.0.1" if host == "localhost" else host)
        link = socket.socket()
        link.setblocking(False)
        link.bind(("127.0.0.1", 0))
        self.ports.add(link.getsockname()[1])
        await asyncio.get_running_loop().sock_connect(link, (host, port))
        far_reader, far_writer = await asyncio.open_connection(sock=link)
        self._links.add(far_writer)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, far_writer, up=True))
                both.create_task(self._pump(far_reader, writer, up=False))
        except* OSError:
            pass  # one of them hung up
        finally:
            self._links.discard(far_writer)
            far_writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool) -> None:
        while data := await source.read(65536):
            if up:
                self.up += len(data)
            else:
                self.down += len(data)
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError("one side is done")

    def hang_up(self) -> None:
        for writer in list(self._links):
            writer.transport.abort()


@asynccontextmanager
async def listening(proxy: CountingProxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        proxy.hang_up()
        await server.wait_closed()
