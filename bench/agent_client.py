"""The stand-in for Cursor, read directly: what nobody who stands in between can go below.

A run over h2c whose frames are built beforehand; of the answer only the moments of its first piece and its end matter.
"""

import asyncio
import time
from typing import Final, cast

from caretway.cursor.transport.h2_frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    FrameType,
    H2Setting,
    field_block,
    frame,
    settings,
    window_update,
)
from caretway.cursor.wire.envelope import pack, write_end
from caretway.cursor.wire.messages import pb
from caretway.cursor.wire.paths import RUN

from .load import PATIENCE_S, WrongAnswer
from .script import FIRST_PIECE, Order

_WIDE: Final = 2**30
_END: Final = pack(write_end(None), end=True)
_HEAD: Final = b"\x20" + field_block(
    (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", RUN),
        (":authority", "127.0.0.1"),
        ("content-type", "application/connect+proto"),
        ("authorization", "Bearer bench"),
    )
)


class AgentReader(asyncio.Protocol):
    """One connection; one run at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._stream = -1
        self._first = 0.0
        self._tail = b""
        self._done: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, port: int) -> "AgentReader":
        _, reader = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return reader

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        wide = settings(((H2Setting.INITIAL_WINDOW_SIZE, _WIDE),))
        self._transport.write(PREFACE + wide + window_update(0, _WIDE))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(WrongAnswer("the stand-in closed the connection"))

    async def first_piece_ms(self, order: Order) -> float:
        """From the request to the first piece; returns when the run is over."""
        if self._transport is None:
            raise WrongAnswer("the connection is closed")
        self._stream += 2
        message = pb.AgentClientMessage()
        message.run_request.action.user_message_action.user_message.text = order.prompt()
        request = frame(FrameType.HEADERS, END_HEADERS, self._stream, _HEAD)
        request += frame(FrameType.DATA, END_STREAM, self._stream, pack(message.SerializeToString()))
        self._first, self._tail, self._done = 0.0, b"", self._loop.create_future()
        asked = time.perf_counter()
        self._transport.write(request)
        async with asyncio.timeout(PATIENCE_S):
            await self._done
        return (self._first - asked) * 1000

    def data_received(self, data: bytes) -> None:
        if not self._first and FIRST_PIECE in data:
            self._first = time.perf_counter()
        self._tail = (self._tail + data)[-len(_END) :]
        if self._first and self._tail == _END and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
