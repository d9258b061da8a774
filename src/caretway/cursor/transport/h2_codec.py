"""HTTP/2 as a client, sans I/O: checks frames by RFC 9113 (frame size, flow-control windows, CONTINUATION flood,
content-length, push), answers PING and SETTINGS, and counts the windows of both directions.

Input: bytes in any chunking, and the connection's commands. Output: `Heard` values in order, and `outgoing`. State:
the windows, the closed halves of each stream, the peer's settings and HPACK table, the unfinished frame. Optimised for
a DATA frame on an open stream, which costs a few comparisons; every other frame is rare. A frame that breaks the RFC
raises `Http2Broken`; the matching GOAWAY is then ready to be sent.
"""

import struct
from collections.abc import Callable
from typing import Final

from hpack.exceptions import HPACKError

from .h2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    FRAME_BYTES,
    HEAD,
    HEAD_BYTES,
    MAX_FIELDS_BYTES,
    MAX_WINDOW,
    NO_TABLE,
    PADDED,
    PREFACE,
    STREAM_BITS,
    WITH_PRIORITY,
    Code,
    DataReceived,
    FieldReader,
    FrameType,
    GoAway,
    H2Setting,
    HeadReceived,
    Heard,
    Http2Broken,
    PingAnswered,
    SettingsChanged,
    StreamEnded,
    StreamReset,
    WindowOpened,
    frame,
    head_frames,
    our_settings,
    read_settings,
    unpadded,
    window_update,
)

MAX_STREAMS: Final = 2**31 - 1
MAX_CONTINUATIONS: Final = 64
"""CONTINUATION frames per block of fields. Its bytes are bounded too, but a frame may be empty."""

_unpack_head = HEAD.unpack_from


class _Halves:
    """The protocol state of one stream."""

    __slots__ = ("expected", "headed", "our_end", "receive_window", "received", "send_window")

    def __init__(self, send_window: int, receive_window: int) -> None:
        self.send_window = send_window
        self.receive_window = receive_window
        self.headed = False
        self.expected: int | None = None
        """The value of `content-length`."""
        self.received = 0
        self.our_end = False


class H2Codec:
    __slots__ = (
        "_block",
        "_continued",
        "_fields",
        "_first_receive_window",
        "_first_send_window",
        "_receive_window",
        "_rest",
        "_send_window",
        "_streams",
        "_table_sent",
        "_takers",
        "last_stream_id",
        "max_concurrent_streams",
        "max_frame_bytes",
        "outgoing",
    )

    def __init__(self, stream_window_bytes: int, connection_window_bytes: int) -> None:
        self.max_concurrent_streams = MAX_STREAMS
        self.max_frame_bytes = FRAME_BYTES
        """The peer's maximum frame size."""
        self.last_stream_id = 0
        """The newest stream's id; 0 before the first stream."""
        self._first_send_window = FIRST_WINDOW
        self._first_receive_window = stream_window_bytes
        self._send_window = FIRST_WINDOW
        self._receive_window = max(FIRST_WINDOW, connection_window_bytes)
        self._streams: dict[int, _Halves] = {}
        self._rest = b""
        self._block: tuple[int, int, bytearray] | None = None  # an unfinished block of fields: stream, flags, bytes
        self._continued = 0  # CONTINUATION frames of `_block` so far
        self._fields = FieldReader()
        self.outgoing: list[bytes] = []
        """Frames to send; the caller takes them."""
        self._table_sent = False
        self._takers: dict[int, Callable[[int, int, bytes, list[Heard]], None]] = {
            FrameType.DATA: self._take_data,
            FrameType.HEADERS: self._take_headers,
            FrameType.RST_STREAM: self._take_reset,
            FrameType.SETTINGS: self._take_settings,
            FrameType.PUSH_PROMISE: self._take_push,
            FrameType.PING: self._take_ping,
            FrameType.GOAWAY: self._take_goaway,
            FrameType.WINDOW_UPDATE: self._take_window,
            FrameType.CONTINUATION: self._take_continuation,
        }

    # -- sending -------------------------------------------------------------------------------------------------------

    def greet(self) -> None:
        self.outgoing += (PREFACE, our_settings(self._first_receive_window))
        if self._receive_window > FIRST_WINDOW:
            self.outgoing.append(window_update(0, self._receive_window - FIRST_WINDOW))

    def open(self, block: bytes, *, end: bool) -> int:
        """Begin a request with encoded header fields. Returns the stream's id."""
        self.last_stream_id = stream_id = self.last_stream_id + 2 if self.last_stream_id else 1
        halves = self._streams[stream_id] = _Halves(self._first_send_window, self._first_receive_window)
        halves.our_end = end
        if not self._table_sent:
            self._table_sent, block = True, NO_TABLE + block
        self.outgoing.append(head_frames(stream_id, block, end=end, limit=self.max_frame_bytes))
        return stream_id

    def room(self, stream_id: int) -> int:
        """How many bytes this stream may send now in one frame."""
        halves = self._streams.get(stream_id)
        return min(halves.send_window, self._send_window, self.max_frame_bytes) if halves is not None else 0

    def send_whole(self, stream_id: int, data: bytes) -> bool:
        """Send a message in one DATA frame. Returns False, and sends nothing, if the windows have no room for it."""
        halves, size = self._streams.get(stream_id), len(data)
        if halves is None or size > halves.send_window or size > self._send_window or size > self.max_frame_bytes:
            return False
        halves.send_window -= size
        self._send_window -= size
        self.outgoing.append(HEAD.pack(size << 8, 0, stream_id) + data)
        return True

    def send(self, stream_id: int, data: bytes, *, end: bool) -> None:
        """Send one DATA frame of at most `room` bytes."""
        halves, size = self._streams[stream_id], len(data)
        halves.send_window -= size
        self._send_window -= size
        self.outgoing.append(frame(FrameType.DATA, END_STREAM if end else 0, stream_id, data))
        halves.our_end |= end

    def finish(self, stream_id: int) -> None:
        """End our half of a stream after the peer has ended its half. The stream is then forgotten."""
        halves = self._streams.pop(stream_id, None)
        if halves is not None and not halves.our_end:
            self.outgoing.append(frame(FrameType.DATA, END_STREAM, stream_id))

    def reset(self, stream_id: int) -> None:
        if self._streams.pop(stream_id, None) is not None:
            self.outgoing.append(frame(FrameType.RST_STREAM, 0, stream_id, Code.CANCEL.to_bytes(4, "big")))

    def take_more(self, size: int, stream_id: int = 0) -> None:
        """Reopen a receive window by `size` received bytes."""
        if stream_id:
            self._streams[stream_id].receive_window += size
        else:
            self._receive_window += size
        self.outgoing.append(window_update(stream_id, size))

    def ping(self, payload: bytes) -> None:
        self.outgoing.append(frame(FrameType.PING, 0, 0, payload))

    def say_goodbye(self, code: Code = Code.NO_ERROR) -> None:
        self.outgoing.append(frame(FrameType.GOAWAY, 0, 0, struct.pack(">II", 0, code)))

    # -- receiving
    # ------------------------------------------------------------------------------------------------------

    def piece(self, data: bytes) -> tuple[int, bytes] | None:
        """(stream, its bytes) if a read is exactly one DATA frame in the middle of a stream, as nearly all reads are.
        None if `receive` must handle the read."""
        size = len(data) - HEAD_BYTES
        if size <= 0 or self._rest or self._block is not None:
            return None
        word, flags, stream_id = _unpack_head(data)
        halves = self._streams.get(stream_id)
        if (
            halves is None
            or flags
            or word != size << 8
            or not halves.headed
            or size > FRAME_BYTES
            or size > halves.receive_window
            or size > self._receive_window
        ):
            return None
        halves.receive_window -= size
        self._receive_window -= size
        halves.received += size
        return stream_id, data[HEAD_BYTES:]

    def receive(self, data: bytes) -> list[Heard]:
        if self._rest:
            data = self._rest + data  # never more than one frame and one read
        heard: list[Heard] = []
        streams, start, size = self._streams, HEAD_BYTES, len(data)
        try:
            while start <= size:
                word, flags, stream_id = _unpack_head(data, start - HEAD_BYTES)
                length = word >> 8
                if length > FRAME_BYTES:
                    raise Http2Broken(Code.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
                at = start + length
                if at > size:
                    break
                if (
                    not flags
                    and not word & 0xFF
                    and (halves := streams.get(stream_id)) is not None
                    and halves.headed
                    and self._block is None
                ):
                    # Nearly every frame is DATA in the middle of a stream.
                    halves.receive_window -= length
                    self._receive_window -= length
                    halves.received += length
                    if halves.receive_window < 0 or self._receive_window < 0:
                        raise Http2Broken(Code.FLOW_CONTROL_ERROR, "more DATA than was allowed")
                    heard.append(DataReceived(stream_id, data[start:at], length))
                else:
                    self._take(word & 0xFF, flags, stream_id & STREAM_BITS, data[start:at], heard)
                start = at + HEAD_BYTES
        except Http2Broken as broken:
            broken.stream_id = stream_id & STREAM_BITS
            self.say_goodbye(broken.code)
            raise
        self._rest = data[start - HEAD_BYTES :]
        return heard

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes, heard: list[Heard]) -> None:
        if self._block is not None and (kind != FrameType.CONTINUATION or stream_id != self._block[0]):
            raise Http2Broken(Code.PROTOCOL_ERROR, f"a frame of type {kind} inside a block of header fields")
        if kind in self._takers:  # unknown frame types are ignored
            self._takers[kind](stream_id, flags, payload, heard)

    def _must_be_over(self, stream_id: int, what: str) -> None:
        """Accept a frame for a stream that has ended. Raises `Http2Broken` if the stream never existed."""
        if not stream_id & 1 or stream_id > self.last_stream_id:
            raise Http2Broken(Code.PROTOCOL_ERROR, f"{what} on stream {stream_id}, which was never opened")

    def _take_data(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        halves = self._streams.get(stream_id)
        if halves is None:
            self._must_be_over(stream_id, "DATA")
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise Http2Broken(Code.FLOW_CONTROL_ERROR, "more DATA than was allowed")
        if halves is None:
            heard.append(DataReceived(stream_id, b"", size))  # no stream, but they count in the connection's window
            return
        if not halves.headed:
            raise Http2Broken(Code.PROTOCOL_ERROR, "DATA before HEADERS")
        halves.receive_window -= size
        if halves.receive_window < 0:
            raise Http2Broken(Code.FLOW_CONTROL_ERROR, "more DATA than was allowed")
        if flags & PADDED:
            payload = unpadded(payload)
        halves.received += len(payload)
        heard.append(DataReceived(stream_id, payload, size))
        if flags & END_STREAM:
            self._ended(stream_id, halves, heard)

    def _ended(self, stream_id: int, halves: _Halves, heard: list[Heard]) -> None:
        if halves.expected is not None and halves.expected != halves.received:
            self.reset(stream_id)
            heard.append(StreamReset(stream_id, Code.PROTOCOL_ERROR))
            return
        if halves.our_end:
            del self._streams[stream_id]
        heard.append(StreamEnded(stream_id))

    def _take_headers(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & WITH_PRIORITY:
            payload = payload[5:]
        if stream_id not in self._streams:
            self._must_be_over(stream_id, "HEADERS")
        if flags & END_HEADERS:
            self._take_fields(stream_id, flags, payload, heard)
        else:
            self._block, self._continued = (stream_id, flags, bytearray(payload)), 0

    def _take_continuation(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        if self._block is None:
            raise Http2Broken(Code.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        _, first_flags, block = self._block
        block += payload
        self._continued += 1
        if len(block) > MAX_FIELDS_BYTES or self._continued > MAX_CONTINUATIONS:
            what = f"header fields in {self._continued + 1} frames and {len(block)} bytes, and no end"
            raise Http2Broken(Code.ENHANCE_YOUR_CALM, what)
        if flags & END_HEADERS:
            self._block = None
            self._take_fields(stream_id, first_flags, bytes(block), heard)

    def _take_fields(self, stream_id: int, flags: int, block: bytes, heard: list[Heard]) -> None:
        try:
            fields = self._fields.read(block)
        except (HPACKError, IndexError, ValueError) as broken:
            raise Http2Broken(Code.COMPRESSION_ERROR, f"header fields that cannot be read: {broken}") from broken
        halves = self._streams.get(stream_id)
        if halves is None:
            return
        if halves.headed:
            if not flags & END_STREAM:
                raise Http2Broken(Code.PROTOCOL_ERROR, "a second block of header fields in the middle of a stream")
            self._ended(stream_id, halves, heard)
            return
        status = fields.status
        if status is None:
            raise Http2Broken(Code.PROTOCOL_ERROR, "a response without a status")
        if 100 <= status < 200 and not flags & END_STREAM:
            return  # an informational response; the real one follows
        halves.headed = True
        halves.expected = fields.length
        heard.append(HeadReceived(stream_id, status, fields.headers))
        if flags & END_STREAM:
            halves.expected = None  # an answer without a body, such as 304, may have any length here
            self._ended(stream_id, halves, heard)

    def _take_reset(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        if len(payload) != 4:
            raise Http2Broken(Code.FRAME_SIZE_ERROR, f"a RST_STREAM of {len(payload)} bytes")
        if self._streams.pop(stream_id, None) is not None:
            heard.append(StreamReset(stream_id, int.from_bytes(payload, "big")))
        else:
            self._must_be_over(stream_id, "RST_STREAM")

    def _take_settings(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        theirs = read_settings(stream_id, flags, payload)
        if theirs is None:
            return  # the peer acknowledged our settings
        for name, value in theirs:
            if name == H2Setting.INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
            elif name == H2Setting.MAX_FRAME_SIZE:
                self.max_frame_bytes = value
            elif name == H2Setting.MAX_CONCURRENT_STREAMS:
                self.max_concurrent_streams = value
        self.outgoing.append(frame(FrameType.SETTINGS, ACK, 0))
        heard.append(SettingsChanged())

    def _resize_windows(self, first: int) -> None:
        for halves in self._streams.values():
            halves.send_window += first - self._first_send_window  # may become negative
            if halves.send_window > MAX_WINDOW:
                raise Http2Broken(Code.FLOW_CONTROL_ERROR, f"a window of {halves.send_window} bytes by SETTINGS")
        self._first_send_window = first

    def _take_push(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        raise Http2Broken(Code.PROTOCOL_ERROR, "a push, which was refused")

    def _take_ping(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        if len(payload) != 8 or stream_id:
            raise Http2Broken(Code.FRAME_SIZE_ERROR, f"a PING of {len(payload)} bytes on stream {stream_id}")
        if flags & ACK:
            heard.append(PingAnswered(payload))
        else:
            self.outgoing.append(frame(FrameType.PING, ACK, 0, payload))

    def _take_goaway(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        if len(payload) < 8 or stream_id:
            raise Http2Broken(Code.FRAME_SIZE_ERROR, f"a GOAWAY of {len(payload)} bytes on stream {stream_id}")
        heard.append(GoAway(int.from_bytes(payload[:4], "big") & STREAM_BITS))

    def _take_window(self, stream_id: int, flags: int, payload: bytes, heard: list[Heard]) -> None:
        size = int.from_bytes(payload, "big") & STREAM_BITS
        if len(payload) != 4 or not size:
            raise Http2Broken(Code.PROTOCOL_ERROR, f"a WINDOW_UPDATE of {len(payload)} bytes by {size}")
        if stream_id:
            halves = self._streams.get(stream_id)
            if halves is None:
                self._must_be_over(stream_id, "WINDOW_UPDATE")
                return
            halves.send_window = opened = halves.send_window + size
        else:
            self._send_window = opened = self._send_window + size
        if opened > MAX_WINDOW:
            raise Http2Broken(Code.FLOW_CONTROL_ERROR, f"a window of {opened} bytes")
        heard.append(WindowOpened(stream_id))
