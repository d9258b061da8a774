"""HTTP/2 in bytes: frame heads, error codes, padding, SETTINGS and WINDOW_UPDATE, HEADERS with CONTINUATION, and
request fields as HPACK literals (`authorization` is never indexed). Pure; no state.

Requests are encoded as literals that do not change the peer's HPACK table, so there is no encoder state; their few
hundred bytes are small compared with a run.
"""

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, final

from hpack import Decoder
from msgspec import Struct

from .identity import read_fields

# ---- Decodes a response's header fields (HPACK), at most 64 KiB, and caches blocks that leave the dynamic table
# unchanged. Reads `:status` and `content-length`.
#
# Answers to one kind of request have equal heads, and reading a block costs as much as reading a short answer. The
# meaning of a block depends on its bytes and on the table, so the cache is valid until a block changes the table.

MAX_FIELDS_BYTES: Final = 64 * 1024
"""A response's header list, encoded and by HPACK's count."""
MAX_KNOWN: Final = 16
"""The number of cached blocks, which bounds the memory if all of a peer's blocks differ."""
MAX_DIGITS: Final = 18
MAX_KNOWN_BYTES: Final = 1024
"""Longer blocks are not cached."""


class Fields(Struct, frozen=True):
    headers: Mapping[str, str]
    status: int | None
    """None without a status, as in trailers."""
    length: int | None
    """The value of `content-length`."""


class FieldReader:
    __slots__ = ("_decoder", "_known")

    def __init__(self) -> None:
        self._decoder = Decoder(MAX_FIELDS_BYTES)
        self._known: dict[bytes, Fields] = {}

    def read(self, block: bytes) -> Fields:
        """Decode a block; raises the decoder's errors. Every block must be read here, even an unused block, to keep the
        table equal to the peer's."""
        known = self._known
        if block in known:
            return known[block]
        table = self._decoder.header_table
        before = table.maxsize, tuple(table.dynamic_entries)
        fields = _judged([(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)])
        if before != (table.maxsize, tuple(table.dynamic_entries)):
            known.clear()
        elif len(block) <= MAX_KNOWN_BYTES:
            if len(known) >= MAX_KNOWN:
                known.clear()
            known[block] = fields
        return fields


def _judged(fields: list[tuple[bytes, bytes]]) -> Fields:
    known = dict(fields)
    status, length = known.get(b":status", b""), known.get(b"content-length", b"")
    return Fields(
        MappingProxyType(read_fields(fields)),
        _number(status),
        _number(length),
    )


def _number(digits: bytes) -> int | None:
    """The number; None if the bytes are not a number or have too many digits."""
    return int(digits) if digits.isdigit() and len(digits) <= MAX_DIGITS else None


PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD: Final = struct.Struct(">IBI")
"""A frame's nine bytes: length (24 bits) with type (8 bits), flags, stream."""
HEAD_BYTES: Final = HEAD.size
STREAM_BITS: Final = 0x7FFFFFFF
MAX_WINDOW: Final = 0x7FFFFFFF
LAST_STREAM_ID: Final = 2**30
"""A connection is retired at this stream, far below the protocol's limit."""
FIRST_WINDOW: Final = 65535
"""The window of both directions until a setting changes it."""
FRAME_BYTES: Final = 16384
"""The largest payload that a peer must accept; the gateway never allows more."""


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class H2Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Error codes of HTTP/2 (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20


class Http2Broken(Exception):
    """The peer broke RFC 9113: the connection cannot continue."""

    def __init__(self, code: Code, what: str) -> None:
        super().__init__(what)
        self.code = code
        self.stream_id = 0
        """The stream of the broken frame; 0: the connection."""


# -- received events. Structs, because each delta creates one


@final
class DataReceived(Struct, gc=False):
    stream_id: int
    data: bytes
    size: int
    """Bytes that count against the windows, including padding."""


@final
class HeadReceived(Struct, frozen=True):
    stream_id: int
    status: int
    headers: Mapping[str, str]


@final
class StreamEnded(Struct, frozen=True, gc=False):
    stream_id: int


class StreamReset(Struct, frozen=True, gc=False):
    stream_id: int
    code: int


@final
class WindowOpened(Struct, frozen=True, gc=False):
    stream_id: int
    """0: the connection's window."""


class SettingsChanged(Struct, frozen=True, gc=False):
    stream_id: int = 0


class PingAnswered(Struct, frozen=True, gc=False):
    payload: bytes
    stream_id: int = 0


class GoAway(Struct, frozen=True, gc=False):
    last_stream_id: int
    stream_id: int = 0


Heard = DataReceived | HeadReceived | StreamEnded | StreamReset | WindowOpened | SettingsChanged | PingAnswered | GoAway


def unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise Http2Broken(Code.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def read_settings(stream_id: int, flags: int, payload: bytes) -> list[tuple[int, int]] | None:
    """The peer's (name, value) pairs; None for an acknowledgement. Raises Http2Broken for forbidden settings."""
    if stream_id:
        raise Http2Broken(Code.PROTOCOL_ERROR, f"SETTINGS on stream {stream_id}")
    if len(payload) % 6 or (flags & ACK and payload):
        raise Http2Broken(Code.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    if flags & ACK:
        return None
    theirs: list[tuple[int, int]] = list(struct.iter_unpack(">HI", payload))
    for name, value in theirs:
        if name == H2Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Http2Broken(Code.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
        if name == H2Setting.MAX_FRAME_SIZE and not FRAME_BYTES <= value < 1 << 24:
            raise Http2Broken(Code.PROTOCOL_ERROR, f"frames of {value} bytes")
        if name == H2Setting.ENABLE_PUSH and value:
            raise Http2Broken(Code.PROTOCOL_ERROR, "a server that wants pushes")
    return theirs


# -- sent frames


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def settings(values: Iterable[tuple[H2Setting, int]]) -> bytes:
    return frame(FrameType.SETTINGS, 0, 0, b"".join(struct.pack(">HI", name, value) for name, value in values))


def our_settings(stream_window_bytes: int) -> bytes:
    """The client's first SETTINGS frame."""
    return settings(
        (
            (H2Setting.ENABLE_PUSH, 0),
            (H2Setting.INITIAL_WINDOW_SIZE, stream_window_bytes),
            (H2Setting.MAX_HEADER_LIST_SIZE, MAX_FIELDS_BYTES),
        )
    )


def window_update(stream_id: int, size: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, 0, stream_id, size.to_bytes(4, "big"))


def head_frames(stream_id: int, block: bytes, *, end: bool, limit: int) -> bytes:
    """HEADERS, with CONTINUATION frames for the rest of a long block."""
    kind, flags, frames = FrameType.HEADERS, END_STREAM if end else 0, b""
    while len(block) > limit:
        frames += frame(kind, flags, stream_id, block[:limit])
        kind, flags, block = FrameType.CONTINUATION, 0, block[limit:]
    return frames + frame(kind, flags | END_HEADERS, stream_id, block)


NO_TABLE: Final = b"\x20"
"""The beginning of the first block of fields: sets the client's dynamic table to size 0."""

_INDEXED: Final = {
    (":method", "GET"): b"\x82",
    (":method", "POST"): b"\x83",
    (":scheme", "http"): b"\x86",
    (":scheme", "https"): b"\x87",
}
_NAMED: Final = {":authority": b"\x01", ":method": b"\x02", ":path": b"\x04", ":scheme": b"\x06"}
_SECRET: Final = {"authorization": b"\x1f\x08"}
"""Fields that no intermediary may index (RFC 7541, section 7.1.3)."""


def field_block(fields: Iterable[tuple[str, str]]) -> bytes:
    block = b""
    for field in fields:
        block += _INDEXED[field] if field in _INDEXED else _begin(field[0]) + _text(field[1])
    return block


@lru_cache(maxsize=64)  # only names: few and not secret
def _begin(name: str) -> bytes:
    return _NAMED.get(name) or _SECRET.get(name) or b"\x00" + _text(name)


def _text(text: str) -> bytes:
    raw = text.encode("latin-1")
    size = len(raw)
    if size < 127:
        return bytes((size,)) + raw
    size -= 127
    length = bytearray((127,))
    while size >= 128:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes(length) + raw
