"""When an HTTP/2 connection looks away for a moment: only while several runs speak, in small reads that come thick."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from caretway.core.errors import GatewayError
from caretway.cursor.transport.h2_connection import SMALL_READ_BYTES, H2Connection
from caretway.cursor.transport.h2_frames import END_HEADERS, END_STREAM, FrameType, frame
from caretway.cursor.transport.ports import TransportLimits

SOON_S = 0.2
HEAD = b"\x88"
"""`:status: 200`"""


class Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.again = asyncio.Event()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return None

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.log.append("away")

    def resume_reading(self) -> None:
        self.log.append("again")
        self.again.set()


class Heard:
    def __init__(self) -> None:
        self.data = b""

    def on_head(self, status: int, headers: Mapping[str, str]) -> None: ...

    def on_data(self, data: bytes) -> None:
        self.data += data

    def on_end(self, error: GatewayError | None) -> None: ...


def connected(runs: int, gather_s: float = SOON_S) -> tuple[H2Connection, Socket, list[Heard]]:
    connection, socket = H2Connection(TransportLimits(gather_s=gather_s), "host", lambda _: None), Socket()
    connection.connection_made(socket)
    connection.data_received(frame(FrameType.SETTINGS, 0, 0))
    heard = [Heard() for _ in range(runs)]
    for number, run in enumerate(heard):
        connection.open(b"\x83", run)
        connection.data_received(frame(FrameType.HEADERS, END_HEADERS, 2 * number + 1, HEAD))
    return connection, socket, heard


def said(run: int, text: bytes) -> bytes:
    return frame(FrameType.DATA, 0, 2 * run + 1, text)


async def test_two_runs_that_speak_at_a_time_are_read_together() -> None:
    connection, socket, heard = connected(2)
    connection.data_received(said(0, b"a"))
    connection.data_received(said(1, b"b"))
    assert socket.log[-1] == "away"
    assert [run.data for run in heard] == [b"a", b"b"]  # what was read is passed on first
    await socket.again.wait()
    away = socket.log.count("away")
    connection.data_received(said(0, b"c") + said(1, b"d"))
    assert socket.log.count("away") == away + 1  # two came meanwhile: it paid
    assert [run.data for run in heard] == [b"ac", b"bd"]


NEVER = {
    "a run that is alone": (1, SOON_S, [said(0, b"a")] * 9),
    "nobody waits when it is switched off": (2, 0.0, [said(0, b"a"), said(1, b"b"), said(0, b"c") + said(1, b"d")]),
    "much at a time": (2, SOON_S, [said(0, bytes(SMALL_READ_BYTES))] * 3),
    "an answer that ends": (2, SOON_S, [frame(FrameType.DATA, END_STREAM, 1, b"a") + said(1, b"b")]),
    "an answer that begins": (1, SOON_S, [said(0, b"a") + frame(FrameType.PING, 0, 0, bytes(8))]),
}


@pytest.mark.parametrize("name", NEVER)
async def test_who_never_waits(name: str) -> None:
    runs, gather_s, reads = NEVER[name]
    connection, socket, _ = connected(runs, gather_s)
    for read in reads:
        connection.data_received(read)
    assert socket.log == []


async def test_reads_that_come_slowly_are_taken_as_they_come() -> None:
    connection, socket, _ = connected(2, gather_s=0.001)
    for _ in range(3):
        await asyncio.sleep(0.005)
        connection.data_received(said(0, b"a"))
    assert socket.log == []
