"""Connect stream framing, sans I/O: frame flags, a length limit before anything is buffered, gzip with a cap on its
unpacked size (zip bomb), and the end-of-stream frame. A checkpoint that is too large is dropped while it arrives.
Input: bytes in any chunking. Output: payloads in order, ending with the end-of-stream frame. State: the unfinished
rest, and the first fault; whole frames before a fault are returned first. One frame is a flag byte, a big-endian 32-bit
length and the payload.
"""

import base64
import binascii
import struct
import sys
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Struct

from .messages import ai

# ---- Reads and writes Connect errors as JSON: the end-of-stream frame, the body of a failed unary call, Cursor's
# details in base64. `cursor/transport/faults.py` interprets the codes.
#
# Input: JSON bytes. Output: `ConnectError`, or None for success.

DETAILS_TYPE: Final = "aiserver.v1.ErrorDetails"


class ConnectError(Struct, frozen=True):
    code: str
    """Connect's own code: `unauthenticated`, `resource_exhausted` ..."""
    message: str = ""
    error: int = 0
    """Cursor's `ErrorDetails.Error`; 0 without details."""
    title: str = ""
    detail: str = ""
    retryable: bool | None = None
    info: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Cursor's name for the error, without the prefix: `BAD_MODEL_NAME`; empty if unknown."""
        value = ai.ErrorDetails.Error.DESCRIPTOR.values_by_number.get(self.error)
        return value.name.removeprefix("ERROR_") if value and self.error else ""


class ErrorSyntax(ValueError):
    """The JSON is not a Connect error."""


_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The decoder's exceptions for invalid JSON; bad UTF-8 and deep nesting raise their own."""


def write_end(error: ConnectError | None = None) -> bytes:
    """The payload of an end-of-stream frame."""
    return b"{}" if error is None else msgspec.json.encode({"error": _to_json(error)})


def write_unary(error: ConnectError) -> bytes:
    """The body of a unary call that failed."""
    return msgspec.json.encode(_to_json(error))


def read_end(payload: bytes) -> ConnectError | None:
    """The error in an end-of-stream frame; None for success."""
    try:
        value = msgspec.json.decode(payload) if payload.strip() else {}
    except _NOT_JSON as broken:
        raise ErrorSyntax(f"the end-of-stream frame is not JSON: {broken}") from broken
    if not isinstance(value, dict):
        raise ErrorSyntax("the end-of-stream frame is not a JSON object")
    error = value.get("error")
    if error is None:
        return None
    if not isinstance(error, dict):
        raise ErrorSyntax("the end-of-stream error is not a JSON object")
    return _from_json(error)


def read_unary(body: bytes) -> ConnectError | None:
    """The error in the body of a failed unary call; None for another body (such as a proxy's page)."""
    try:
        value = msgspec.json.decode(body)
    except _NOT_JSON:
        return None
    return _from_json(value) if isinstance(value, dict) and isinstance(value.get("code"), str) else None


def _to_json(error: ConnectError) -> dict[str, Any]:
    value: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.error or error.title or error.detail or error.retryable is not None or error.info:
        details = ai.ErrorDetails(error=cast("ai.ErrorDetails.Error", error.error))  # the enum may lack it
        details.details.title = error.title
        details.details.detail = error.detail
        if error.retryable is not None:
            details.details.is_retryable = error.retryable
        for key, text in error.info:
            details.details.additional_info[key] = text
        packed = base64.b64encode(details.SerializeToString()).decode().rstrip("=")
        value["details"] = [{"type": DETAILS_TYPE, "value": packed}]
    return value


def _from_json(error: dict[str, Any]) -> ConnectError:
    code, message, details = error.get("code"), error.get("message"), error.get("details")
    if not isinstance(code, str) or not code:
        code = "unknown"  # Connect's own code for an unknown code
    if not isinstance(message, str):
        message = ""
    for item in details if isinstance(details, list) else []:
        if isinstance(item, dict) and item.get("type") == DETAILS_TYPE and isinstance(item.get("value"), str):
            try:
                packed = base64.b64decode(item["value"] + "=" * (-len(item["value"]) % 4), validate=True)
                read = ai.ErrorDetails.FromString(packed)
            except (binascii.Error, DecodeError, ValueError):
                continue  # details only refine the code, which is known
            inner = read.details
            return ConnectError(
                code,
                message,
                error=read.error,
                title=inner.title,
                detail=inner.detail,
                retryable=inner.is_retryable if inner.HasField("is_retryable") else None,
                info=tuple(sorted(inner.additional_info.items())),
            )
    return ConnectError(code, message)


COMPRESSED: Final = 0b01
END_OF_STREAM: Final = 0b10
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""One message, packed or unpacked. A larger message would block the event loop for too long."""
MAX_END_BYTES: Final = 64 * 1024
"""The end-of-stream frame, which is JSON."""
HEAVY_BYTES: Final = 32 * 1024
"""A larger message ends its batch, so that its receiver can handle it before the next message is read."""
ALL: Final = sys.maxsize
NO_STAND_INS: Final[Mapping[int, bytes]] = MappingProxyType({})

_HEADER: Final = struct.Struct(">BI")
_unpack: Final = _HEADER.unpack_from
HEADER_BYTES: Final = _HEADER.size
_SHORT: Final = 256
_SHORT_HEADS: Final = tuple(_HEADER.pack(0, length) for length in range(_SHORT))
"""The heads of short frames, which most frames are."""
_WHOLE_HEADS: Final = (*(None,) * HEADER_BYTES, *_SHORT_HEADS)
"""The heads of short frames, by the size of the whole frame."""
_GZIP: Final = zlib.MAX_WBITS | 16


class EnvelopeError(ValueError):
    """The bytes are not an accepted Connect stream."""


class TooLarge(EnvelopeError):
    """A frame or its unpacked payload exceeds the limit."""


class End(bytes):
    """The payload of the end-of-stream frame: JSON, not a message."""

    __slots__ = ()


def pack(payload: bytes, *, end: bool = False) -> bytes:
    length = len(payload)
    if length < _SHORT and not end:
        return _SHORT_HEADS[length] + payload
    return _HEADER.pack(END_OF_STREAM if end else 0, length) + payload


class EnvelopeReader:
    __slots__ = (
        "_cap",
        "_ended",
        "_fault",
        "_instead",
        "_light",
        "_rest",
        "_skip",
        "_stand_ins",
        "clean",
        "heavy",
        "more",
    )

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, stand_ins: Mapping[int, bytes] = NO_STAND_INS) -> None:
        """`stand_ins`: first byte -> substitute, for messages that are dropped if they exceed the limit. Such a message
        is not buffered."""
        self._rest = bytearray()
        self._cap = max_frame_bytes
        self._light = min(max_frame_bytes, HEAVY_BYTES)
        self._stand_ins = stand_ins
        self._skip = 0  # remaining bytes of a dropped message; `_instead` replaces it
        self._instead = b""
        self._ended = False
        self._fault: EnvelopeError | None = None
        self.heavy = False
        """Whether the last returned message is larger than HEAVY_BYTES."""
        self.more = False
        """Whether further frames may be ready: call `feed` again, even without data."""
        self.clean = self._light >= _SHORT
        """Whether the next byte begins a frame: no rest, no dropped message, no fault."""

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and not ended: a connection that closes now was cut."""
        return bool(self._rest or self._skip) or self._fault is not None

    def feed(self, data: bytes, count: int = ALL, size: int = ALL) -> list[bytes]:
        """The payloads of the frames that `data` completes, or EnvelopeError. At most `count` of them, and none after
        the one that brings them to `size` bytes; a compressed frame is not unpacked before its turn.

        Whole frames before a fault are returned first, and the next call raises the fault, so the result does not
        depend on the chunking. A fault is final: nothing is buffered after it.
        """
        length = len(data)
        if self.clean and length < _SHORT and data[:HEADER_BYTES] == _WHOLE_HEADS[length]:
            return [data[HEADER_BYTES:]]  # one whole message, the usual form of a delta
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        frames: list[bytes] = []
        self.heavy = self.more = False
        try:
            self._read(data, frames, count, size)
        except EnvelopeError as fault:
            self._fault = fault
            self._rest.clear()
            if not frames:
                raise
            self.more = True
        finally:
            odd = self._rest or self._skip or self._ended or self._fault is not None or self.heavy or self.more
            self.clean = not odd and self._light >= _SHORT
        return frames

    def hold(self, data: bytes) -> None:
        """Buffer bytes without reading frames from them."""
        if self._fault is None:
            self._rest += data
            self.more, self.clean = True, False

    def _read(self, data: bytes, frames: list[bytes], count: int, size: int) -> None:
        rest = self._rest
        if rest:
            rest += data
        waiting = rest or data  # no copy without a rest
        at, stop = 0, len(waiting)
        if not rest and not self._skip and not self._ended:
            light, whole = self._light, stop - HEADER_BYTES
            while at <= whole and count > 0 and size > 0:  # short plain frames, the usual case
                flags, length = _unpack(data, at)
                ends = at + HEADER_BYTES + length
                if flags or length > light or ends > stop:
                    break
                frames.append(data[at + HEADER_BYTES : ends])
                at = ends
                count -= 1
                size -= length
        while at < stop:
            if self._skip:
                at += self._skipped(stop - at, frames)
                continue
            if self._ended:
                raise EnvelopeError("bytes after the end-of-stream frame")
            if stop - at < HEADER_BYTES:
                break
            flags, length = _unpack(waiting, at)
            inside = at + HEADER_BYTES
            light = not flags and length <= self._light
            if not light and not self._fits(flags, length):
                if inside == stop and self._stand_ins and not flags:
                    break  # the first byte decides whether the frame may be dropped
                self._drop(waiting[inside] if inside < stop and not flags else -1, length)
                at = inside
                continue
            if inside + length > stop:
                break
            if count <= 0 or size <= 0 or self.heavy:
                self.more = True
                break
            at = inside + length
            if light:
                payload = bytes(waiting[inside:at])
            else:
                payload = self._payload(flags, bytes(memoryview(waiting)[inside:at]))
                length = len(payload)
                self.heavy = length > HEAVY_BYTES
            frames.append(payload)
            count -= 1
            size -= length
        if rest:
            del rest[:at]
        else:
            rest += data[at:]

    def _fits(self, flags: int, length: int) -> bool:
        if flags & ~(COMPRESSED | END_OF_STREAM):
            raise EnvelopeError(f"unknown frame flags 0x{flags:02x}")
        return length <= (MAX_END_BYTES if flags & END_OF_STREAM else self._cap)

    def _payload(self, flags: int, payload: bytes) -> bytes:
        packed = flags & COMPRESSED and payload  # an empty payload stays empty, even with the flag
        if flags & END_OF_STREAM:
            self._ended = True
            return End(gunzip(payload, MAX_END_BYTES) if packed else payload)
        if not packed:
            return payload
        try:
            return gunzip(payload, self._cap)
        except TooLarge:
            first = zlib.decompressobj(wbits=_GZIP).decompress(payload, 1)
            if (instead := self._stand_ins.get(first[0])) is None:
                raise
            return instead

    def _drop(self, first: int, length: int) -> None:
        instead = self._stand_ins.get(first)
        if instead is None:
            raise TooLarge(f"a frame of {length} bytes is over the limit of {self._cap}")
        self._skip, self._instead = length, instead

    def _skipped(self, there: int, frames: list[bytes]) -> int:
        size = min(self._skip, there)
        self._skip -= size
        if not self._skip:
            frames.append(self._instead)
        return size


def gunzip(data: bytes, cap: int) -> bytes:
    """Unpack exactly one gzip member, but never to more than `cap` bytes."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        plain = unpacker.decompress(data, cap + 1)
    except zlib.error as broken:
        raise EnvelopeError(f"the compressed frame is broken: {broken}") from broken
    if len(plain) > cap:
        raise TooLarge(f"a compressed frame unpacks to more than {cap} bytes")
    if not unpacker.eof:
        raise EnvelopeError("the compressed frame is cut short")
    if unpacker.unused_data:
        raise EnvelopeError("the compressed frame has bytes behind its end")
    return plain
