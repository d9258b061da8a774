"""The streams of an HTTP/2 connection: outbox, pause and resume (backpressure), the end, reported once. `gather`
assigns the events of one read to streams; after GOAWAY unprocessed streams may be retried. An owner's failure is logged
and affects no other stream. The connection moves the bytes.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

from ...core.errors import ErrorKind, GatewayError
from .faults import HINTS, cut
from .h2_frames import (
    Code,
    DataReceived,
    GoAway,
    HeadReceived,
    Heard,
    PingAnswered,
    SettingsChanged,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from .ports import NOBODY, StreamSink

if TYPE_CHECKING:
    from .h2_connection import H2Connection

log = logging.getLogger(__name__)


class Unprocessed(GatewayError):
    """The peer has not processed the request, so it is safe to send it again."""


def reset_fault(host: str, code: int) -> GatewayError:
    if code == Code.REFUSED_STREAM:
        return unprocessed(host, "refused the stream")
    try:
        name = Code(code).name
    except ValueError:
        name = f"code {code}"
    return cut(f"{host} reset the stream ({name})")


def unprocessed(host: str, what: str) -> Unprocessed:
    return Unprocessed(ErrorKind.UPSTREAM_DOWN, f"Cursor: {host} {what}", hint=HINTS[ErrorKind.UPSTREAM_DOWN])


class Outbox:
    """The bytes of one stream that wait for flow control. Whole messages go in; pieces no larger than the window come
    out. Waiting bytes are not copied, so sending a large message through a small window takes linear time. It uses a
    list because most outboxes are empty, and an empty deque takes ten times the memory of an empty list."""

    __slots__ = ("_first", "_offset", "_waiting", "size")

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._first = 0  # messages before this index are sent
        self._offset = 0  # bytes of the first message that are sent
        self.size = 0

    def add(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self.size += len(data)

    def take(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; small messages leave together."""
        size = self.size
        if not size or limit <= 0:
            return b""
        waiting = self._waiting
        if len(waiting) == 1 and not self._offset and size <= limit:
            self._waiting = []
            self.size = 0
            return waiting[0]
        pieces: list[memoryview] = []
        room = min(limit, size)
        self.size -= room
        while room:
            message = waiting[self._first]
            view = memoryview(message)[self._offset : self._offset + room]
            pieces.append(view)
            room -= len(view)
            self._offset += len(view)
            if self._offset == len(message):
                waiting[self._first] = b""
                self._first += 1
                self._offset = 0
        if self._first * 2 >= len(waiting):  # not for each message: that would move a long queue
            del waiting[: self._first]
            self._first = 0
        return b"".join(pieces)

    def clear(self) -> None:
        if self.size:
            self._waiting = []
            self._first = self._offset = self.size = 0


class H2Stream:
    """One request and its response."""

    __slots__ = ("arrived", "complete", "connection", "ended", "id", "outbox", "over", "paused", "sink", "unread")

    def __init__(self, connection: "H2Connection", stream_id: int, sink: StreamSink, *, complete: bool) -> None:
        self.connection = connection
        self.id = stream_id
        self.sink = sink
        self.complete = complete
        """Whether the outbox has the rest of the request, so that its last byte ends the client's half."""
        self.outbox = Outbox()
        self.arrived: list[bytes] = []
        self.unread = 0
        """Received bytes for which the window was not reopened."""
        self.paused = False
        self.ended = False
        """Whether the peer has ended its half."""
        self.over = False
        """Whether the connection has dropped the stream: nothing is sent or delivered any more."""

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.connection.reopen_window(self)

    def doubt(self) -> None:
        self.connection.doubt()

    def close(self) -> None:
        self.sink = NOBODY
        self.connection.reset(self)

    # -- for the connection -------------------------------------------------------------------------------------------

    def tell_end(self, error: GatewayError | None) -> None:
        sink, self.sink = self.sink, NOBODY
        try:
            sink.on_end(error)
        except Exception:  # one run's failure must not cut the other runs of the connection
            log.exception("the owner of a stream failed at its end")

    def forget(self) -> None:
        self.over = True
        self.outbox.clear()
        self.arrived.clear()

    def cut(self, cause: GatewayError) -> None:
        """End the stream because the connection is lost."""
        self.forget()
        self.tell_end(cause)


class ReadNews:
    __slots__ = ("all_opened", "heads", "leaving", "opened", "pings", "settings", "size", "touched")

    def __init__(self) -> None:
        self.size = 0
        """Bytes that count against the connection's window."""
        self.heads: list[tuple[H2Stream, HeadReceived]] = []
        self.touched: dict[H2Stream, GatewayError | None] = {}
        """Streams with news for their owner -> their error, if they failed."""
        self.opened: list[H2Stream] = []
        """Streams whose send window was opened."""
        self.all_opened = False
        """Whether the connection's send window was opened."""
        self.settings = False
        self.pings: list[bytes] = []
        """Payloads of answered PINGs."""
        self.leaving = False
        """Whether the peer accepts no new streams (GOAWAY)."""


def gather(heard: list[Heard], streams: Mapping[int, H2Stream], host: str) -> ReadNews:
    """Sort the events of one read by open stream, in order. The bytes of a stream are joined, so its owner gets them
    once, before its end."""
    news = ReadNews()
    touched = news.touched
    for event in heard:
        stream = streams.get(event.stream_id)
        # Every run has these, and a class pattern takes ten times as long.
        if type(event) is DataReceived:
            news.size += event.size
            if stream is not None:
                stream.unread += event.size
                if event.data:
                    stream.arrived.append(event.data)
                touched.setdefault(stream, None)
            continue
        if type(event) is WindowOpened:
            if not event.stream_id:
                news.all_opened = True
            elif stream is not None:
                news.opened.append(stream)
            continue
        if type(event) is HeadReceived:
            if stream is not None:
                news.heads.append((stream, event))
            continue
        if type(event) is StreamEnded:
            if stream is not None:
                stream.ended = True
                touched.setdefault(stream, None)
            continue
        match event:
            case StreamReset():
                if stream is not None and not stream.ended:
                    stream.ended = True
                    touched[stream] = reset_fault(host, event.code)
            case SettingsChanged():
                news.settings = True
            case PingAnswered():
                news.pings.append(event.payload)
            case GoAway():
                news.leaving = True
                for each in streams.values():
                    if each.id > event.last_stream_id and not each.ended:
                        each.ended = True
                        touched[each] = unprocessed(host, "is closing and did not take the request")
            case _:
                assert_never(event)
    return news
