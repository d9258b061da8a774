"""Bytes to requests, with the llhttp parser, which refuses doubled Content-Length, or one beside Transfer-Encoding:
limits of heads and bodies while they drip in, trailers (ignored), upgrade requests (read as plain HTTP),
percent-decoding of paths. Knows no socket.

A head may not be too large, also when it drips, and must be one that everybody reads alike (`head`); a body is bounded
in size, and all bodies together are (`body`). A request to change the protocol is read as one that stays with this one.
"""

from enum import Enum
from typing import Final, NoReturn, Protocol
from urllib.parse import unquote_to_bytes

import httptools

from ..core.errors import ErrorKind, GatewayError, bad_request
from .body import Bodies
from .exchange import Header, HttpRequest
from .head import head_problem, head_size, without_upgrade
from .limits import ConnectionLimits


class ReadPhase(Enum):
    BETWEEN = "between requests, or while one is answered"
    HEAD = "head"
    BODY = "body"


class _Stop(Exception):
    """Raised out of the parser: it must not go on."""


class _Names(dict[bytes, tuple[bytes, str]]):
    """Header names as clients spell them -> in lower case, as bytes and as text. The usual ones are at hand."""

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
    """Who gets what was read."""

    def may_begin(self) -> bool:
        """A request begins. False: the last one is not answered yet, and this one is not read."""
        ...

    def head_read(self, request: HttpRequest, version: str, *, keep_alive: bool) -> None: ...

    def body_refused(self, error: GatewayError) -> None: ...

    def body_read(self, body: bytes) -> None:
        """Not called when the request was answered without."""
        ...

    def request_ended(self) -> None:
        """The last byte is here of a request that was answered already."""
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
        """The head's headers, names in lower case."""
        self._headers: dict[str, str] = {}
        """The same, of a repeated one the last."""
        self._header_count = 0
        """How many lines, without a call for every header."""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._upgrading = False
        self.phase = ReadPhase.BETWEEN
        self.url = b""
        """As the request line has it."""
        self.unseen = 0
        """Bytes that the parser took since it last handed something over: a head, a chunk, a piece of a body."""
        self.wanted = False
        """A request is being read that is not answered yet."""
        self.refusal: GatewayError | None = None
        """Why reading was given up, when it was our own doing."""

    def feed(self, data: bytes) -> None:
        """Raises httptools.HttpParserError: nothing more can be read then."""
        self.unseen += len(data)
        rest: bytes | memoryview = data
        while rest:
            try:
                self._parser.feed_data(rest)
                break
            except httptools.HttpParserUpgrade as upgrade:  # no HttpParserError, and there may be another one behind it
                rest = memoryview(rest)[upgrade.args[0] :]
                self._stay()
        if self.unseen > self._limits.head_bytes:
            self.refusal = _too_large(self._limits)

    def _stay(self) -> None:
        """The head that asked for another protocol is read once more, without that wish."""
        version, method = self._parser.get_http_version(), self._parser.get_method()
        head = without_upgrade(method, self.url, version, self._lines)
        self._upgrading = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(head)

    @property
    def head_only(self) -> bool:
        """The request is a HEAD, as far as it was read: a method is known when its URL begins."""
        return bool(self.url) and self._parser.get_method() == b"HEAD"

    def drop_body(self) -> None:
        """What has arrived is not needed any more, or another object holds it now."""
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
            return  # a trailer: it must not be taken for a header that was checked
        lower, text = _NAMES[name]
        self._lines.append((lower, value))
        self._headers[text] = value.decode("latin-1")
        self._header_count += 1
        if self._header_count > self._limits.headers:
            self._stop(_too_large(self._limits))

    def on_headers_complete(self) -> None:
        parser = self._parser
        version, method = parser.get_http_version(), parser.get_method()
        if head_size(self.url, self._lines) > self._limits.head_bytes:
            self._stop(_too_large(self._limits))
        if problem := head_problem(version, method, self.url, self._lines):
            self._stop(bad_request(problem, code="invalid_http"))
        if parser.should_upgrade():
            self._upgrading = True
            return
        path, query = self._target()
        request = HttpRequest(method.decode("ascii"), path, self._headers, self._scheme, query)
        self._lines, self._headers = [], {}
        self.phase = ReadPhase.BODY
        self.wanted = True
        self.unseen = 0
        self._sink.head_read(request, version, keep_alive=parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        self.unseen = 0
        if not self.wanted:
            return  # it was answered without
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

    def _target(self) -> tuple[str, str]:
        """The path, decoded, and the query as it was sent."""
        url, query = self.url, ""
        if not url.startswith(b"/") or b"?" in url or b"#" in url:
            try:
                parsed = httptools.parse_url(url)
            except httptools.HttpParserInvalidURLError:
                self._stop(bad_request("The request line holds no URL.", code="invalid_http"))
            url, query = parsed.path or b"/", (parsed.query or b"").decode("latin-1")
        path = unquote_to_bytes(url).decode("utf-8", "replace") if b"%" in url else url.decode("latin-1")
        return path.rstrip("/") or "/", query

    def _stop(self, refusal: GatewayError) -> NoReturn:
        self.refusal = refusal
        raise _Stop


def _too_large(limits: ConnectionLimits) -> GatewayError:
    return GatewayError(
        ErrorKind.HEAD_TOO_LARGE,
        f"The head of a request may have {limits.headers} headers and {limits.head_bytes} bytes.",
    )
