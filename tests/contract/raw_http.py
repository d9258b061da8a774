"""A client that says exactly the bytes it is told, and somebody else's stream that must not notice."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from caretway.processes.tasks import spawn
from contract.gateways import CHAT, Client, streamed

_STATUS_LINE = re.compile(rb"HTTP/1\.1 [1-5]\d\d ")
PIECES, LENGTH, PAUSE_MS = 120, 10, 5


@dataclass(frozen=True, slots=True)
class RawAnswer:
    status: int
    head: bytes
    body: bytes
    answers: int
    """How many responses came over the connection before it closed."""

    @property
    def error(self) -> dict[str, Any]:
        parsed: dict[str, Any] = msgspec.json.decode(self.body)
        return dict(parsed["error"])


def read_answer(data: bytes) -> RawAnswer:
    if not data:
        return RawAnswer(0, b"", b"", 0)
    head, _, body = data.partition(b"\r\n\r\n")
    return RawAnswer(int(head.split()[1]), head.lower(), body, len(_STATUS_LINE.findall(data)))


def address(client: Client) -> tuple[str, int]:
    parts = urlsplit(client.gateway.base_url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


async def say(client: Client, pieces: bytes | Iterable[bytes], pause: float = 0.0) -> RawAnswer:
    """Send the pieces and read until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection(*address(client))

    async def talk() -> None:
        try:
            for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        except ConnectionError:
            pass  # the gateway has heard enough

    talking = spawn(talk(), "talking")
    try:
        async with asyncio.timeout(30):
            return read_answer(await _rest(reader))
    finally:
        talking.cancel()
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end, also when the end is a reset."""
    data = b""
    try:
        while piece := await reader.read(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def post(body: bytes, *headers: bytes, path: str = CHAT, length: int | None = None) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1".encode(),
        b"Host: 127.0.0.1",
        b"Content-Type: application/json",
        b"Connection: close",
        f"Content-Length: {len(body) if length is None else length}".encode(),
        *headers,
    ]
    return b"\r\n".join([*lines, b"", body])


@asynccontextmanager
async def bystander(client: Client, **headers: str) -> AsyncIterator[None]:
    """Another client's stream runs from before the block until after it, and its text must be complete."""
    body = {
        "model": "sim-auto",
        "stream": True,
        "messages": [{"role": "user", "content": f"sim: stream {PIECES} {LENGTH} {PAUSE_MS}"}],
    }
    began = asyncio.Event()

    async def listen() -> bytes:
        async with client.http.stream("POST", CHAT, json=body, headers=headers) as response:
            data = b""
            async for piece in response.aiter_bytes():
                data += piece
                began.set()
            return streamed(response.status_code, response.headers, data).text.encode()

    listening = spawn(listen(), "bystander")
    listening.add_done_callback(lambda _: began.set())
    await began.wait()
    assert not listening.done(), "the stream was over before it could be disturbed"
    yield
    assert len(await listening) == PIECES * LENGTH
