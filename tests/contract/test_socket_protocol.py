"""RFC 6455 on raw sockets, against our own WebSocket: frames that a judge makes by hand, and the close code of each.

Autobahn's suite asks for more of the same (docs/reliability.md); this table needs nothing that is not here.
"""

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from caretway.server import socket as our_socket
from caretway.server.request_reader import BodyLimits, ConnectionLimits
from contract.echo_server import echo_server

HELLO = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"
ENDED = -1
"""No close frame came before the end."""


def frame(opcode: int, data: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bytes | None = MASK) -> bytes:
    size = len(data)
    head = bytes([fin << 7 | rsv << 4 | opcode])
    bit = 0x80 if mask is not None else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 2**16:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if mask is None:
        return head + data
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack(">H", code) + reason)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def frame(self) -> tuple[int, bytes]:
        """(opcode, data); (ENDED, b"") at the end."""
        try:
            first, second = await self.reader.readexactly(2)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return ENDED, b""
        assert first & 0xF0 == 0x80, "whole, and no extension"
        assert not second & 0x80, "a server does not mask"
        size = second
        if size == 126:
            [size] = struct.unpack(">H", await self.reader.readexactly(2))
        elif size == 127:
            [size] = struct.unpack(">Q", await self.reader.readexactly(8))
        return first & 15, await self.reader.readexactly(size)

    async def close_code(self) -> int:
        """Of the first close frame; all others before it are skipped."""
        while True:
            opcode, data = await self.frame()
            if opcode == ENDED:
                return ENDED
            if opcode == CLOSE:
                return int(struct.unpack(">H", data[:2])[0]) if data else 1005


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(HELLO)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head, "RFC 6455, 1.3"
        assert b"extensions" not in head.lower()
        yield Peer(reader, writer)
    finally:
        writer.close()


ECHOED = {
    "empty": ([frame(TEXT)], [(TEXT, b"")]),
    "short": ([frame(TEXT, b"x" * 125)], [(TEXT, b"x" * 125)]),
    "medium": ([frame(TEXT, b"x" * 126)], [(TEXT, b"x" * 126)]),
    "medium, the longest": ([frame(TEXT, b"x" * 65535)], [(TEXT, b"x" * 65535)]),
    "long": ([frame(TEXT, b"x" * 65536)], [(TEXT, b"x" * 65536)]),
    "several pieces": ([frame(TEXT, b"xyz" * 100_000)], [(TEXT, b"xyz" * 100_000)]),
    "large, in fragments": (
        [frame(TEXT, b"a" * 700_000, fin=False), frame(PING, b"p"), frame(CONT, b"b" * 700_000)],
        [(PONG, b"p"), (TEXT, b"a" * 700_000 + b"b" * 700_000)],
    ),
    "large binary": ([frame(BINARY, bytes(range(256)) * 5000)], [(BINARY, bytes(range(256)) * 5000)]),
    "binary": ([frame(BINARY, bytes(range(256)))], [(BINARY, bytes(range(256)))]),
    "zero mask": ([frame(TEXT, b"hi", mask=b"\0\0\0\0")], [(TEXT, b"hi")]),
    "fragments": ([frame(TEXT, b"a", fin=False), frame(CONT, b"b", fin=False), frame(CONT, b"c")], [(TEXT, b"abc")]),
    "a character in two fragments": ([frame(TEXT, b"\xc3", fin=False), frame(CONT, b"\xbc")], [(TEXT, b"\xc3\xbc")]),
    "a ping between fragments": (
        [frame(TEXT, b"a", fin=False), frame(PING, b"p"), frame(CONT, b"b")],
        [(PONG, b"p"), (TEXT, b"ab")],
    ),
    "ping": ([frame(PING, b"x" * 125)], [(PONG, b"x" * 125)]),
    "pongs nobody asked for": ([frame(PONG, b"x"), frame(TEXT, b"y")], [(TEXT, b"y")]),
    "thousands of empty fragments": (
        [frame(TEXT, b"a", fin=False), frame(CONT, fin=False) * 5000, frame(CONT, b"b")],
        [(TEXT, b"ab")],
    ),
}
CLOSED = {
    "goodbye": (closing(1000, b"bye"), 1000),
    "goodbye without a word": (frame(CLOSE), 1005),
    "a code of one's own": (closing(4999), 4999),
    "half a code": (frame(CLOSE, b"\x03"), 1002),
    "a code that is not sent": (closing(1005), 1002),
    "an unknown code": (closing(2999), 1002),
    "a reason that is no text": (closing(1000, b"\xff"), 1007),
    "not masked": (frame(TEXT, b"x", mask=None), 1002),
    "reserved bit 1": (frame(TEXT, b"x", rsv=4), 1002),
    "reserved bit 2": (frame(TEXT, b"x", rsv=2), 1002),
    "reserved bit 3": (frame(PING, b"x", rsv=1), 1002),
    **{f"opcode {code}": (frame(code, b"x"), 1002) for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "a long ping": (frame(PING, b"x" * 126), 1002),
    "a ping in pieces": (frame(PING, b"x", fin=False), 1002),
    "a continuation of nothing": (frame(CONT, b"x"), 1002),
    "a message within a message": (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
    "a goodbye within a message": (frame(TEXT, b"a", fin=False) + closing(1000), 1000),
    "no UTF-8": (frame(TEXT, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80"), 1007),
    "half a character": (frame(TEXT, b"\xf0\x9f\x98"), 1007),
    "an overlong slash": (frame(TEXT, b"\xc0\xaf"), 1007),
    "too large, told at once": (b"\x81\xff" + struct.pack(">Q", 2**40) + MASK, 1009),
    "too large, in pieces": (
        frame(TEXT, b"x" * 900_000, fin=False) + frame(CONT, b"x" * 900_000, fin=False),
        1009,
    ),
    "a size with its highest bit": (b"\x81\xff" + struct.pack(">Q", 2**63 + 5) + MASK, 1009),
}


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in drops"])
async def test_what_is_sent_comes_back(at_once: bool) -> None:
    async with echo_server() as (_, port):
        for name, (sent, wanted) in ECHOED.items():
            whole = b"".join(sent)
            if not at_once and len(whole) > 4096:
                continue
            async with peer(port) as judge:
                pieces = [whole] if at_once else [whole[at : at + 1] for at in range(len(whole))]
                for piece in pieces:
                    judge.writer.write(piece)
                    await judge.writer.drain()
                    await asyncio.sleep(0)
                assert [await judge.frame() for _ in wanted] == wanted, name
                judge.writer.write(closing(1000))
                assert await judge.close_code() == 1000, name


async def test_what_breaks_the_rules_is_closed_with_its_code() -> None:
    async with echo_server(bodies=BodyLimits(size=2**20)) as (_, port):
        for name, (sent, code) in CLOSED.items():
            async with peer(port) as judge:
                judge.writer.write(sent)
                assert await judge.close_code() == code, name
                assert await judge.frame() == (ENDED, b""), name


async def test_a_message_that_drips_is_given_up() -> None:
    bodies, limits = BodyLimits(idle=0.05, total=0.2), ConnectionLimits(look_every=0.02)
    async with echo_server(limits=limits, bodies=bodies) as (_, port), peer(port) as judge:
        judge.writer.write(frame(TEXT, b"x" * 100)[:20])
        assert await judge.close_code() == 1008
    async with echo_server(limits=limits, bodies=bodies) as (_, port), peer(port) as judge:
        judge.writer.write(frame(TEXT, b"", fin=False) + frame(CONT, b"", fin=False) * 1000)  # and never a byte
        assert await judge.close_code() == 1008


async def test_a_silent_client_is_asked_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what keeps a connection open through proxies."""
    monkeypatch.setattr(our_socket, "PING_AFTER_S", 0.05)
    monkeypatch.setattr(our_socket, "GONE_AFTER_S", 0.3)
    async with echo_server(limits=ConnectionLimits(look_every=0.02)) as (_, port), peer(port) as judge:
        assert await judge.frame() == (PING, b"")
        judge.writer.write(frame(PONG))
        assert await judge.frame() == (PING, b"")
        while (await judge.frame())[0] == PING:
            pass  # not answered any more
        assert await judge.frame() == (ENDED, b"")


async def test_a_client_that_reads_slowly_is_there() -> None:
    """Nothing is heard of it, and it cannot be asked, while it takes what is written little by little."""
    async with echo_server() as (server, port), peer(port) as judge:
        judge.writer.write(frame(TEXT, b"hello"))
        assert await judge.frame() == (TEXT, b"hello")
        [ours] = server._connections
        assert isinstance(ours, our_socket.Socket)
        later = asyncio.get_running_loop().time() + 2 * our_socket.GONE_AFTER_S
        ours.pause_writing()
        ours.check(later)
        judge.writer.write(frame(TEXT, b"again"))
        assert await judge.frame() == (TEXT, b"again")
        ours.resume_writing()
        ours.check(later)
        assert await judge.frame() == (ENDED, b""), "it is silent, and takes everything"


async def test_an_idle_connection_is_closed_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(our_socket, "IDLE_S", 0.1)
    async with echo_server(limits=ConnectionLimits(look_every=0.02)) as (_, port), peer(port) as judge:
        assert await judge.close_code() == 1000


async def test_a_flood_of_pings_holds_nobody_up() -> None:
    """Forty thousand pings in one piece, of a client that reads nothing; and another client meanwhile."""
    async with echo_server() as (_, port), peer(port) as flood, peer(port) as other:
        for _ in range(4):
            flood.writer.write(frame(PING) * 40_000)
        other.writer.write(frame(TEXT, b"hello"))
        assert await other.frame() == (TEXT, b"hello")
        other.writer.write(closing(1000))
        assert await other.close_code() == 1000
        assert await flood.frame() == (PONG, b"")


async def test_noise_ends_with_a_code_and_harms_nobody() -> None:
    """What is no WebSocket at all, and what nearly is one."""
    dice = random.Random(24)
    legal = [sent for sent, _ in ECHOED.values()]
    async with echo_server(bodies=BodyLimits(size=2**17)) as (_, port):
        for _ in range(150):
            data = bytearray(b"".join(dice.choice(legal))[:4096])
            for _ in range(dice.randint(1, 8)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            async with peer(port) as judge:
                judge.writer.write(bytes(data))
                judge.writer.write_eof()
                assert await judge.close_code() in (ENDED, *range(1000, 5000))
        async with peer(port) as judge:
            judge.writer.write(frame(TEXT, b"still here"))
            assert await judge.frame() == (TEXT, b"still here")
