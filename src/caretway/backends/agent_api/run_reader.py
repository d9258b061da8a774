"""The answering half of a run, sans I/O, the same on both carriers.

In: the response's status and headers, then body bytes in any chunking, then the end. Out: messages, or the GatewayError
that ends the run. Remembered: the unfinished frame, or the beginning of the body of a refusal.
"""

from collections.abc import Mapping

from ...core.errors import ErrorKind, GatewayError
from ...wire.envelope import EnvelopeError, EnvelopeReader
from .faults import HINTS, fault_from_status

_STREAM_TYPES = "application/connect+"


class RunReader:
    __slots__ = ("_envelope", "_headers", "_max_refusal", "_refusal", "_status")

    def __init__(self, max_frame_bytes: int, max_refusal_bytes: int) -> None:
        self._envelope = EnvelopeReader(max_frame_bytes)
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._refusal = bytearray()
        self._max_refusal = max_refusal_bytes

    @property
    def refused(self) -> bool:
        return self._status not in (0, 200)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status, self._headers = status, headers
        kind = headers.get("content-type", _STREAM_TYPES)
        if status == 200 and not kind.startswith(_STREAM_TYPES):
            raise _protocol(f"the answer to a run is {kind!r} and not a Connect stream")

    def feed(self, data: bytes) -> list[bytes]:
        if self._status == 200:
            try:
                return self._envelope.feed(data)
            except EnvelopeError as broken:
                raise _protocol(str(broken)) from broken
        self._refusal += data[: self._max_refusal - len(self._refusal)]
        if len(self._refusal) >= self._max_refusal:
            raise self.refusal()  # more of it would not tell us more
        return []

    def finish(self) -> GatewayError | None:
        """The response ended in order: did the stream?"""
        if self._status == 0:
            return _protocol("the stream ended without a response")
        if self.refused:
            return self.refusal()
        return cut("the stream ended in the middle of a message") if self._envelope.mid_frame else None

    def refusal(self) -> GatewayError:
        return fault_from_status(self._status, self._headers, bytes(self._refusal))


def cut(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_DOWN, f"Cursor: {what}", hint=HINTS[ErrorKind.UPSTREAM_DOWN])


def stopping() -> GatewayError:
    return GatewayError(ErrorKind.CANCELLED, "the connection to Cursor is being closed: the gateway stops")


def _protocol(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor: {what}", hint=HINTS[ErrorKind.UPSTREAM_PROTOCOL])
