"""The answering half of a run, sans I/O, the same on both carriers.

In, as a carrier's `Sink`: the response's status and headers, then body bytes in any chunking, then the end. Out, to the
run's handler: messages, then how it ended. Remembered: the unfinished frame, or the beginning of the body of a refusal.
"""

from collections.abc import Mapping

from ...core.errors import ErrorKind, GatewayError
from ...wire.envelope import EnvelopeError, EnvelopeReader
from .faults import HINTS, fault_from_status
from .ports import RunHandler

_STREAM_TYPES = "application/connect+"


class RunReader:
    __slots__ = ("_envelope", "_handler", "_max_refusal", "_refusal", "_status")

    def __init__(self, handler: RunHandler, *, max_frame_bytes: int, max_refusal_bytes: int) -> None:
        self._handler = handler
        self._envelope = EnvelopeReader(max_frame_bytes)
        self._status = 0
        self._refusal: tuple[Mapping[str, str], bytearray] | None = None  # its headers and the beginning of its body
        self._max_refusal = max_refusal_bytes

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        if status != 200:
            self._refusal = headers, bytearray()
            return
        kind = headers.get("content-type", _STREAM_TYPES)
        if not kind.startswith(_STREAM_TYPES):
            raise _protocol(f"the answer to a run is {kind!r} and not a Connect stream")

    def on_data(self, data: bytes) -> None:
        if self._refusal is None:
            try:
                messages = self._envelope.feed(data)
            except EnvelopeError as broken:
                raise _protocol(str(broken)) from broken
            if messages:
                self._handler.on_messages(messages)
            return
        headers, body = self._refusal
        body += data[: self._max_refusal - len(body)]
        if len(body) >= self._max_refusal:
            raise self._refused(headers, body)  # more of it would not tell us more

    def on_end(self, error: GatewayError | None) -> None:
        self._handler.on_closed(self._outcome(error))

    def _outcome(self, error: GatewayError | None) -> GatewayError | None:
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
