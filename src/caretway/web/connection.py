"""One client's connection: uvicorn's HTTP/1.1 protocol with the limits it has no setting for.

A head must be complete in time and may not be too large, also when it drips; what is left of a body that was answered
early is read and dropped, for a while; a client that takes nothing of its answer is given up. Requests that come
before the last answer is complete are not served: the connection closes after that answer, as HTTP allows. A request
to change the protocol is answered in this one. Malformed heads get a 400 in the route's own words, then the end.

Nothing here runs per event of a stream; a request that arrives in one piece arms no timer.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ..core.errors import ErrorKind, GatewayError, bad_request
from .head import head_problem, without_upgrade
from .one_piece import OnePiece

LINGER_S: Final = 2.0
"""How long a refused client may go on talking before the socket is closed: closing at once would reset the connection,
and the client would lose the answer."""

Refuse = Callable[[str, GatewayError], tuple[int, bytes]]
"""(path, error) -> status and JSON body, in the words of whatever API lives at that path."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int = 2048
    head_bytes: int = 64 * 2**10
    headers: int = 128
    head_timeout: float = 20.0
    drain_timeout: float = 30.0
    send_timeout: float = 120.0


class _Phase(Enum):
    BETWEEN = "between requests, or while one is answered"
    HEAD = "within a head"
    BODY = "within a body"


class _Stop(Exception):
    """Raised in a callback of the parser: it must not go on."""


class Connection(HttpToolsProtocol):
    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    refuse: ClassVar[Refuse]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._phase = _Phase.BETWEEN
        self._unseen = 0
        """Bytes that the parser took since it last handed something over: a head, a chunk, a piece of a body."""
        self._head_bytes = 0
        self._upgrading = False
        self._deaf = False
        self._spoken = False
        self._refusal: GatewayError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    # ---- the socket

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn types it
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(GatewayError(ErrorKind.OVERLOADED, "Too many connections are open.", hint="Try again soon."))
        else:
            self._arm(self.limits.head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._disarm()
        if self._send_timer is not None:
            self._send_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._spoken = True
        self._unseen += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as broken:
            if not self._deaf:
                self._refuse(self._refusal or _not_http(broken))
            return
        if self._unseen > self.limits.head_bytes:
            self._refuse(self._too_large())
        else:
            self._watch()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            version, method = self.parser.get_http_version(), self.parser.get_method()
            head = without_upgrade(method, self.url, version, self.headers)
            self._upgrading = False
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(head + data[upgrade.args[0] :])

    # ---- the parser

    def on_message_begin(self) -> None:
        if self._answering():
            self.cycle.keep_alive = False
            self._deaf = True
            raise _Stop
        self._phase = _Phase.HEAD
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not _Phase.HEAD:
            return  # a trailer: it must not be taken for a header that was checked
        self._head_bytes += len(name) + len(value) + 4
        super().on_header(name, value)
        if self._head_bytes > self.limits.head_bytes or len(self.headers) > self.limits.headers:
            self._stop(self._too_large())

    def on_headers_complete(self) -> None:
        parser = self.parser
        if problem := head_problem(parser.get_http_version(), parser.get_method(), self.url, self.headers):
            self._stop(bad_request(problem, code="invalid_http"))
        if parser.should_upgrade():
            self._upgrading = True
            return
        super().on_headers_complete()
        if self.scope["method"] != "HEAD":  # whose answer is all head: nothing would come to take it along
            self.cycle.transport = cast(asyncio.Transport, OnePiece(self.cycle))
        self._phase = _Phase.BODY
        self._unseen = 0

    def on_body(self, body: bytes) -> None:
        self._unseen = 0
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._unseen = 0

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self._phase = _Phase.BETWEEN
        self._unseen = 0
        super().on_message_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            # It was answered before it was complete; what we dropped meanwhile had ended uvicorn's own timer.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _stop(self, refusal: GatewayError) -> None:
        self._refusal = refusal
        raise _Stop

    # ---- time

    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn's type leaves out that there is none at first
        return cycle is not None and not cycle.response_complete

    def _watch(self) -> None:
        """After each piece of input: is there something that must end in time?"""
        if self._phase is _Phase.HEAD or (
            self._phase is _Phase.BETWEEN and not self._answering() and self.timeout_keep_alive_task is None
        ):
            if self._timer is None:
                self._arm(self.limits.head_timeout)
        elif self._phase is _Phase.BODY and not self._answering():
            if self._timer is None:
                self._arm(self.limits.drain_timeout)
        elif self._timer is not None:  # a body that somebody waits for has its limits there
            self._disarm()

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self._phase is _Phase.BODY or not self._spoken:
            self.transport.close()
        else:
            self._refuse(GatewayError(ErrorKind.SLOW_REQUEST, "The head of the request did not arrive in time."))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():  # also below the mark at which writing pauses: it must go out
            self._expect_progress()

    def _expect_progress(self) -> None:
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(self.limits.send_timeout, self._give_up)

    def _give_up(self) -> None:
        self._send_timer = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # close() would wait for the client to take the rest

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    # ---- refusals

    def _too_large(self) -> GatewayError:
        return GatewayError(
            ErrorKind.HEAD_TOO_LARGE,
            f"The head of a request may have {self.limits.headers} headers and {self.limits.head_bytes} bytes.",
        )

    def _refuse(self, error: GatewayError) -> None:
        """Answer, hang up, and listen no more. In the middle of an answer there is nothing to be said."""
        self._deaf = True
        self._disarm()
        if self.transport.is_closing():
            return
        if self._answering():
            if self.cycle.response_started:
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        path = getattr(self, "url", b"").decode("latin-1").partition("?")[0]
        status, body = type(self).refuse(path, error)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase if status in _STATUSES else ''}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_S, self.transport.abort)


_STATUSES: Final = frozenset(HTTPStatus)


def _not_http(broken: httptools.HttpParserError) -> GatewayError:
    """The parser's reasons name no data; what a callback raised may."""
    reason = "" if isinstance(broken, httptools.HttpParserCallbackError) else f": {broken}"
    return bad_request(f"This is not valid HTTP{reason}.", code="invalid_http")


def connection_class(limits: ConnectionLimits, refuse: Refuse) -> type[Connection]:
    """uvicorn makes its protocols itself, so what they have to know is put into a class."""
    return type("Connection", (Connection,), {"limits": limits, "refuse": staticmethod(refuse)})
