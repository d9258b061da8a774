"""Connect's stream framing, sans I/O.

In: bytes in any chunking. Out: payloads in order, the one that ends the stream last. Remembered: the unfinished rest,
and the first fault. One frame is a flag byte, a big-endian 32-bit length and the payload. The announced length is
checked against the cap before anything is buffered for it, and so is the size of what a compressed payload unpacks to.
"""

import struct
import zlib
from typing import Final

COMPRESSED: Final = 0b01
END_OF_STREAM: Final = 0b10
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

_HEADER: Final = struct.Struct(">BI")
HEADER_BYTES: Final = _HEADER.size


class EnvelopeError(ValueError):
    """The bytes are not a Connect stream that we accept."""


class End(bytes):
    """The payload of the end-of-stream frame: JSON, and not a message."""

    __slots__ = ()


def pack(payload: bytes, *, end: bool = False) -> bytes:
    return _HEADER.pack(END_OF_STREAM if end else 0, len(payload)) + payload


class EnvelopeReader:
    __slots__ = ("_cap", "_ended", "_fault", "_rest")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()
        self._cap = max_frame_bytes
        self._ended = False
        self._fault: EnvelopeError | None = None

    @property
    def mid_frame(self) -> bool:
        """True while a frame has begun and not ended: a connection that closes now was cut."""
        return bool(self._rest) or self._fault is not None

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads of the frames that `data` completes, or EnvelopeError.

        Whole frames in front of a fault are handed out first and the fault is raised by the next call (an empty one
        will do), so what a reader gets does not depend on how the bytes were cut. A fault is final: nothing is
        buffered after it.
        """
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        size = len(data) - HEADER_BYTES
        if (
            not self._rest
            and not self._ended
            and 0 <= size <= self._cap
            and not data[0]
            and int.from_bytes(data[1:HEADER_BYTES], "big") == size
        ):
            return [data[HEADER_BYTES:]]  # one message, whole: how a delta arrives
        frames: list[bytes] = []
        try:
            self._read(data, frames)
        except EnvelopeError as fault:
            self._fault = fault
            self._rest.clear()
            if not frames:
                raise
        return frames

    def _read(self, data: bytes, frames: list[bytes]) -> None:
        rest = self._rest
        if rest:
            rest += data
        waiting = rest or data  # nothing is copied when nothing was left over
        at, size = 0, len(waiting)
        while at < size:
            if self._ended:
                raise EnvelopeError("bytes after the end-of-stream frame")
            if size - at < HEADER_BYTES:
                break
            flags, length = _HEADER.unpack_from(waiting, at)
            if flags & ~(COMPRESSED | END_OF_STREAM):
                raise EnvelopeError(f"unknown frame flags 0x{flags:02x}")
            if length > self._cap:
                raise EnvelopeError(f"a frame of {length} bytes is over the limit of {self._cap}")
            stop = at + HEADER_BYTES + length
            if stop > size:
                break
            payload = bytes(waiting[at + HEADER_BYTES : stop])
            if flags & COMPRESSED and payload:  # nothing is nothing, also with the flag set
                payload = gunzip(payload, self._cap)
            self._ended = bool(flags & END_OF_STREAM)
            frames.append(End(payload) if self._ended else payload)
            at = stop
        if rest:
            del rest[:at]
        else:
            rest += data[at:]


def gunzip(data: bytes, cap: int) -> bytes:
    """Unpack one gzip member with nothing behind it, but never to more than `cap` bytes."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = unpacker.decompress(data, cap + 1)
    except zlib.error as broken:
        raise EnvelopeError(f"the compressed frame is broken: {broken}") from broken
    if len(plain) > cap:
        raise EnvelopeError(f"a compressed frame unpacks to more than {cap} bytes")
    if not unpacker.eof:
        raise EnvelopeError("the compressed frame is cut short")
    if unpacker.unused_data:
        raise EnvelopeError("the compressed frame has bytes behind its end")
    return plain
