"""A connection changes hands on real sockets, on both event loops: nothing that arrives in between is lost."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from caretway.cursor.transport.dial import MAX_HELD_BYTES, HeldConnection, hand_over

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Owner(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.made = 0
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made += 1

    def data_received(self, data: bytes) -> None:
        assert self.made == 1
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_there(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run_there


async def against(serve: Serve, talk: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await talk(server.sockets[0].getsockname()[1])


async def held(port: int) -> HeldConnection:
    _, connection = await asyncio.get_running_loop().create_connection(HeldConnection, "127.0.0.1", port)
    return connection


def test_in_the_clear(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(3) == b"hey"
        writer.write(b"proxy says yes|the far end")
        assert await reader.readexactly(2) == b"go"
        writer.write(b" goes on")
        await writer.drain()
        writer.close()

    async def talk(port: int) -> None:
        connection = await held(port)
        connection.write(b"hey")
        told = await connection.read()
        transport, owner = await hand_over(connection, Owner, told.partition(b"|")[2], None, "")
        transport.write(b"go")
        await owner.lost
        assert (owner.got, owner.made) == (b"the far end goes on", 1)

    run(against(serve, talk))


def test_what_the_far_end_says_at_once_after_the_handshake_is_not_lost(
    run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("far.test").configure_cert(theirs)
    ours = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"yes")
        await writer.start_tls(theirs)  # at once: a reader of asyncio's would keep the first words of a handshake
        writer.write(b"greetings")
        await writer.drain()
        writer.close()

    async def talk(port: int) -> None:
        connection = await held(port)
        assert await connection.read() == b"yes"
        transport, owner = await hand_over(connection, Owner, b"", ours, "far.test")
        assert transport.get_extra_info("ssl_object") is not None
        await owner.lost
        assert (owner.got, owner.made) == (b"greetings", 1)

    run(against(serve, talk))


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_that_is_gone_is_not_handed_over(
    run: Callable[[Coroutine[Any, Any, None]], None], tls: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def talk(port: int) -> None:
        connection = await held(port)
        assert await connection.read() == b""
        with pytest.raises(ConnectionResetError):
            await hand_over(connection, Owner, b"", ssl.create_default_context() if tls else None, "x")

    run(against(serve, talk))


def test_a_flood_before_the_owner_comes_is_bounded(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(3 * MAX_HELD_BYTES))
        await reader.read()
        writer.transport.abort()

    async def talk(port: int) -> None:
        connection = await held(port)
        while not connection.gone:
            await asyncio.sleep(0.01)
        assert len(connection.taken()) <= 2 * MAX_HELD_BYTES

    run(against(serve, talk))
