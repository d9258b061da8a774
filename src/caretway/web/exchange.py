"""One request and its answer, between a client's connection and whoever answers.

Everything here is a plain call: what is written is handed to the socket at once, head and first bytes as one piece.
Whoever writes much looks at `blocked` first and goes on when `on_writable` is called.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, Protocol

Header = tuple[bytes, bytes]

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus
}
NO_CONTENT: Final = 204
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_COMMENT: Final = b":\n\n"
"""Streams are server-sent events: a line that every client skips."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Line(Protocol):
    """What an exchange needs of its connection."""

    @property
    def write(self) -> Callable[[bytes], None]: ...

    def date(self) -> bytes:
        """Now, as a header has it."""
        ...

    def answered(self) -> None:
        """The answer is complete."""
        ...

    def abort(self) -> None: ...


class Witness(Protocol):
    """Sees what passes through one exchange."""

    def request_body(self, body: bytes) -> None: ...

    def hung_up(self) -> None: ...

    def head(self, status: int, headers: Sequence[Header]) -> None: ...

    def body(self, data: bytes, *, end: bool) -> None: ...


NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class HttpRequest:
    """The head of a request."""

    __slots__ = ("headers", "method", "path", "scheme")

    def __init__(self, method: str, path: str, headers: Mapping[str, str], scheme: str = "http") -> None:
        self.method = method
        self.path = path
        """Decoded, without query and trailing slash."""
        self.headers = headers
        """Names in lower case; of a repeated header the last one."""
        self.scheme = scheme


class Exchange:
    __slots__ = (
        "_chunked",
        "_line",
        "blocked",
        "body",
        "caller",
        "complete",
        "due",
        "entered",
        "extra",
        "http",
        "keep_alive",
        "on_due",
        "on_writable",
        "started",
        "task",
        "witness",
    )

    def __init__(self, line: Line, http: HttpRequest, *, keep_alive: bool, chunked: bool) -> None:
        """`chunked`: the client understands chunks."""
        self._line = line
        self._chunked = chunked
        self.http = http
        self.keep_alive = keep_alive
        self.body = b""
        """Whole, once somebody is asked to answer."""
        self.extra: Sequence[Header] = ()
        """Headers of whatever answer is given."""
        self.caller = ""
        self.entered = False
        """It takes a place, until it leaves."""
        self.witness: Witness | None = None
        self.task: asyncio.Task[None] | None = None
        self.started = False
        self.complete = False
        self.blocked = False
        """The client does not take what was written already."""
        self.on_writable: Callable[[], None] | None = None
        self.due = float("inf")
        self.on_due: Callable[[], None] | None = None

    def wake_at(self, when: float, wake: Callable[[], None]) -> None:
        """Call `wake` once, at that time on the loop's clock or a moment later."""
        self.due = when
        self.on_due = wake

    def forget(self) -> None:
        """Nobody waits for anything any more."""
        self.on_writable = self.on_due = None
        self.due = float("inf")

    def send(
        self, status: int, body: bytes, headers: Iterable[Header] = (), *, content_type: bytes = b"application/json"
    ) -> None:
        """A whole answer."""
        told = [*headers]
        if status != NO_CONTENT:
            told[:0] = (b"content-type", content_type), (b"content-length", b"%d" % len(body))
        if self.http.method == "HEAD":
            body = b""
        head = self._head(status, told, b"")
        self._end(head + body, body)

    def start(self, headers: Iterable[Header], data: bytes) -> None:
        """A stream's head, with the first of it."""
        if not self._chunked:
            self.keep_alive = False  # its end is the connection's
        head = self._head(200, [*headers], _CHUNKED if self._chunked else b"")
        if self.witness is not None and data:
            self.witness.body(data, end=False)
        self._line.write(head + self._framed(data))

    def write(self, data: bytes) -> None:
        if not data:
            return
        if self.witness is not None:
            self.witness.body(data, end=False)
        # As `_framed` would; a call less for every delta.
        self._line.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self, data: bytes = b"") -> None:
        """The last of a stream."""
        self._end(self._framed(data) + _LAST_CHUNK if self._chunked else data, data)

    def probe(self) -> bool:
        """Send something that changes nothing, to learn whether somebody listens. False: there is no such thing."""
        if not self._chunked or self.complete:
            return False
        self._line.write(self._framed(_COMMENT) if self.started else CONTINUE)
        return True

    def abort(self) -> None:
        """There is nothing that could be said, and the client must not take this for the end."""
        self._line.abort()

    def _head(self, status: int, headers: list[Header], framing: bytes) -> bytes:
        self.started = True
        headers += self.extra
        if self.witness is not None:
            self.witness.head(status, headers)
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        kept = b"\r\n" if self._chunked else b"connection: keep-alive\r\n\r\n"  # HTTP/1.0 wants to be told
        end = kept if self.keep_alive else b"connection: close\r\n\r\n"
        date = b"date: %b\r\n" % self._line.date()
        return b"".join((line, date, *[b"%b: %b\r\n" % header for header in headers], framing, end))

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data

    def _end(self, last: bytes, data: bytes) -> None:
        self.complete = True
        self.on_writable = None
        if self.witness is not None:
            self.witness.body(data, end=True)
        self._line.write(last)
        self._line.answered()


def header_text(text: str) -> bytes:
    """A value that is legal in a header whatever it holds."""
    return (text if text.isascii() and text.isprintable() else _legal(text)).encode("ascii")


def _legal(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)
