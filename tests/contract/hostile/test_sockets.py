"""64 WebSockets whose messages wait, or that do not read, add a bounded amount to the gateway's memory, and others are
answered meanwhile. What was measured is printed (`-s`).
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from contract.hostile.metered import Metered, Reading, metered
from contract.hostile.upstream import MIB
from contract.meter import simulated_elsewhere

SOCKETS: Final = 64
LARGE: Final = 15 * MIB
BOUND: Final = 3 * 256 * MIB
"""Three times what may be buffered, as SECURITY.md has it: what arrived in pieces is not given back at once."""
LIMIT_MS: Final = 100
PIECE: Final = 64 * 1024
TEXT, CLOSE, PING = 1, 8, 9

pytestmark = [pytest.mark.all, pytest.mark.timeout(600)]  # together they hold a gigabyte in this process
TOGETHER = pytest.mark.parametrize("together", [True, False], ids=["together", "one after the other"])


class Peer:
    """Reads what it is asked to read, and no more than a few buffers ahead."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, **event: Any) -> None:
        data = json.dumps(event).encode()
        self.writer.write(b"\x81\xff" + len(data).to_bytes(8) + b"\0\0\0\0")  # a mask that changes nothing
        for at in range(0, len(data), PIECE):
            self.writer.write(data[at : at + PIECE])
            await self.writer.drain()

    async def receive(self) -> tuple[int, dict[str, Any]]:
        """Opcode and event. A connection that ended is a close."""
        try:
            first, size = await self.reader.readexactly(2)
            if size > 125:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
            data = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return CLOSE, {}
        return first & 15, json.loads(data) if first & 15 == TEXT else {}

    async def until(self, code: str) -> list[str]:
        """The codes of the errors up to this one, or up to the end of the connection."""
        codes: list[str] = []
        while codes[-1:] != [code]:
            opcode, event = await self.receive()
            if opcode == CLOSE:
                return [*codes, "closed"]
            if event.get("type") == "error":
                codes.append(event["error"]["code"])
        return codes


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[Metered, Callable[[], Awaitable[Peer]]]]:
    """And what opens a socket to it. One that does not read answers no ping, and is closed after a while."""
    async with simulated_elsewhere() as port, metered(backend="agent", agent_url=f"http://127.0.0.1:{port}") as running:
        host = urlsplit(str(running.http.base_url)).netloc
        peers: list[Peer] = []

        async def connect() -> Peer:
            reader, writer = await asyncio.open_connection(*host.split(":"))
            key = base64.b64encode(bytes(16)).decode()
            head = [f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {key}"]
            lines = ["GET /v1/responses HTTP/1.1", *head, "Sec-WebSocket-Version: 13"]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            peers.append(Peer(reader, writer))
            return peers[-1]

        try:
            yield running, connect
        finally:
            for peer in peers:
                peer.writer.close()


async def ask(running: Metered) -> None:
    body = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: say still here"}]}
    answer = await running.http.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "still here", answer.text


async def quickest(try_it: Callable[[], Awaitable[tuple[str, int, Reading]]]) -> None:
    """The work is the same each time, and what a busy machine adds to it (slow page faults, say) is not: the quickest
    of up to three counts. Memory counts each time."""
    tries: list[float] = []
    while len(tries) < 3 and (not tries or tries[-1] > LIMIT_MS):
        name, before, reading = await try_it()
        tries.append(reading.longest_ms)
        print(f"{name}: {before / MIB:.0f} -> {reading.peak / MIB:.0f} MiB, {tries[-1]:.1f} ms in {reading.where}")
        assert reading.peak - before < BOUND
    assert min(tries) < LIMIT_MS


@TOGETHER
async def test_messages_that_wait(together: bool) -> None:
    await quickest(partial(_messages_that_wait, together))


async def _messages_that_wait(together: bool) -> tuple[str, int, Reading]:
    async with gateway() as (running, connect):

        async def wait(peer: Peer) -> list[str]:
            try:
                await peer.send(type="response.create", model="sim-auto", input="sim: hang")
                for _ in range(2):
                    await peer.send(type="response.create", model="sim-auto", input="x" * LARGE)
                await peer.send(type="unknown")
            except ConnectionError:
                return ["closed"]
            return await peer.until("unknown_event")

        await ask(running)
        before = (await running.read()).rss
        if together:
            ended = await asyncio.gather(*[wait(await connect()) for _ in range(SOCKETS)])
        else:
            ended = [await wait(await connect()) for _ in range(SOCKETS)]
        reading = await running.read()
        waiting = 2 * SOCKETS - sum(2 if "closed" in codes else len(codes) - 1 for codes in ended)
        print(f"{waiting} wait")
        assert together or (waiting >= 8 and all("closed" not in codes for codes in ended))
        await ask(running)
        return f"{2 * SOCKETS} messages of 15 MiB", before, reading


@TOGETHER
async def test_input_that_comes_back_and_is_not_read(together: bool) -> None:
    await quickest(partial(_input_that_comes_back, together))


async def _input_that_comes_back(together: bool) -> tuple[str, int, Reading]:
    async with gateway() as (running, connect):

        async def steer(peer: Peer) -> int:
            """What the first bytes of the answer are; pings of a busy machine may come before it."""
            try:
                await peer.send(type="response.steer", input="x" * LARGE)
                while (opcode := (await peer.reader.readexactly(1))[0] & 15) == PING:
                    await peer.reader.readexactly((await peer.reader.readexactly(1))[0])
                return opcode
            except (asyncio.IncompleteReadError, ConnectionError):
                return CLOSE

        await ask(running)
        before = (await running.read()).rss
        if together:
            ended = await asyncio.gather(*[steer(await connect()) for _ in range(SOCKETS)])
        else:
            ended = [await steer(await connect()) for _ in range(SOCKETS)]
        reading = await running.read()
        assert together or ended == [TEXT] * SOCKETS
        await ask(running)
        return f"{SOCKETS} steered with 15 MiB", before, reading
