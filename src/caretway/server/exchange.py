"""A request and the writer of its response: status line, chunked encoding, `Connection: close`, HTTP/1.0, HEAD, safe
header text.

The connection creates both; only it fills the request. The handler writes the response by plain calls: each write goes
to the socket at once, the head together with the first bytes. Backpressure: before a large write a handler checks
`blocked`, and continues in the callback given to `on_writable`.
"""

import asyncio
import base64
import binascii
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import quote

from ..core.caller import NOBODY
from ..core.errors import ErrorKind, GatewayError, bad_request
from ..core.passing import Visit

# ---- Deadlines of a connection, the defence against slowloris. Pure; times are arguments, on the loop's clock. Three
# clocks: what must arrive or end in time, a response that the client does not read, and a wake-up time for a handler. A
# connection has no timer: the server checks all connections periodically, so lateness is noticed a little later.
# Keep-alives of silent streams belong to `answer`.

NEVER: Final = float("inf")


class Deadlines:
    __slots__ = ("_send_timeout", "_stuck_since", "_unsent", "_wake", "_wake_at", "due")

    def __init__(self, send_timeout: float) -> None:
        self._send_timeout = send_timeout
        self.due = NEVER
        """When the current phase must be complete."""
        self._unsent = 0
        """Unsent bytes at the server's last check, and the time since which they have not decreased."""
        self._stuck_since = NEVER
        self._wake_at = NEVER
        self._wake: Callable[[], None] | None = None

    def stuck(self, now: float, unsent: int) -> bool:
        """True if the client has read nothing for too long while bytes wait."""
        if not unsent:
            self._stuck_since = NEVER
        elif unsent < self._unsent or self._stuck_since == NEVER:
            self._stuck_since = now  # the client reads, however slowly
        elif now - self._stuck_since >= self._send_timeout:
            return True
        self._unsent = unsent
        return False

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None:
        self._wake_at = when
        self._wake = wake

    def wake_due(self, now: float) -> None:
        """Call, once, the callbacks that are due."""
        if now >= self._wake_at and self._wake is not None:
            wake, self._wake = self._wake, None
            wake()


Header = tuple[bytes, bytes]
"""Name and value."""

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus
}
NO_CONTENT: Final = 204
NOT_MODIFIED: Final = 304
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_COMMENT_CHUNK: Final = b"3\r\n:\n\n\r\n"
"""A no-op in server-sent events, as a chunk: clients skip comment lines."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Successor(asyncio.Protocol, ABC):
    """The protocol that takes over a connection after a 101."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Check the deadlines. The server calls it periodically."""

    @abstractmethod
    def retire(self) -> None:
        """The server is stopping: the response in progress is the last."""

    @abstractmethod
    def abort(self) -> None: ...


MakeSuccessor = Callable[[Any], Successor]
"""Called with the ServerState."""


class ResponseTransport(Protocol):
    """The connection, as its response sees it."""

    @property
    def write(self) -> Callable[[bytes], None]: ...

    def date(self) -> bytes:
        """The current time as an HTTP date."""
        ...

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None:
        """Call `wake` once, at that time on the loop's clock or slightly later. None cancels the call."""
        ...

    def answered(self) -> None:
        """Called when the response is complete."""
        ...

    def abort(self) -> None: ...


@runtime_checkable
class SwitchingTransport(Protocol):
    """A transport that can change its protocol."""

    def switch(self, make: MakeSuccessor) -> None:
        """Called after the head of a 101: from here on the connection belongs to the new protocol."""
        ...


class TrafficObserver(Protocol):
    """Observes the bytes of one exchange."""

    def request_body(self, body: bytes) -> None: ...

    def hung_up(self) -> None: ...

    def head(self, status: int, headers: Sequence[Header]) -> None: ...

    def body(self, data: bytes, *, end: bool) -> None: ...


_TRACE_CONTEXT: Final = ("traceparent", "tracestate")
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class HttpRequest:
    __slots__ = ("body", "caller", "headers", "method", "model", "path", "query", "scheme", "trace", "visit")

    def __init__(
        self, method: str, path: str, headers: Mapping[str, str], scheme: str = "http", query: str = ""
    ) -> None:
        self.method = method
        self.path = path
        """Decoded, without query and trailing slash."""
        self.query = query
        """The raw query, without the question mark."""
        self.headers = headers
        """Names in lower case; the last value of a repeated header."""
        self.scheme = scheme
        self.body = b""
        """Complete before a handler is called."""
        self.caller = NOBODY
        """The admitted caller."""
        self.model = ""
        """The requested model, once the body was read."""
        self.visit: Visit | None = None
        """Set if another gateway admitted the request and passed it on."""
        self.trace: Mapping[str, str] | None = None
        """The client's trace context (W3C), kept when the headers are dropped."""

    @property
    def target(self) -> str:
        """Path and query in canonical spelling."""
        return quote(self.path) + (f"?{self.query}" if self.query else "")

    def take_body(self) -> bytes:
        """Return the body and drop it here, so that it is not held while the response is made. Call it once."""
        body, self.body = self.body, b""
        return body

    def drop_headers(self) -> None:
        """Free the headers once they are read: a response may take long."""
        if "traceparent" in self.headers:
            self.trace = {name: self.headers[name] for name in _TRACE_CONTEXT if name in self.headers}
        self.headers = _NO_HEADERS


class ResponseWriter:
    __slots__ = (
        "_chunked",
        "_extra",
        "_head_only",
        "_observer",
        "_on_writable",
        "_transport",
        "blocked",
        "complete",
        "goes_on",
        "keep_alive",
        "started",
        "status",
    )

    def __init__(
        self, transport: ResponseTransport, *, keep_alive: bool, chunked: bool, head_only: bool = False
    ) -> None:
        """`chunked`: the client understands chunks. `head_only`: the request was a HEAD."""
        self._transport = transport
        self._chunked = chunked
        self._head_only = head_only
        self._extra: Sequence[Header] = ()
        self._observer: TrafficObserver | None = None
        self._on_writable: Callable[[], None] | None = None
        self.keep_alive = keep_alive
        """False: the connection closes after this response. Read only, like the attributes below."""
        self.goes_on = False
        """The connection stays open for one more request even while the server drains."""
        self.started = False
        self.status = 0
        """The status of the head, once it was written."""
        self.complete = False
        self.blocked = False
        """The client does not read what is written."""

    # ---- for the connection and access checks

    def add_headers(self, headers: Sequence[Header]) -> None:
        """Add headers to any response that follows."""
        self._extra = headers

    def observe(self, observer: TrafficObserver) -> None:
        self._observer = observer

    def request_body(self, body: bytes) -> None:
        if self._observer is not None:
            self._observer.request_body(body)

    def hung_up(self) -> None:
        """Called when the client is gone."""
        self._on_writable = None
        if self._observer is not None and not self.complete:
            self._observer.hung_up()

    def close_after(self) -> None:
        """Close the connection after this response."""
        self.keep_alive = False

    def go_on(self) -> None:
        """Keep the connection for one more request that belongs to this one, even while the server drains."""
        self.keep_alive = self.goes_on = True

    def pause(self) -> None:
        self.blocked = True

    def resume(self) -> None:
        self.blocked = False
        if self._on_writable is not None:
            self._on_writable()

    # ---- for handlers

    def on_writable(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the client can take more."""
        self._on_writable = wake

    def wake_at(self, when: float, wake: Callable[[], None]) -> None:
        """Set the connection's wake-up time. Ignored after the end, because the next request may have set its own."""
        if not self.complete:
            self._transport.wake_at(when, wake)

    def forget(self) -> None:
        """Drop the callbacks: the response has no waiters any more."""
        self._on_writable = None
        if not self.complete:
            self._transport.wake_at(NEVER, None)

    def send(
        self, status: int, body: bytes, headers: Iterable[Header] = (), *, content_type: bytes = b"application/json"
    ) -> None:
        """Send a whole response."""
        lines = [*headers]
        if status != NO_CONTENT and status != NOT_MODIFIED:
            lines[:0] = (b"content-type", content_type), (b"content-length", b"%d" % len(body))
        if self._head_only:
            body = b""
        head = self._head(status, lines, b"")
        self._end(head + body, body)

    def start(self, headers: Iterable[Header], data: bytes) -> None:
        """Send a stream's head and its first bytes."""
        if not self._chunked:
            self.keep_alive = False  # the end of the response is the end of the connection
        head = self._head(200, [*headers], _CHUNKED if self._chunked else b"")
        if self._observer is not None and data:
            self._observer.body(data, end=False)
        if self._chunked and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._transport.write(head + data)

    def relay(self, status: int, headers: Iterable[Header], length: int | None) -> None:
        """Send the head of a response that another gateway makes. `length`: the size of its body, if known."""
        chunked = self._chunked and length is None
        if length is None and not chunked:
            self.keep_alive = False
        lines = [*headers] if length is None else [*headers, (b"content-length", b"%d" % length)]
        head = self._head(status, lines, _CHUNKED if chunked else b"")
        self._chunked = chunked
        self._transport.write(head)

    def switch(self, headers: Iterable[Header], make: MakeSuccessor) -> None:
        """Change the protocol (101)."""
        self.keep_alive = True
        head = self._head(101, [*headers], b"")
        self.complete = True
        assert isinstance(self._transport, SwitchingTransport)
        self._transport.write(head)
        self._transport.switch(make)

    def write(self, data: bytes) -> None:
        if not data:
            return
        if self._observer is not None:
            self._observer.body(data, end=False)
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self, data: bytes = b"") -> None:
        """Write the last bytes of a stream and end the response."""
        if not self._chunked:
            self._end(data, data)
        else:
            self._end(b"%x\r\n%b\r\n%b" % (len(data), data, _LAST_CHUNK) if data else _LAST_CHUNK, data)

    def probe(self) -> bool:
        """Write a no-op to detect a dead peer. Returns False if this response has no no-op."""
        if not self._chunked or self.complete:
            return False
        self._transport.write(_COMMENT_CHUNK if self.started else CONTINUE)
        return True

    def abort(self) -> None:
        """Cut the connection, so that the client does not take a partial response for a complete one."""
        self._transport.abort()

    def _head(self, status: int, headers: list[Header], framing: bytes) -> bytes:
        self.started = True
        self.status = status
        headers += self._extra
        if self._observer is not None:
            self._observer.head(status, headers)
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        kept = b"\r\n" if self._chunked else b"connection: keep-alive\r\n\r\n"  # HTTP/1.0 needs the header
        end = kept if self.keep_alive else b"connection: close\r\n\r\n"
        lines = b"\r\n".join(map(b": ".join, ((b"date", self._transport.date()), *headers)))
        return b"%b%b\r\n%b%b" % (line, lines, framing, end)

    def _end(self, last: bytes, data: bytes) -> None:
        self.complete = True
        self._on_writable = None
        if self._observer is not None:
            self._observer.body(data, end=True)
        self._transport.write(last)
        self._transport.answered()


def header_text(text: str) -> bytes:
    """The text as a legal header value: other characters become `?`."""
    return (text if text.isascii() and text.isprintable() else _legal(text)).encode("ascii")


def _legal(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)


# ---- The opening handshake of a WebSocket (RFC 6455, 4.2): the checks of the request (400 or 426) and the headers of
# the 101. Pure. No extension is accepted: permessage-deflate costs memory and time for each connection, may hide a
# bomb, and saves nothing on the same machine. No subprotocol is known.

VERSION: Final = "13"
OTHER_VERSION: Final[tuple[Header, ...]] = (
    (b"sec-websocket-version", VERSION.encode()),
    (b"upgrade", b"websocket"),
    (b"connection", b"Upgrade"),
)
"""Headers of the 426 (RFC 6455, 4.4; RFC 9110, 15.5.22)."""
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NONCE_BYTES: Final = 16


def switching(headers: Mapping[str, str]) -> tuple[Header, ...]:
    """The headers of the 101. Raises GatewayError. Names are in lower case."""
    if not speaks_version(headers):
        raise GatewayError(
            ErrorKind.WRONG_PROTOCOL,
            "The WebSocket's version is not spoken here.",
            hint=f"Send `Sec-WebSocket-Version: {VERSION}`, or POST over HTTP/1.1.",
        )
    key = headers.get("sec-websocket-key", "").strip()
    if not _is_nonce(key):
        raise bad_request("A WebSocket needs a Sec-WebSocket-Key of 16 bytes in base64.", code="invalid_handshake")
    return (
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", accept_of(key)),
    )


def speaks_version(headers: Mapping[str, str]) -> bool:
    return headers.get("sec-websocket-version", "").strip() == VERSION


def accept_of(key: str) -> bytes:
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest())


def _is_nonce(key: str) -> bool:
    try:
        return len(base64.b64decode(key.encode("latin-1"), validate=True)) == _NONCE_BYTES
    except (binascii.Error, ValueError):
        return False
