"""The way in and out: who may enter, how often, and, when asked for, a record of what passed.

The decisions are `access` and `admission`; the words of a refusal are those of the API that lives at the path.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from ..core.errors import GatewayError
from ..core.json_bounds import crowded
from ..dialects import Dialect
from ..observe.trace import Trace
from .access import Access, admit, preflight
from .admission import Admission
from .exchange import NO_CONTENT, Exchange, Header
from .respond import send_error

_LOOKED_AT: Final = 64 * 2**10
"""Bytes that stand for what is too much to be recorded field by field."""


class Inside(Protocol):
    """What is behind the door."""

    def enter(self, exchange: Exchange) -> None: ...

    def begin(self, exchange: Exchange) -> None: ...

    async def answer(self, exchange: Exchange) -> None: ...

    def leave(self, exchange: Exchange) -> None: ...


class AccessLayer:
    def __init__(
        self,
        inside: Inside,
        *,
        access: Access,
        admission: Admission,
        dialect: Callable[[str], Dialect],
        trace: Trace | None = None,
    ) -> None:
        self.answer = inside.answer
        self._inside = inside
        self._access = access
        self._admission = admission
        self._dialect = dialect
        self._trace = trace

    def enter(self, exchange: Exchange) -> None:
        http = exchange.http
        if self._trace is not None:
            exchange.witness = _Recording(self._trace, exchange)
        asked = preflight(self._access, http.method, http.scheme, http.headers)
        if asked is not None:
            exchange.send(NO_CONTENT, b"", asked)
            return
        admitted = admit(self._access, http.method, http.path, http.scheme, http.headers)
        exchange.extra = admitted.headers
        self._admission.ask(admitted.caller)
        exchange.caller = admitted.caller
        self._inside.enter(exchange)

    def begin(self, exchange: Exchange) -> None:
        self._admission.enter(exchange.caller)
        try:
            self._inside.begin(exchange)
        except GatewayError:
            self._admission.leave(exchange.caller)
            raise
        exchange.entered = True

    def leave(self, exchange: Exchange) -> None:
        self._inside.leave(exchange)
        self._admission.leave(exchange.caller)

    def refuse(self, exchange: Exchange, error: GatewayError) -> None:
        told = [(b"x-request-id", f"req_{secrets.token_hex(16)}".encode())]
        send_error(exchange, self._dialect(exchange.http.path), error, told)


class _Recording:
    """One exchange in the trace."""

    def __init__(self, trace: Trace, exchange: Exchange) -> None:
        self._trace = trace
        self._number = trace.number()
        http = exchange.http
        headers = trace.redact.headers(http.headers.items())
        trace.write("request", exchange=self._number, method=http.method, path=http.path, headers=headers)

    def request_body(self, body: bytes) -> None:
        if body:
            self._trace.write("request body", exchange=self._number, bytes=len(body), json=_shape(self._trace, body))

    def hung_up(self) -> None:
        self._trace.write("hung up", exchange=self._number)

    def head(self, status: int, headers: Sequence[Header]) -> None:
        head = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        self._trace.write("response", exchange=self._number, status=status, headers=self._trace.redact.headers(head))

    def body(self, data: bytes, *, end: bool) -> None:
        told = _events(self._trace, data)
        self._trace.write("response body", exchange=self._number, bytes=len(data), json=told, end=end)


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
