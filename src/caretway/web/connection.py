"""One client's connection: HTTP/1.1 between a socket and one exchange at a time.

A head must be complete in time and may not be too large, even if it drips (slowloris); a body is bounded in size and
time, and all bodies together are; the rest of a body that was answered early is read and dropped, for a while; a client
that takes nothing of its answer is given up. Requests that come before the last answer is complete are not served: the
connection closes after that answer, as HTTP allows. A request to change the protocol is answered in this one. Malformed
heads get a 400 in the route's own words, then the end.

Nothing here runs per event of a stream but the write. A connection has no timer: the server looks at all of them now
and then, so what is late is found out a moment later than it could be.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, Protocol, cast
from urllib.parse import unquote_to_bytes

import httptools

from ..core.errors import ErrorKind, GatewayError, bad_request
from .body import Bodies, too_slow
from .early_errors import early_error, not_http
from .exchange import CONTINUE, Exchange, HttpRequest
from .head import head_problem, head_size, without_upgrade
from .limits import ConnectionLimits

log = logging.getLogger(__name__)

LINGER_S: Final = 2.0
"""How long a refused client may go on talking before the socket is closed: closing at once would reset the connection,
and the client would lose the answer."""
PROBE_S: Final = 0.05
"""Between two signs to a client that may be gone; longer than a reset takes on this machine."""
_NEVER: Final = float("inf")


class RequestHandler(Protocol):
    """Whoever answers."""

    def enter(self, exchange: Exchange) -> None:
        """The head is here. It may be answered at once: then its body is not wanted. Raises GatewayError."""
        ...

    def begin(self, exchange: Exchange) -> None:
        """The body is here too: from now on it takes a place among the answers. Raises GatewayError."""
        ...

    async def answer(self, exchange: Exchange) -> None:
        """Make the answer. Cancelled when the client hangs up."""
        ...

    def refuse(self, exchange: Exchange, error: GatewayError) -> None:
        """Say why there is no answer, in the words of whatever API lives at the path."""
        ...

    def leave(self, exchange: Exchange) -> None:
        """It is over, however it ended. Called once for each that began."""
        ...


class ServerState(Protocol):
    """The server, as its connections see it."""

    limits: ConnectionLimits
    handler: RequestHandler
    bodies: Bodies
    scheme: str
    stopping: bool

    def date(self) -> bytes:
        """Now, as a header has it."""
        ...

    def joined(self, connection: "ClientConnection") -> bool:
        """False: there are too many already."""
        ...

    def left(self, connection: "ClientConnection") -> None: ...


class _Phase(Enum):
    BETWEEN = "between requests, or while one is answered"
    HEAD = "within a head"
    BODY = "within a body"


class _Stop(Exception):
    """Raised in a callback of the parser: it must not go on."""


class ClientConnection(asyncio.Protocol):
    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_until",
        "_deadline",
        "_deaf",
        "_exchange",
        "_half_closed",
        "_headers",
        "_house",
        "_lingers",
        "_loop",
        "_parser",
        "_paused",
        "_phase",
        "_refusal",
        "_stuck_since",
        "_transport",
        "_unseen",
        "_unsent",
        "_upgrading",
        "_url",
        "date",
        "write",
    )

    def __init__(self, house: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        self._house = house
        self._loop = loop
        self._transport: asyncio.Transport
        self.write: Callable[[bytes], None]
        self.date = house.date
        self._parser = httptools.HttpRequestParser(self)
        self._exchange: Exchange | None = None
        self._phase = _Phase.BETWEEN
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._body_until = _NEVER
        self._unseen = 0
        """Bytes that the parser took since it last handed something over: a head, a chunk, a piece of a body."""
        self._upgrading = False
        self._deaf = False
        self._refusal: GatewayError | None = None
        self._deadline = _NEVER
        self._lingers = False
        self._half_closed = False
        self._paused = False
        """The client does not take what is written."""
        self._unsent = 0
        """What waited to be taken at the server's last look, and since when it has not become less."""
        self._stuck_since = _NEVER

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        house = self._house
        if house.joined(self):
            self._due_in(house.limits.head_timeout)
        else:
            self._refuse(GatewayError(ErrorKind.OVERLOADED, "Too many connections are open.", hint="Try again soon."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._house.left(self)
        self._drop_body()
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        exchange.on_writable = None
        if exchange.witness is not None and not exchange.complete:
            exchange.witness.hung_up()
        if exchange.task is None:
            self._leave(exchange)
        elif not exchange.complete:
            exchange.task.cancel()  # whatever the answer is waiting for, it is not wanted any more

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unseen += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as broken:
            if not self._deaf:
                self._refuse(self._refusal or not_http(broken))
            return
        if self._unseen > self._house.limits.head_bytes:
            self._refuse(self._too_large())
        else:
            self._watch()

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            version, method = self._parser.get_http_version(), self._parser.get_method()
            head = without_upgrade(method, self._url, version, self._headers)
            self._upgrading = False
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(head + data[upgrade.args[0] :])

    def eof_received(self) -> bool:
        """The client has said all it will say. It may still listen (`nc -N` does), or be gone: that shows only when
        something is sent, so something is that changes nothing, twice: the first is answered with a reset by the
        machine of a client that is gone, the second fails then."""
        exchange = self._exchange
        due = exchange is not None and not exchange.complete and self._phase is _Phase.BETWEEN
        if not due or self._house.scheme == "https" or not self._probe():
            return False
        self._half_closed = True
        self._loop.call_later(PROBE_S, self._probe)
        return True

    def _probe(self) -> bool:
        """False: there is nothing that could be sent now."""
        exchange = self._exchange
        if exchange is None or exchange.complete or self._transport.is_closing():
            return False
        exchange.keep_alive = False
        return exchange.probe()

    # ---- the parser

    def on_message_begin(self) -> None:
        exchange = self._exchange
        if exchange is not None:
            exchange.keep_alive = False
            self._deaf = True
            raise _Stop
        self._phase = _Phase.HEAD
        self._deadline = _NEVER
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not _Phase.HEAD:
            return  # a trailer: it must not be taken for a header that was checked
        headers = self._headers
        headers.append((name.lower(), value))
        if len(headers) > self._house.limits.headers:
            self._stop(self._too_large())

    def on_headers_complete(self) -> None:
        parser, house = self._parser, self._house
        version, method = parser.get_http_version(), parser.get_method()
        if head_size(self._url, self._headers) > house.limits.head_bytes:
            self._stop(self._too_large())
        if problem := head_problem(version, method, self._url, self._headers):
            self._stop(bad_request(problem, code="invalid_http"))
        if parser.should_upgrade():
            self._upgrading = True
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers}
        http = HttpRequest(method.decode("ascii"), self._path(), headers, house.scheme)
        modern = version == "1.1"
        keep_alive = not house.stopping and parser.should_keep_alive()
        exchange = self._exchange = Exchange(self, http, keep_alive=keep_alive, chunked=modern)
        exchange.blocked = self._paused
        expects = modern and headers.get("expect", "").lower() == "100-continue"
        self._headers = []
        self._phase = _Phase.BODY
        self._unseen = 0
        try:
            house.handler.enter(exchange)
            if not exchange.complete:
                house.bodies.expect(headers)
                self._body_until = self._loop.time() + house.bodies.limits.total
                if expects:
                    self._transport.write(CONTINUE)
        except GatewayError as error:
            if expects:
                exchange.keep_alive = False  # whether its body comes all the same, nobody can know
            house.handler.refuse(exchange, error)

    def _path(self) -> str:
        url = self._url
        if not url.startswith(b"/") or b"?" in url or b"#" in url:
            try:
                url = httptools.parse_url(url).path or b"/"
            except httptools.HttpParserInvalidURLError:
                self._stop(bad_request("The request line holds no URL.", code="invalid_http"))
        path = unquote_to_bytes(url).decode("utf-8", "replace") if b"%" in url else url.decode("latin-1")
        return path.rstrip("/") or "/"

    def on_body(self, body: bytes) -> None:
        self._unseen = 0
        exchange = self._exchange
        if exchange is None or exchange.complete:
            return  # it was answered without
        self._body.append(body)
        self._body_bytes += len(body)
        try:
            self._house.bodies.take(len(body), self._body_bytes)
        except GatewayError as error:
            self._drop_body()
            self._house.handler.refuse(exchange, error)

    def on_chunk_header(self) -> None:
        self._unseen = 0

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self._phase = _Phase.BETWEEN
        self._unseen = 0
        exchange = self._exchange
        assert exchange is not None
        if exchange.complete:
            self._next()
            return
        body = self._body
        exchange.body = body[0] if len(body) == 1 else b"".join(body)
        self._drop_body()
        if exchange.witness is not None:
            exchange.witness.request_body(exchange.body)
        try:
            self._house.handler.begin(exchange)
        except GatewayError as error:
            self._house.handler.refuse(exchange, error)
            return
        exchange.task = self._loop.create_task(self._house.handler.answer(exchange))
        exchange.task.add_done_callback(partial(self._task_done, exchange))

    def _task_done(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        exchange.task = None
        self._leave(exchange)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("an answer failed: %s", failure, exc_info=failure)
        if not exchange.complete:
            self._transport.abort()  # nobody is left who could answer

    def _leave(self, exchange: Exchange) -> None:
        if exchange.entered:
            exchange.entered = False
            self._house.handler.leave(exchange)

    def _drop_body(self) -> None:
        self._house.bodies.give_back(self._body_bytes)
        self._body = []
        self._body_bytes = 0

    def _stop(self, refusal: GatewayError) -> None:
        self._refusal = refusal
        raise _Stop

    # ---- for the exchange

    def answered(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return  # the client is gone
        self._leave(exchange)  # not when its task is done: the client's next request may be here before that
        if self._phase is _Phase.BETWEEN:
            self._next()
        else:  # closing now would reset the connection, and the client would lose the answer
            self._drop_body()
            self._due_in(self._house.limits.drain_timeout)

    def abort(self) -> None:
        self._transport.abort()

    def _next(self) -> None:
        """Request and answer are complete."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and (not exchange.keep_alive or self._house.stopping):
            self._transport.close()
        else:
            self._due_in(self._house.limits.keep_alive)

    def retire(self) -> None:
        """The server stops: an answer that is being made is the last one."""
        if self._exchange is not None:
            self._exchange.keep_alive = False
        else:
            self._transport.close()

    # ---- time

    def _watch(self) -> None:
        """After each piece of input: is there something that must end in time?"""
        if self._phase is _Phase.HEAD:
            if self._deadline == _NEVER:
                self._due_in(self._house.limits.head_timeout)
        elif self._phase is _Phase.BODY and self._exchange is not None and not self._exchange.complete:
            left = self._body_until - self._loop.time()
            self._due_in(min(left, self._house.bodies.limits.idle))

    def _due_in(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds

    def check(self, now: float) -> None:
        """The server asks now and then: is somebody late?"""
        unsent = self._transport.get_write_buffer_size()
        if not unsent:
            self._stuck_since = _NEVER
        elif unsent < self._unsent or self._stuck_since == _NEVER:
            self._stuck_since = now  # the client takes something, however slowly
        elif now - self._stuck_since >= self._house.limits.send_timeout:
            self._transport.abort()  # close() would wait for the client to take the rest
            return
        self._unsent = unsent
        if now >= self._deadline and not (unsent and (self._lingers or self._idle)):
            self._deadline = _NEVER
            self._too_late()
        if self._half_closed:
            self._half_closed = False
            self._probe()  # once more, for clients that are far away
        exchange = self._exchange
        if exchange is not None and now >= exchange.due and (wake := exchange.on_due) is not None:
            exchange.on_due = None
            wake()

    @property
    def _idle(self) -> bool:
        return self._exchange is None and self._phase is _Phase.BETWEEN and not self._unseen

    def _too_late(self) -> None:
        exchange = self._exchange
        if self._lingers:
            self._transport.abort()
            return
        if exchange is not None and self._phase is _Phase.BETWEEN:
            return  # an answer is being made
        if self._phase is _Phase.HEAD or (exchange is None and self._unseen):
            self._refuse(GatewayError(ErrorKind.SLOW_REQUEST, "The head of the request did not arrive in time."))
        elif exchange is not None and not exchange.complete:
            exchange.keep_alive = False
            self._house.handler.refuse(exchange, too_slow(self._house.bodies.limits))
        else:
            self._transport.close()

    def pause_writing(self) -> None:
        self._paused = True
        if self._exchange is not None:
            self._exchange.blocked = True

    def resume_writing(self) -> None:
        self._paused = False
        exchange = self._exchange
        if exchange is not None:
            exchange.blocked = False
            if exchange.on_writable is not None:
                exchange.on_writable()

    # ---- refusals

    def _too_large(self) -> GatewayError:
        limits = self._house.limits
        return GatewayError(
            ErrorKind.HEAD_TOO_LARGE,
            f"The head of a request may have {limits.headers} headers and {limits.head_bytes} bytes.",
        )

    def _refuse(self, error: GatewayError) -> None:
        """Answer, hang up, and listen no more. While an answer is made there is nothing to be said: it is the last. Nor
        is there when the request was answered already and the rest of its body is no HTTP."""
        self._deaf = True
        if self._transport.is_closing():
            return
        exchange = self._exchange
        if exchange is not None and not exchange.complete and self._phase is _Phase.BETWEEN:
            exchange.keep_alive = False
            return
        if exchange is None or not exchange.started:
            self._transport.write(early_error(self._house.handler.refuse, self._url, error))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._lingers = True
        self._due_in(LINGER_S)
