"""Turns bytes into requests with the llhttp parser; has no socket. Heads must be unambiguous and within limits; bodies
have limits each and in total, checked as bytes arrive.

Trailers are ignored, paths are percent-decoded, and a request to change the protocol is read as plain HTTP.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Final, NoReturn, Protocol
from urllib.parse import unquote_to_bytes

import httptools
from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError, bad_request
from .exchange import Header, HttpRequest

# ---- Request heads that two parsers could understand differently (request smuggling). Pure. llhttp itself refuses
# doubled or malformed Content-Length, Content-Length together with Transfer-Encoding, bad chunk sizes, folded headers,
# bare line feeds and control characters. The checks here cover what llhttp accepts and a proxy in front of the gateway
# could read differently: doubled Host, keys or Transfer-Encoding, encodings other than chunked, a missing or different
# Host, HTTP versions, CONNECT. The size of a head is computed here too.

VERSIONS: Final = ("1.0", "1.1")
_ONCE: Final = (b"host", b"origin", b"authorization", b"x-api-key", b"x-caretway-key", b"transfer-encoding")
"""Headers that may appear once: of two, two parsers could each use a different one. Names in lower case."""
_KEPT: Final = (b"close", b"keep-alive")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def head_size(target: bytes, headers: Sequence[Header]) -> int:
    """The size of a head in bytes: its target, names and values, and four bytes for each header's punctuation."""
    return len(target) + 4 * len(headers) + sum(map(len, chain.from_iterable(headers)))


def head_problem(version: str, method: bytes, target: bytes, headers: Sequence[Header]) -> str | None:
    """Why this head is refused, as a sentence; None if it is valid. Header names are in lower case."""
    if version not in VERSIONS:
        return "Only HTTP/1.0 and HTTP/1.1 are spoken here."
    if method == b"CONNECT":
        return "This is not a proxy."
    values = dict(headers)
    if len(values) < len(headers) and (doubled := _doubled(headers)):
        return doubled
    if version == "1.1" and b"host" not in values:
        return "The Host header is missing."
    encoding = values.get(b"transfer-encoding")
    if encoding is not None and (version != "1.1" or encoding.strip().lower() != b"chunked"):
        return "The only Transfer-Encoding is chunked, in HTTP/1.1."
    if not target.startswith((b"/", b"*")):
        authority = target.partition(b"://")[2].partition(b"/")[0]
        if not authority or authority.lower() != values.get(b"host", b"").lower():
            return "The request line names another host than the Host header."
    return None


def _doubled(headers: Sequence[Header]) -> str | None:
    counts = Counter(name for name, _ in headers if name in _ONCE)
    for name, count in counts.items():
        if count > 1:
            return f"The header {name.decode()} is there {count} times."
    return None


def http_date(now: float) -> bytes:
    """Unix seconds in the date format of RFC 9110, in any locale."""
    at = time.gmtime(now)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {clock} GMT".encode()


def without_upgrade(method: bytes, target: bytes, version: str, headers: Sequence[Header]) -> bytes:
    """The head without the request to change protocols. `Upgrade` stays: without `Connection` it has no effect."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            kept = [word for word in value.lower().replace(b" ", b"").split(b",") if word in _KEPT]
            value = b", ".join(kept)
        if value:
            lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])


def read_target(url: bytes) -> tuple[str, str]:
    """The decoded path and the raw query of a target. The path is empty if it is no URL."""
    query = ""
    if not url.startswith(b"/") or b"?" in url or b"#" in url:
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            return "", ""
        url, query = parsed.path or b"/", (parsed.query or b"").decode("latin-1")
    path = unquote_to_bytes(url).decode("utf-8", "replace") if b"%" in url else url.decode("latin-1")
    return path.rstrip("/") or "/", query


_target_before: Final = lru_cache(maxsize=64)(read_target)
"""Nearly all requests have the same few targets."""
_REMEMBERED_BYTES: Final = 128


# ---- Limits of request bodies: the size of one, the bytes of all incomplete bodies, the time for one. Compressed
# bodies (`content-encoding`) are refused: they may be decompression bombs.

MAX_DIGITS: Final = 18
"""Digits of an announced size: a number with more exceeds every limit."""


class BodyLimits(Struct, frozen=True):
    size: int = 32 * 2**20
    in_all: int = 256 * 2**20
    """Bytes of all clients' incomplete bodies and waiting WebSocket messages."""
    idle: float = 30.0
    total: float = 300.0


class Bodies:
    """Counts the bytes of incomplete bodies, and the bytes that WebSockets keep for longer."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._held = 0
        self._kept = 0

    def expect(self, headers: Mapping[str, str]) -> None:
        """Check the body that a head announces. Raises GatewayError if it is too large or compressed."""
        announced = headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > MAX_DIGITS or int(announced) > self.limits.size):
            raise _body_too_large(self.limits.size)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise bad_request(
                "Compressed request bodies are not accepted.", hint="Send the body without content-encoding."
            )

    def take(self, piece: int, body: int) -> None:
        """Count `piece` more bytes of a body that now has `body` bytes. Raises GatewayError above a limit."""
        self._held += piece
        if body > self.limits.size:
            raise _body_too_large(self.limits.size)
        if self._held > self.limits.in_all:
            raise GatewayError(ErrorKind.OVERLOADED, "Too many large requests are arriving at once.")

    def give_back(self, body: int) -> None:
        """Uncount a body that is complete or no longer wanted."""
        self._held -= body

    def keep(self, size: int) -> bool:
        """Reserve bytes that stay until the client reads. Returns False if there is no room. Half of the total is left
        for incoming bodies: clients that do not read must not block other clients."""
        if self._kept + size > self.limits.in_all // 2 or self._held + size > self.limits.in_all:
            return False
        self._kept += size
        self._held += size
        return True

    def release(self, size: int) -> None:
        self._kept -= size
        self._held -= size


def _body_too_large(limit: int) -> GatewayError:
    return GatewayError(
        ErrorKind.TOO_LARGE,
        f"The request body is larger than {limit} bytes.",
        hint="Raise `max_body_bytes` if that is intended.",
    )


def too_slow(limits: BodyLimits) -> GatewayError:
    return GatewayError(
        ErrorKind.SLOW_REQUEST,
        f"The request body did not arrive in time: at most {limits.idle:g} s of silence, {limits.total:g} s in all.",
    )


# ---- The limits of one connection. Values only.


class ConnectionLimits(Struct, frozen=True):
    """Limits of one connection; times are in seconds."""

    connections: int = 2048
    head_bytes: int = 64 * 2**10
    headers: int = 128
    head_timeout: float = 20.0
    drain_timeout: float = 30.0
    send_timeout: float = 120.0
    keep_alive: float = 75.0
    """Seconds that an unused connection is kept: longer than the pools of common clients keep it."""
    look_every: float = 1.0
    """Seconds between two checks of the deadlines: every other limit may be exceeded by this much."""


class ReadPhase(Enum):
    BETWEEN = "between requests, or while one is answered"
    HEAD = "head"
    BODY = "body"


class _Stop(Exception):
    """Raised in a parser callback to stop the parser."""


class _Names(dict[bytes, tuple[bytes, str]]):
    """Header names as clients spell them -> the lower-case name as bytes and as text. Common names are precomputed."""

    def __missing__(self, name: bytes) -> tuple[bytes, str]:
        lower = name.lower()
        return lower, lower.decode("latin-1")


_USUAL: Final = (
    "Accept", "Accept-Encoding", "Accept-Language", "Anthropic-Beta", "Anthropic-Version", "Authorization",
    "Connection", "Content-Length", "Content-Type", "Host", "Origin", "User-Agent", "X-Api-Key",
    "X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Package-Version",
    "X-Stainless-Read-Timeout", "X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version",
)  # fmt: skip
_NAMES: Final = _Names(
    {spelled.encode(): (name.lower().encode(), name.lower()) for name in _USUAL for spelled in (name, name.lower())}
)


class RequestSink(Protocol):
    """Receives the requests that were read."""

    def may_begin(self) -> bool:
        """Called when a request begins. False: the last one is not answered yet, so this one is not read."""
        ...

    def head_read(self, request: HttpRequest, version: str, *, keep_alive: bool) -> None: ...

    def body_refused(self, error: GatewayError) -> None: ...

    def body_read(self, body: bytes) -> None:
        """Called with a complete body, unless the request was answered without its body."""
        ...

    def request_ended(self) -> None:
        """Called when the last byte of an already answered request has arrived."""
        ...


class RequestReader:
    __slots__ = (
        "_bodies",
        "_body",
        "_body_bytes",
        "_header_count",
        "_headers",
        "_limits",
        "_lines",
        "_parser",
        "_scheme",
        "_sink",
        "_upgrading",
        "phase",
        "refusal",
        "unseen",
        "url",
        "wanted",
    )

    def __init__(self, sink: RequestSink, limits: ConnectionLimits, bodies: Bodies, scheme: str) -> None:
        self._sink = sink
        self._limits = limits
        self._bodies = bodies
        self._scheme = scheme
        self._parser = httptools.HttpRequestParser(self)
        self._lines: list[Header] = []
        """Header lines of the head, names in lower case."""
        self._headers: dict[str, str] = {}
        """The head's headers by name; the last value of a repeated header."""
        self._header_count = 0
        """Count of header lines, kept as a number because counting runs for every header."""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._upgrading = False
        self.phase = ReadPhase.BETWEEN
        self.url = b""
        """The target as it is in the request line."""
        self.unseen = 0
        """Bytes that the parser took since its last callback for a head, a chunk or a piece of a body."""
        self.wanted = False
        """The request being read is not answered yet."""
        self.refusal: GatewayError | None = None
        """Set if this reader, not the parser, refused the input."""

    def feed(self, data: bytes) -> None:
        """Parse received bytes. After an httptools.HttpParserError nothing more can be read."""
        self.unseen += len(data)
        rest: bytes | memoryview = data
        while rest:
            try:
                self._parser.feed_data(rest)
                break
            except httptools.HttpParserUpgrade as upgrade:  # not an HttpParserError; more requests may follow it
                rest = memoryview(rest)[upgrade.args[0] :]
                self._stay()
        if self.unseen > self._limits.head_bytes:
            self.refusal = _too_large(self._limits)

    def _stay(self) -> None:
        """Parse the head again, without its request to change the protocol."""
        version, method = self._parser.get_http_version(), self._parser.get_method()
        head = without_upgrade(method, self.url, version, self._lines)
        self._upgrading = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(head)

    @property
    def head_only(self) -> bool:
        """Whether the request is a HEAD, as far as it was read: the method is known when the URL begins."""
        return bool(self.url) and self._parser.get_method() == b"HEAD"

    def drop_body(self) -> None:
        """Uncount and drop the bytes of the body: they are not needed, or another object holds them now."""
        self._bodies.give_back(self._body_bytes)
        self._body = []
        self._body_bytes = 0

    # ---- called by the parser

    def on_message_begin(self) -> None:
        if not self._sink.may_begin():
            raise _Stop
        self.phase = ReadPhase.HEAD
        self.url = b""
        self._lines, self._headers, self._header_count = [], {}, 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is not ReadPhase.HEAD:
            return  # a trailer must not pass for a checked header
        lower, text = _NAMES[name]
        self._lines.append((lower, value))
        self._headers[text] = value.decode("latin-1")
        self._header_count += 1
        if self._header_count > self._limits.headers:
            self._stop(_too_large(self._limits))

    def on_headers_complete(self) -> None:
        parser = self._parser
        version, method = parser.get_http_version(), parser.get_method()
        url, lines = self.url, self._lines
        if head_size(url, lines) > self._limits.head_bytes:
            self._stop(_too_large(self._limits))
        if problem := head_problem(version, method, url, lines):
            self._stop(bad_request(problem, code="invalid_http"))
        if parser.should_upgrade():
            self._upgrading = True
            return
        path, query = read_target(url) if len(url) > _REMEMBERED_BYTES else _target_before(url)
        if not path:
            self._stop(bad_request("The request line holds no URL.", code="invalid_http"))
        request = HttpRequest(method.decode("ascii"), path, self._headers, self._scheme, query)
        self._lines, self._headers = [], {}
        self.phase = ReadPhase.BODY
        self.wanted = True
        self.unseen = 0
        self._sink.head_read(request, version, keep_alive=parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        self.unseen = 0
        if not self.wanted:
            return  # the request was answered without its body
        self._body.append(body)
        self._body_bytes += len(body)
        try:
            self._bodies.take(len(body), self._body_bytes)
        except GatewayError as error:
            self.drop_body()
            self._sink.body_refused(error)

    def on_chunk_header(self) -> None:
        self.unseen = 0

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self.phase = ReadPhase.BETWEEN
        self.unseen = 0
        if not self.wanted:
            self._sink.request_ended()
            return
        body = self._body
        whole = body[0] if len(body) == 1 else b"".join(body)
        self.drop_body()
        self._sink.body_read(whole)

    # ----

    def _stop(self, refusal: GatewayError) -> NoReturn:
        self.refusal = refusal
        raise _Stop


def _too_large(limits: ConnectionLimits) -> GatewayError:
    return GatewayError(
        ErrorKind.HEAD_TOO_LARGE,
        f"The head of a request may have {limits.headers} headers and {limits.head_bytes} bytes.",
    )
