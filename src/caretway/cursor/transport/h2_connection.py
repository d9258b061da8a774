"""One HTTP/2 connection with many streams: schedules their writes fairly and in batches, applies backpressure to each
stream, isolates a failing stream, coalesces small reads, drains and closes.

The callback that reads bytes delivers them, once per stream and read; data that streams send meanwhile leaves in one
write at the end of the callback. Each stream has its own bounded outbox and receive window, so a slow reader or a slow
peer stops only one stream. The content of the streams is opaque here.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final, cast

from ...core.errors import ErrorKind, GatewayError
from .dial import ALPN_H2
from .faults import broke_protocol, cut, unhandled
from .h2_codec import H2Codec
from .h2_frames import HEAD_BYTES, LAST_STREAM_ID, DataReceived, FrameType, HeadReceived, Heard, Http2Broken
from .h2_liveness import Liveness
from .h2_stream import H2Stream, gather
from .ports import StreamSink, TransportLimits

log = logging.getLogger(__name__)

ACKNOWLEDGE_AT: Final = 4
"""A receive window is reopened when this fraction (1/N) of it is used up."""
_PIECES: Final = frozenset({DataReceived})
_stream_id: Final = attrgetter("stream_id")
SMALL_READ_BYTES: Final = 8 * 1024
"""A read larger than this is not delayed to be coalesced."""
WRITE_BATCH_BYTES: Final = 256 * 1024
"""Bytes to frame before checking whether the transport is blocked."""
CONTROL_BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""A peer that provokes answers (PINGs, SETTINGS) and does not read them is cut off at this backlog."""
_TYPE_AT: Final = 3


class NotHttp2(GatewayError):
    """The peer answers, but does not speak HTTP/2."""


def speaks_http2(first_bytes: bytes | bytearray) -> bool | None:
    """Whether the first frame is SETTINGS, as HTTP/2 demands: `HTTP/1.1 400` has a P in place of the type. None: too
    few bytes yet."""
    return first_bytes[_TYPE_AT] == FrameType.SETTINGS if len(first_bytes) > _TYPE_AT else None


class H2Writer:
    """Schedules the writes of a connection: streams take turns frame by frame (fairness). A stream with a shut window
    waits for the update that opens it; a full socket stops all streams, and their data stays in their outboxes. Many
    messages leave in one write, at the end of the read that caused them or in the next round of the loop."""

    __slots__ = (
        "_due",
        "_framing",
        "_life",
        "_loop",
        "_not_read",
        "_over",
        "_stuck",
        "blocked",
        "reading",
        "sendable",
        "transport",
    )

    def __init__(
        self, framing: H2Codec, life: Liveness, loop: asyncio.AbstractEventLoop, not_read: Callable[[], None]
    ) -> None:
        """`not_read` is called if the peer does not read the answers that it provokes."""
        self._framing = framing
        self._life = life
        self._loop = loop
        self._not_read = not_read
        self.transport: asyncio.Transport | None = None
        self.sendable: dict[int, H2Stream] = {}
        """Streams with data to send, in turn: each sends one frame and goes to the back."""
        self.reading = False
        """Whether a read is being processed; its end sends what is queued."""
        self.blocked = False
        """The transport's buffer is full."""
        self._stuck = False  # a stream found its window shut and left `sendable`
        self._due = False
        self._over = False

    def again(self, streams: Mapping[int, H2Stream]) -> None:
        """Schedule the waiting streams again, because windows may have been opened."""
        if self._stuck:
            self._stuck = False
            self.sendable.update((each.id, each) for each in streams.values() if each.outbox.size)

    def soon(self) -> None:
        if not self.reading and not self._due:
            self._due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._due = False
        sendable, framing = self.sendable, self._framing
        while sendable and not self.blocked and not self._over:
            framed = 0
            while sendable and framed < WRITE_BATCH_BYTES:
                stream_id = next(iter(sendable))
                stream = sendable.pop(stream_id)
                data = stream.outbox.take(framing.room(stream_id))
                if not data:
                    self._stuck = True  # its window is shut; the update that opens it puts the stream back
                    continue
                framing.send(stream_id, data, end=stream.complete and not stream.outbox.size)
                framed += len(data)
                if stream.outbox.size:
                    sendable[stream_id] = stream
            self._life.sent += framed
            self.write()
        self.write()

    def write(self) -> None:
        """Write all framed bytes at once."""
        outgoing = self._framing.outgoing
        if not outgoing or self._over or self.transport is None:
            return
        self.transport.write(b"".join(outgoing))
        outgoing.clear()
        if self.blocked and self.transport.get_write_buffer_size() > CONTROL_BACKLOG_BYTES:
            self._not_read()

    def stop(self) -> None:
        """Drop the queue and send nothing any more."""
        self._over = True
        self.sendable.clear()


class H2Connection(asyncio.Protocol):
    __slots__ = (
        "_acknowledge_at",
        "_cause",
        "_draining",
        "_framing",
        "_gather_s",
        "_greeting",
        "_host",
        "_life",
        "_limits",
        "_loop",
        "_on_change",
        "_out",
        "_places",
        "_reopen_at",
        "_streams",
        "_transport",
        "_unread",
        "alone",
        "closed",
        "ready",
    )

    def __init__(self, limits: TransportLimits, host: str, on_change: Callable[["H2Connection"], None]) -> None:
        """`on_change` is called when a stream's place became free and when the connection is lost."""
        self._limits = limits
        self._host = host
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._framing = H2Codec(limits.stream_window_bytes, limits.connection_window_bytes)
        self._reopen_at = max(1, limits.stream_window_bytes // ACKNOWLEDGE_AT)
        self._acknowledge_at = limits.connection_window_bytes // ACKNOWLEDGE_AT
        self._gather_s = limits.gather_s
        self._transport: asyncio.Transport | None = None
        self._greeting: bytearray | None = bytearray()  # the peer's first bytes, until its protocol is known
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._draining = False
        self._places = 0  # for streams; 0 before the peer's settings are known
        self._cause: GatewayError | None = None  # set once, when the connection has failed or was shut
        self._streams: dict[int, H2Stream] = {}
        self._unread = 0
        self._life = Liveness(self, limits, self._loop)
        self._out = H2Writer(self._framing, self._life, self._loop, self._not_read)
        self.alone = False
        """Whether one run owns the connection until the run is over."""

    # -- for the pool -------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more streams may be opened now; 0 or less: none. A connection in doubt has no room."""
        if self._draining or self.alone or self._life.in_doubt:
            return 0
        return self._places - len(self._streams)

    @property
    def usable(self) -> bool:
        """Whether the connection accepts new streams: it is neither draining, shut nor lost."""
        return not self._draining

    @property
    def fresh(self) -> bool:
        """Whether no request has gone out yet, so the peer cannot have dropped it as an idle connection."""
        return self._framing.last_stream_id == 0

    def open(self, block: bytes, sink: StreamSink, body: bytes | None = None) -> H2Stream:
        """Start a request. Needs `room`, or a connection of its own. `block`: header fields. `queue` adds a missing
        `body`."""
        stream_id = self._framing.open(block, end=body == b"")
        stream = self._streams[stream_id] = H2Stream(self, stream_id, sink, complete=body is not None)
        if body:
            stream.outbox.add(body)
            self._out.sendable[stream_id] = stream
        self._draining = self._draining or stream_id >= LAST_STREAM_ID
        self._life.opened(first=len(self._streams) == 1)
        self._out.soon()
        return stream

    def shut(self, cause: GatewayError) -> None:
        """Send GOAWAY and close; streams that are still open end with `cause`."""
        if self._cause is None and self._transport is not None:
            self._framing.say_goodbye()
            self._out.write()
            self._transport.close()
            self._end_all(cause)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- for the streams ----------------------------------------------------------------------------------------------

    def queue(self, stream: H2Stream, data: bytes) -> None:
        """Send a message. It is framed at once if its windows and the socket have room; otherwise it waits its turn."""
        out, waiting = self._out, stream.outbox.size
        if stream.over:
            return
        if not waiting and not out.blocked and self._framing.send_whole(stream.id, data):
            self._life.sent += len(data)
            if not out.reading:  # the end of a read writes what it caused
                out.soon()
            return
        if waiting and waiting + len(data) > self._limits.max_unsent_bytes:
            self.reset(stream)
            error = cut(f"{self._host} does not take what is sent; {waiting} bytes are waiting")
            self._loop.call_soon(stream.tell_end, error)  # soon: we are inside a call of the owner's
            return
        stream.outbox.add(data)
        out.sendable[stream.id] = stream
        if not out.reading:
            out.soon()

    def reopen_window(self, stream: H2Stream) -> None:
        size = stream.unread
        if stream.paused or stream.ended or stream.over or size < self._reopen_at:
            return
        stream.unread = 0
        self._framing.take_more(size, stream.id)
        self._out.soon()

    def reset(self, stream: H2Stream) -> None:
        if not stream.over:
            self._forget(stream)
            self._framing.reset(stream.id)
            self._out.soon()

    def doubt(self) -> None:
        if self._cause is None:
            self._life.doubt()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._out.transport = cast(asyncio.Transport, transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (chosen := tls.selected_alpn_protocol()) != ALPN_H2:
            self._refuse(f"{self._host} chose {chosen or 'no protocol'} in the TLS handshake")
            return
        self._framing.greet()
        self._out.write()

    def data_received(self, data: bytes) -> None:
        now, size, life = self._loop.time(), len(data), self._life
        thick, life.heard_at = now - life.heard_at < self._gather_s, now
        life.heard += size
        if self._cause is not None:
            return
        if self._greeting is not None:
            self._greeting += data
            verdict = speaks_http2(self._greeting)
            if verdict is False:
                self._refuse(f"{self._host} answered {bytes(self._greeting[:24])!r} to the HTTP/2 greeting")
            if not verdict:
                return
            data, self._greeting = bytes(self._greeting), None
        out = self._out
        out.reading = True
        try:
            piece = self._framing.piece(data)
            if piece is not None:
                stream_id, payload = piece
                self._take_piece(stream_id, payload, size - HEAD_BYTES)
            else:
                thick = self._take(self._framing.receive(data)) and self._gather_s > 0
        except Http2Broken as broken:
            self._break(broken)
        finally:
            out.reading = False
        if out.sendable:
            out.flush()
        elif self._framing.outgoing:
            out.write()
        if thick and len(self._streams) > 1 and size < SMALL_READ_BYTES and self._cause is None:
            self._look_away()

    def _look_away(self) -> None:
        """Pause reading for a moment to coalesce the small reads of several runs: a wake-up costs more CPU than a
        delta. A run that is alone never waits, and no run waits for the beginning or end of its answer."""
        if self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_later(self._gather_s, self._look_again)

    def _look_again(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._out.blocked = True

    def resume_writing(self) -> None:
        self._out.blocked = False
        self._out.soon()

    def connection_lost(self, exc: Exception | None) -> None:
        tls = self._transport is not None and self._transport.get_extra_info("ssl_object") is not None
        if self._greeting is not None and not tls:
            what = f"{self._host} closed the connection on the HTTP/2 greeting"
            self._end_all(NotHttp2(ErrorKind.UPSTREAM_DOWN, what))
        reason = f": {exc}" if exc is not None and str(exc) else ""
        self._end_all(cut(f"the connection to {self._host} was closed{reason}"))
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_change(self)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _take(self, heard: list[Heard]) -> bool:
        """Process one read. True if it had pieces of several streams and nothing else."""
        if not _PIECES.issuperset(map(type, heard)):
            self._dispatch(heard)
            return False
        if len(set(map(_stream_id, heard))) < len(heard):
            self._dispatch(heard)  # joins the pieces of each stream
        else:
            for piece in cast(list[DataReceived], heard):
                self._take_piece(piece.stream_id, piece.data, piece.size)
        return len(heard) > 1

    def _take_piece(self, stream_id: int, data: bytes, size: int) -> None:
        """Deliver a stream's bytes of one read; the stream goes on. `size` counts against the windows."""
        self._unread += size
        if self._unread >= self._acknowledge_at:
            self._acknowledge()
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.unread += size
        if data:
            try:
                stream.sink.on_data(data)
            except Exception as failure:  # one run's failure must not cut the other runs of the connection
                self._give_up(stream, failure)
        if stream.unread >= self._reopen_at:
            self.reopen_window(stream)

    def _acknowledge(self) -> None:
        self._framing.take_more(self._unread)
        self._unread = 0

    def _dispatch(self, heard: list[Heard]) -> None:
        """Process one read. A stream's bytes are joined and delivered once, before its end."""
        news = gather(heard, self._streams, self._host)
        self._unread += news.size
        self._draining = self._draining or news.leaving  # first: a sink that is called must not open a stream here
        for stream, head in news.heads:
            self._tell_head(stream, head)
        for stream in news.opened:
            if stream.outbox.size:
                self._out.sendable[stream.id] = stream
        if news.settings or news.all_opened:
            self._out.again(self._streams)
        if news.settings:
            self._places = min(self._limits.streams_per_connection, self._framing.max_concurrent_streams)
            if not self.ready.done():
                self.ready.set_result(None)
        for payload in news.pings:
            self._life.answered(payload)
        if self._unread >= self._acknowledge_at:
            self._acknowledge()
        for stream, error in news.touched.items():
            self._deliver(stream, error)
        if self._draining:
            self._shut_when_drained()

    def _deliver(self, stream: H2Stream, error: GatewayError | None) -> None:
        if stream.arrived and not stream.over:
            try:
                arrived, stream.arrived = stream.arrived, []
                stream.sink.on_data(arrived[0] if len(arrived) == 1 else b"".join(arrived))
            except Exception as failure:  # as above
                self._give_up(stream, failure)
        if stream.over:
            return
        if error is not None:
            self._forget(stream)
            stream.tell_end(error)
        elif stream.ended:
            self._end_our_half(stream)
            stream.tell_end(None)
        elif stream.unread >= self._reopen_at:
            self.reopen_window(stream)

    def _tell_head(self, stream: H2Stream, head: HeadReceived) -> None:
        try:
            stream.sink.on_head(head.status, head.headers)
        except Exception as failure:  # as above
            self._give_up(stream, failure)

    def _give_up(self, stream: H2Stream, failure: Exception) -> None:
        self.reset(stream)
        if not isinstance(failure, GatewayError):
            log.error("the owner of a stream failed: %s", failure, exc_info=failure)
            failure = unhandled(failure)
        stream.tell_end(failure)

    # -- liveness and the end -----------------------------------------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """Whether there are streams on the connection."""
        return bool(self._streams)

    def send_ping(self, payload: bytes) -> None:
        self._framing.ping(payload)
        self._out.soon()

    def proven(self) -> None:
        """The peer of a connection in doubt has answered: report that the connection has room again."""
        self._on_change(self)

    def unheard(self, waited_s: float) -> None:
        self._fail(cut(f"{self._host} did not answer a PING within {waited_s:.3g} s; the connection is given up"))

    def idle(self) -> None:
        self.shut(cut(f"the idle connection to {self._host} was closed"))

    def _end_our_half(self, stream: H2Stream) -> None:
        if stream.outbox.size:
            self.reset(stream)
            return
        self._forget(stream)
        self._framing.finish(stream.id)
        self._out.soon()

    def _forget(self, stream: H2Stream) -> None:
        stream.forget()
        self._out.sendable.pop(stream.id, None)
        del self._streams[stream.id]
        if not self._streams:
            self.alone = False
            self._life.emptied()
            if self._draining:
                self._loop.call_soon(self._shut_when_drained)
        self._on_change(self)

    def _shut_when_drained(self) -> None:
        if self._draining and not self._streams:
            self._out.flush()
            self.shut(cut(f"the connection to {self._host} is retired"))

    def _not_read(self) -> None:
        self._fail(cut(f"{self._host} does not read what it asks for"))

    def _refuse(self, what: str) -> None:
        self._fail(NotHttp2(ErrorKind.UPSTREAM_DOWN, f"Cursor: {what}", hint="Try --agent-transport http1."))

    def _fail(self, cause: GatewayError) -> None:
        if self._cause is None:
            self._out.write()
            self.abort()
            self._end_all(cause)

    def _break(self, broken: Http2Broken) -> None:
        """The stream that caused the error ends with it; the other streams see a cut connection."""
        mistake = broke_protocol(what := f"{self._host} broke HTTP/2: {broken}")
        culprit = self._streams.pop(broken.stream_id, None)
        self._fail(cut(what) if self.ready.done() else mistake)
        if culprit is not None:
            culprit.cut(mistake)

    def _end_all(self, cause: GatewayError) -> None:
        if self._cause is not None:
            return
        self._cause = cause
        self._draining = True
        self._life.stop()
        if not self.ready.done():
            self.ready.set_exception(cause)
            self.ready.exception()  # marks it as retrieved: there may be no waiter
        streams = list(self._streams.values())
        self._streams.clear()
        self._out.stop()
        for stream in streams:
            stream.cut(cause)
