"""One client's HTTP/1.1 connection: keep-alive, no pipelining, `Expect: 100-continue`, half-closed clients (probed),
hang-ups (the response is cancelled), early refusals of bodies, malformed heads (400, then close).

`request_reader` parses and the handler answers; this module connects them to the socket and decides who is late.
The rest of a body that was answered early is read and dropped for a while. A client that stops reading its response is
disconnected. After a request that arrives before the last response is complete, the connection closes at the end of
that response, as HTTP allows.

The write is the only work per event of a stream.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, cast

import httptools

from ..core.errors import ErrorKind, GatewayError, bad_request
from .exchange import CONTINUE, NEVER, Deadlines, HttpRequest, MakeSuccessor, ResponseWriter, Successor
from .request_reader import Bodies, ConnectionLimits, ReadPhase, RequestReader, http_date, too_slow

# ---- The error bytes for a request that could not be read as HTTP (a malformed or too large head, too many
# connections). The connection ends after them.

_TLS_HELLO: Final = b"\x16\x03"
_NO_TLS: Final = (
    "Write http:// instead of https:// in the client's base URL, or give the gateway a certificate (--tls-cert and "
    "--tls-key)."
)

Refuse = Callable[[str, ResponseWriter, GatewayError], None]


class _Collected:
    """A transport that collects the written bytes."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def date(self) -> bytes:
        return http_date(time.time())

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None: ...

    def answered(self) -> None: ...

    def abort(self) -> None: ...


def early_error(refuse: Refuse, url: bytes, error: GatewayError, *, head_only: bool = False) -> bytes:
    """The bytes of a refusal to a client whose request could not be read. `head_only`: the request was a HEAD."""
    transport = _Collected()
    path = url.decode("latin-1").partition("?")[0]
    refuse(path, ResponseWriter(transport, keep_alive=False, chunked=False, head_only=head_only), error)
    return transport.written


def not_http(broken: httptools.HttpParserError, data: bytes) -> GatewayError:
    """The refusal of unreadable HTTP. The parser's reasons hold no data, but exceptions of callbacks may."""
    if data.startswith(_TLS_HELLO):
        return bad_request("TLS was spoken to a port that speaks plain HTTP.", code="tls_on_plain_port", hint=_NO_TLS)
    reason = "" if isinstance(broken, httptools.HttpParserCallbackError) else f": {broken}"
    return bad_request(f"This is not valid HTTP{reason}.", code="invalid_http")


def plain_on_tls_port() -> GatewayError:
    hint = "Write https:// instead of http:// in the client's base URL."
    return bad_request("Plain HTTP was spoken to a port that speaks TLS.", code="plain_on_tls_port", hint=hint)


log = logging.getLogger(__name__)

LINGER_S: Final = 2.0
"""How long a refused client may keep sending before the socket is closed: closing at once would reset the connection,
and the client would lose the response."""
MAX_AT_ONCE: Final = 16
"""Requests in one read. A request that is refused at its head is answered in the parser's callback, so a read full of
such requests would delay all other connections."""
PROBE_S: Final = 0.05
"""Seconds between two probes of a client that may be gone; longer than a reset takes on a local connection."""


class PendingRequest(Protocol):
    """An admitted request."""

    def begin(self) -> None:
        """The body is complete: the request now counts as running. Raises GatewayError."""
        ...

    def answer(self) -> Coroutine[Any, Any, None]:
        """Make the response. Cancelled when the client hangs up."""
        ...

    def leave(self) -> None:
        """Release what the request holds. Idempotent, and allowed before `begin`."""
        ...


class RequestHandler(Protocol):
    """Answers requests."""

    def accept(self, request: HttpRequest, response: ResponseWriter) -> PendingRequest | None:
        """Called at the end of a head. None: the request is answered, and its body is not wanted. Raises
        GatewayError."""
        ...

    def refuse(
        self, path: str, response: ResponseWriter, error: GatewayError, request: HttpRequest | None = None
    ) -> None:
        """Send an error in the format of the API at the path."""
        ...


class ServerState(Protocol):
    """The server, as its connections see it."""

    limits: ConnectionLimits
    handler: RequestHandler
    bodies: Bodies
    scheme: str
    stopping: bool

    def date(self) -> bytes:
        """The current time as an HTTP date."""
        ...

    def joined(self, connection: "ClientConnection") -> bool:
        """Count a new connection. False if too many are open: the connection must refuse its requests."""
        ...

    def left(self, connection: "ClientConnection | Successor") -> None: ...

    def switched(self, old: "ClientConnection", new: Successor) -> None:
        """The socket now belongs to another protocol."""
        ...


class ClientConnection(asyncio.Protocol):
    __slots__ = (
        "_at_once",
        "_body_until",
        "_deadlines",
        "_deaf",
        "_half_closed",
        "_lingers",
        "_loop",
        "_paused",
        "_pending",
        "_reader",
        "_request",
        "_response",
        "_server",
        "_task",
        "_transport",
        "date",
        "wake_at",
        "write",
    )

    def __init__(self, server: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: asyncio.Transport
        self.write: Callable[[bytes], None]
        self.date = server.date
        self._reader = RequestReader(self, server.limits, server.bodies, server.scheme)
        self._deadlines = Deadlines(server.limits.send_timeout)
        self.wake_at = self._deadlines.wake_at
        self._request: HttpRequest | None = None
        """Set with its response, from the end of its head until both are complete."""
        self._response: ResponseWriter | None = None
        self._pending: PendingRequest | None = None
        self._task: asyncio.Task[None] | None = None
        """The task that makes the response."""
        self._body_until = NEVER
        self._at_once = 0
        """Requests that began in this read."""
        self._deaf = False
        self._lingers = False
        self._half_closed = False
        self._paused = False
        """The client does not read what is written."""

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        server = self._server
        if server.joined(self):
            self._due_in(server.limits.head_timeout)
        else:
            self._refuse(GatewayError(ErrorKind.OVERLOADED, "Too many connections are open.", hint="Try again soon."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._server.left(self)
        self._reader.drop_body()
        self.wake_at(NEVER, None)
        response, self._response, self._request = self._response, None, None
        task, self._task = self._task, None
        pending, self._pending = self._pending, None
        if response is None:
            return
        response.hung_up()
        if task is None:
            if pending is not None:
                pending.leave()
        elif not response.complete:
            task.cancel()  # the client is gone

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._at_once, reader = 0, self._reader
        try:
            reader.feed(data)
        except httptools.HttpParserError as broken:
            if not self._deaf:
                self._refuse(reader.refusal or not_http(broken, data))
            return
        if reader.refusal is not None:
            self._refuse(reader.refusal)
        elif reader.phase is not ReadPhase.BETWEEN:
            self._watch()

    def eof_received(self) -> bool:
        """Handle a half-closed client, which may still read (`nc -N` does) or be gone. Two no-ops tell them apart: the
        machine of a client that is gone answers the first with a reset, and the second fails. Returns whether the
        connection stays open."""
        due = self._reader.wanted and self._reader.phase is ReadPhase.BETWEEN
        if not due or self._server.scheme == "https" or not self._probe():
            return False
        self._half_closed = True
        self._loop.call_later(PROBE_S, self._probe)
        return True

    def _probe(self) -> bool:
        """Send a no-op. Returns False if none can be sent now."""
        response = self._response
        if response is None or response.complete or self._transport.is_closing():
            return False
        response.close_after()
        return response.probe()

    # ---- for the reader

    def may_begin(self) -> bool:
        if self._response is not None:
            self._response.close_after()
            self._deaf = True
            return False
        self._at_once += 1
        if self._at_once > MAX_AT_ONCE:
            self._reader.refusal = bad_request(
                f"More than {MAX_AT_ONCE} requests came in one piece.",
                code="invalid_http",
                hint="Wait for the answer to each request.",
            )
            return False
        self._deadlines.due = NEVER
        return True

    def head_read(self, request: HttpRequest, version: str, *, keep_alive: bool) -> None:
        server, modern = self._server, version == "1.1"
        self._request = request
        response = self._response = ResponseWriter(
            self,
            keep_alive=keep_alive and not server.stopping,
            chunked=modern,
            head_only=request.method == "HEAD",
        )
        if self._paused:
            response.pause()
        expects = modern and request.headers.get("expect", "").lower() == "100-continue"
        try:
            self._pending = server.handler.accept(request, response)
            if self._pending is not None:
                server.bodies.expect(request.headers)
                self._body_until = self._loop.time() + server.bodies.limits.total
                if expects:
                    self._transport.write(CONTINUE)
        except GatewayError as error:
            if expects:
                response.close_after()  # the client may or may not send the body now
            server.handler.refuse(request.path, response, error, request)

    def body_refused(self, error: GatewayError) -> None:
        assert self._request is not None
        assert self._response is not None
        self._server.handler.refuse(self._request.path, self._response, error, self._request)

    def body_read(self, body: bytes) -> None:
        request, response, pending = self._request, self._response, self._pending
        assert request is not None
        assert response is not None
        assert pending is not None
        request.body = body
        response.request_body(body)
        try:
            pending.begin()
        except GatewayError as error:
            self._server.handler.refuse(request.path, response, error, request)
            return
        self._task = self._loop.create_task(pending.answer())
        self._task.add_done_callback(partial(self._task_done, pending, response))

    def request_ended(self) -> None:
        self._next()

    def _task_done(self, pending: PendingRequest, response: ResponseWriter, task: asyncio.Task[None]) -> None:
        pending.leave()
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("an answer failed: %s", failure, exc_info=failure)
        if not response.complete:
            self._transport.abort()  # nothing else can complete the response

    # ---- for the response

    def answered(self) -> None:
        if self._response is None:
            return  # the client is gone
        self._reader.wanted = False
        self.wake_at(NEVER, None)
        if self._pending is not None:
            self._pending.leave()  # now, not at its task's end: the next request may come first
            self._pending = None
        if self._reader.phase is ReadPhase.BETWEEN:
            self._next()
        else:  # closing now would reset the connection, and the client would lose the response
            self._reader.drop_body()
            self._due_in(self._server.limits.drain_timeout)

    def abort(self) -> None:
        self._transport.abort()

    def switch(self, make: MakeSuccessor) -> None:
        """Give the socket to another protocol after the 101. If bytes arrived before it, they were read as HTTP, so the
        connection is aborted."""
        transport, spoke_early = self._transport, self._deaf
        self._deaf = True
        self.wake_at(NEVER, None)
        self._response = self._request = self._task = None
        if self._pending is not None:
            self._pending.leave()
            self._pending = None
        if spoke_early or self._half_closed or transport.is_closing():
            transport.abort()
            return
        successor = make(self._server)
        self._server.switched(self, successor)
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if self._paused:
            successor.pause_writing()

    def _next(self) -> None:
        """Request and response are complete: close, or wait for the next request."""
        response, self._response, self._request, self._task = self._response, None, None, None
        if response is not None and (not response.keep_alive or (self._server.stopping and not response.goes_on)):
            self._transport.close()
        else:
            self._deadlines.due = self._loop.time() + self._server.limits.keep_alive

    def retire(self) -> None:
        """The server is stopping: the response in progress is the last."""
        if self._response is not None:
            self._response.close_after()
        else:
            self._transport.close()

    # ---- time

    def _watch(self) -> None:
        """Set the deadline of the head or the body after each input."""
        if self._reader.phase is ReadPhase.HEAD:
            if self._deadlines.due == NEVER:
                self._due_in(self._server.limits.head_timeout)
        elif self._reader.wanted:
            left = self._body_until - self._loop.time()
            self._due_in(min(left, self._server.bodies.limits.idle))

    def _due_in(self, seconds: float) -> None:
        self._deadlines.due = self._loop.time() + seconds

    def check(self, now: float) -> None:
        """Check the deadlines. The server calls it periodically."""
        unsent, deadlines = self._transport.get_write_buffer_size(), self._deadlines
        if deadlines.stuck(now, unsent):
            self._transport.abort()  # close() would wait for the client to take the rest
            return
        if now >= deadlines.due and not (unsent and (self._lingers or self._idle)):
            deadlines.due = NEVER
            self._too_late()
        if self._half_closed:
            self._half_closed = False
            self._probe()  # once more, for distant clients
        deadlines.wake_due(now)

    @property
    def _idle(self) -> bool:
        return self._response is None and self._reader.phase is ReadPhase.BETWEEN and not self._reader.unseen

    def _too_late(self) -> None:
        request, response, phase = self._request, self._response, self._reader.phase
        if self._lingers:
            self._transport.abort()
            return
        if response is not None and phase is ReadPhase.BETWEEN:
            return  # a response is in progress
        if phase is ReadPhase.HEAD or (response is None and self._reader.unseen):
            self._refuse(GatewayError(ErrorKind.SLOW_REQUEST, "The head of the request did not arrive in time."))
        elif request is not None and response is not None and not response.complete:
            response.close_after()
            self._server.handler.refuse(request.path, response, too_slow(self._server.bodies.limits), request)
        else:
            self._transport.close()

    def pause_writing(self) -> None:
        self._paused = True
        if self._response is not None:
            self._response.pause()

    def resume_writing(self) -> None:
        self._paused = False
        if self._response is not None:
            self._response.resume()

    # ---- refusals

    def _refuse(self, error: GatewayError) -> None:
        """Send an error, stop reading and close. Nothing is sent if a response is in progress, or if the request was
        already answered and the rest of its body is not HTTP."""
        self._deaf = True
        if self._transport.is_closing():
            return
        response = self._response
        if response is not None and not response.complete and self._reader.phase is ReadPhase.BETWEEN:
            response.close_after()
            return
        if response is None or not response.started:
            reader = self._reader
            refusal = early_error(self._server.handler.refuse, reader.url, error, head_only=reader.head_only)
            self._transport.write(refusal)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._lingers = True
        self._due_in(LINGER_S)
