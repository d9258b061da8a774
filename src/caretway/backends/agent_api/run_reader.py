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
    __slots__ = ("_envelope", "_max_refusal", "_refusal", "_status")

    def __init__(self, max_frame_bytes: int, max_refusal_bytes: int) -> None:
        self._envelope = EnvelopeReader(max_frame_bytes)
        self._status = 0
        self._refusal: tuple[Mapping[str, str], bytearray] | None = None  # its headers and the beginning of its body
        self._max_refusal = max_refusal_bytes

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        if status != 200:
            self._refusal = headers, bytearray()
            return
        kind = headers.get("content-type", _STREAM_TYPES)
        if not kind.startswith(_STREAM_TYPES):
            raise _protocol(f"the answer to a run is {kind!r} and not a Connect stream")

    def feed(self, data: bytes) -> list[bytes]:
        if self._status == 200:
            try:
                return self._envelope.feed(data)
            except EnvelopeError as broken:
                raise _protocol(str(broken)) from broken
        if self._refusal is not None:
            headers, body = self._refusal
            body += data[: self._max_refusal - len(body)]
            if len(body) >= self._max_refusal:
                raise self._refused(headers, body)  # more of it would not tell us more
        return []

    def finish(self, error: GatewayError | None = None) -> GatewayError | None:
        """The response ended, with an error or in order: did the stream?"""
        if self._refusal is not None:
            return self._refused(*self._refusal)  # says more than how the connection ended
        if error is not None:
            return error
        if self._status == 0:
            return _protocol("the stream ended without a response")
        return cut("the stream ended in the middle of a message") if self._envelope.mid_frame else None

    def _refused(self, headers: Mapping[str, str], body: bytearray) -> GatewayError:
        return fault_from_status(self._status, headers, bytes(body))


def cut(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_DOWN, f"Cursor: {what}", hint=HINTS[ErrorKind.UPSTREAM_DOWN])


def stopping() -> GatewayError:
    return GatewayError(ErrorKind.CANCELLED, "the connection to Cursor is being closed: the gateway stops")


def _protocol(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor: {what}", hint=HINTS[ErrorKind.UPSTREAM_PROTOCOL])
