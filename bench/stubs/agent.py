"""Cursor's Agent API over h2c, as fast as it goes: `python -m bench.stubs.agent PORT`.

HTTP/2 is framed by hand and messages are built beforehand, so that this end is not what is measured. Flow control is
honoured in both directions. It answers the run that was asked for and nothing else of the protocol.
"""

import asyncio
import struct
from collections import deque
from typing import Final, cast

from hpack import Decoder

from caretway.cursor.wire.envelope import EnvelopeReader
from caretway.cursor.wire.paths import RUN, USABLE_MODELS

from ..script import Order, read_order
from . import agent_messages as messages
from .serving import Ticker, serve

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, WINDOW = 0x0, 0x1, 0x3, 0x4, 0x6, 0x8
CONTINUATION: Final = 0x9
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
MAX_FRAME: Final = 16384
FIRST_WINDOW: Final = 65535
OUR_WINDOW: Final = 8 * 1024 * 1024
HEARTBEAT_S: Final = 5.0


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _head(content_type: bytes) -> bytes:
    return b"\x88" + _literal(b"content-type", content_type)


_RUN: Final = RUN.encode()
_RUN_HEAD: Final = _head(b"application/connect+proto")
_UNARY_HEAD: Final = _head(b"application/proto")
_JSON_HEAD: Final = _head(b"application/json")
_GREETING: Final = frame(SETTINGS, 0, 0, struct.pack(">HIHI", 0x3, 1000, 0x4, OUR_WINDOW)) + frame(
    WINDOW, 0, 0, struct.pack(">I", OUR_WINDOW - FIRST_WINDOW)
)


class Stream:
    """One request of the gateway's."""

    def __init__(self, connection: "Connection", number: int, path: str, window: int) -> None:
        self.window = window
        self.pending: deque[tuple[bytes, bool]] = deque()
        self._connection = connection
        self._number = number
        self._path = path
        self._reader = EnvelopeReader()
        self._order: Order | None = None
        self._calls = 0
        self._ticker: Ticker | None = None

    def data(self, data: bytes) -> None:
        if self._path != RUN:
            return
        for message in self._reader.feed(data):
            if self._order is None:
                self._order = read_order(message)
                self._begin(self._order)
            elif self._order.park and messages.is_result(message):
                self.stop()  # its heartbeats
                self._answer_to(read_order(message))

    def unary(self) -> None:
        """The request is complete; a run goes on by itself."""
        if self._path == RUN:
            return
        if self._path == USABLE_MODELS:
            self._answer(_UNARY_HEAD, messages.MODELS)
        else:
            self._answer(_JSON_HEAD, b'{"items":[]}')

    def _answer(self, head: bytes, body: bytes) -> None:
        self._connection.write(frame(HEADERS, END_HEADERS, self._number, head))
        self._write(body, end=True)

    def _begin(self, order: Order) -> None:
        self._connection.write(frame(HEADERS, END_HEADERS, self._number, _RUN_HEAD))
        self._answer_to(order)

    def _answer_to(self, order: Order) -> None:
        if order.park:
            self._calls += 1
            self._write(messages.call(self._calls, order.tool), end=False)
            self._beat()
        elif order.hold:
            self._write(messages.delta(0, order.size), end=False)
            self._beat()
        elif order.gap_us:
            self._pace(order)
        else:
            block: list[bytes] = []
            waiting = 0
            for index in range(order.count):
                delta = messages.delta(index, order.size)
                if waiting + len(delta) > MAX_FRAME:
                    self._write(b"".join(block), end=False)
                    block, waiting = [], 0
                block.append(delta)
                waiting += len(delta)
            if waiting + len(messages.FINISH) > MAX_FRAME:
                self._write(b"".join(block), end=False)
                block = []
            self._write(b"".join((*block, messages.FINISH)), end=True)

    def _beat(self) -> None:
        def step() -> bool:
            self._write(messages.HEARTBEAT, end=False)
            return True

        self._ticker = Ticker(HEARTBEAT_S, step)

    def _pace(self, order: Order) -> None:
        left = iter(range(order.count))

        def step() -> bool:
            index = next(left, None)
            if index is None:
                self._write(messages.FINISH, end=True)
                return False
            self._write(messages.delta(index, order.size), end=False)
            return True

        self._ticker = Ticker(order.gap_us / 1e6, step)

    def _write(self, data: bytes, *, end: bool) -> None:
        self.pending.append((data, end))
        self._connection.flush(self._number, self)

    def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = bytearray()
        self._greeted = False
        self._hpack = Decoder()
        self._streams: dict[int, Stream] = {}
        self._window = FIRST_WINDOW
        self._stream_window = FIRST_WINDOW
        self._headers: tuple[int, bytearray, bool] | None = None
        self._out: list[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write(_GREETING)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for stream in self._streams.values():
            stream.stop()
        self._streams.clear()

    def write(self, data: bytes) -> None:
        if self._out is not None:
            self._out.append(data)
        elif self._transport is not None:
            self._transport.write(data)

    def flush(self, number: int, stream: Stream) -> None:
        """Send what both windows allow; a piece that does not fit is cut."""
        while stream.pending:
            data, end = stream.pending[0]
            room = min(self._window, stream.window, MAX_FRAME)
            if room < len(data):
                if room <= 0:
                    return
                stream.pending[0] = (data[room:], end)
                data, end = data[:room], False
            else:
                stream.pending.popleft()
            self._window -= len(data)
            stream.window -= len(data)
            self.write(frame(DATA, END_STREAM if end else 0, number, data))
            if end:
                self._streams.pop(number, None)
                stream.stop()

    def data_received(self, data: bytes) -> None:
        rest = self._rest
        rest += data
        if not self._greeted:
            if len(rest) < len(PREFACE):
                return
            self._greeted = True
            del rest[: len(PREFACE)]
        self._out = []
        at = 0
        while len(rest) - at >= 9:
            length_kind, flags, number = struct.unpack_from(">IBI", rest, at)
            stop = at + 9 + (length_kind >> 8)
            if stop > len(rest):
                break
            self._take(length_kind & 0xFF, flags, number & 0x7FFFFFFF, bytes(rest[at + 9 : stop]))
            at = stop
        del rest[:at]
        out, self._out = self._out, None
        if out and self._transport is not None:
            self._transport.write(b"".join(out))

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            if payload:
                credit = struct.pack(">I", len(payload))
                self.write(frame(WINDOW, 0, 0, credit))
                if not flags & END_STREAM:
                    self.write(frame(WINDOW, 0, number, credit))
            if (stream := self._streams.get(number)) is not None:
                stream.data(payload)
                if flags & END_STREAM:
                    self._half_closed(number)
        elif kind in (HEADERS, CONTINUATION):
            block = bytearray(payload) if self._headers is None else self._headers[1] + payload
            ends = flags & END_STREAM if self._headers is None else self._headers[2]
            self._headers = (number, block, bool(ends))
            if flags & END_HEADERS:
                self._headers = None
                # The gateway adds nothing to the table, so the head of a run need not be read to be known as one.
                path = RUN if _RUN in block else dict(self._hpack.decode(bytes(block), raw=True))[b":path"].decode()
                self._streams[number] = Stream(self, number, path, self._stream_window)
                if ends:
                    self._half_closed(number)
        elif kind == WINDOW:
            self._opened(number, struct.unpack(">I", payload)[0])
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING and not flags & ACK:
            self.write(frame(PING, ACK, 0, payload))
        elif kind == RST and (stream := self._streams.pop(number, None)) is not None:
            stream.stop()

    def _half_closed(self, number: int) -> None:
        if (stream := self._streams.get(number)) is not None:
            stream.unary()

    def _opened(self, number: int, credit: int) -> None:
        if number:
            if (stream := self._streams.get(number)) is not None:
                stream.window += credit
                self.flush(number, stream)
            return
        self._window += credit
        for each, stream in list(self._streams.items()):
            if stream.pending:
                self.flush(each, stream)

    def _settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == 0x4:
                for stream in self._streams.values():
                    stream.window += value - self._stream_window
                self._stream_window = value
        self.write(frame(SETTINGS, ACK, 0, b""))


if __name__ == "__main__":
    serve(Connection)
