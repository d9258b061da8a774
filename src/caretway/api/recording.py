"""Records one client's exchange in the trace (`--trace`): heads, the shape of bodies, the events of a stream, a client
that hung up; all redacted.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from ..core.json_bounds import crowded
from ..observe.trace import Trace
from ..server.exchange import Header, HttpRequest

_LOOKED_AT: Final = 64 * 2**10
"""Bytes that stand for what is too much to be recorded field by field."""


class TraceRecorder:
    def __init__(self, trace: Trace, request: HttpRequest) -> None:
        self._trace = trace
        self._number = trace.number()
        headers = trace.redact.headers(request.headers.items())
        trace.write("request", exchange=self._number, method=request.method, path=request.path, headers=headers)

    def request_body(self, body: bytes) -> None:
        if body:
            self._trace.write("request body", exchange=self._number, bytes=len(body), json=_shape(self._trace, body))

    def hung_up(self) -> None:
        self._trace.write("hung up", exchange=self._number)

    def head(self, status: int, headers: Sequence[Header]) -> None:
        head = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        self._trace.write("response", exchange=self._number, status=status, headers=self._trace.redact.headers(head))

    def body(self, data: bytes, *, end: bool) -> None:
        events = _events(self._trace, data)
        self._trace.write("response body", exchange=self._number, bytes=len(data), json=events, end=end)


def _shape(trace: Trace, data: bytes) -> object:
    if crowded(data):
        return trace.redact.digest(data[:_LOOKED_AT].decode("latin-1"))
    try:
        return trace.redact.value(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return trace.redact.digest(data.decode("latin-1"))


def _events(trace: Trace, data: bytes) -> object:
    """What one write held: an object, or the events of a stream (a write never cuts one)."""
    lines = data.split(b"\n")
    events = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    if not events:
        return _shape(trace, data) if data.startswith(b"{") else None
    return [_shape(trace, event) if event.startswith(b"{") else event.decode("latin-1") for event in events]
