"""One client's connection, HTTP/1.1: keep-alive between requests, no pipelining, `Expect: 100-continue`, half-closed
clients (probed), a client that hangs up (its answer is cancelled), bodies that are refused early, malformed heads (400,
then the end).

`request_reader` reads, `deadlines` tells who is late, and the handler answers; here they meet the socket. What is left
of a body that was answered early is read and dropped, for a while; a client that takes nothing of its response is given
up. Requests that come before the last response is complete are not served: the connection closes after that response,
as HTTP allows. Malformed heads get a 400 in the route's own words, then the end.

Nothing here runs per event of a stream but the write.
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

# ---- The bytes of an error for a request that could not be read as HTTP (a malformed or too large head, too many
# connections): there is no request to answer, and the connection ends after it.

_TLS_HELLO: Final = b"\x16\x03"
_NO_TLS: Final = (
    "Write http:// instead of https:// in the client's base URL, or give the gateway a certificate (--tls-cert and "
    "--tls-key)."
)

Refuse = Callable[[str, ResponseWriter, GatewayError], None]


class _Collected:
    """A connection that keeps what is written."""

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
    """The bytes of a refusal to a client whose request could not be read. `head_only`: it asked for a head alone."""
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
"""How long a refused client may go on talking before the socket is closed: closing at once would reset the connection,
and the client would lose the answer."""
MAX_AT_ONCE: Final = 16
"""Requests of one read. One that is refused at its head is answered within the callback that read it, so that a read
full of them would hold up everybody else."""
PROBE_S: Final = 0.05
"""Between two signs to a client that may be gone; longer than a reset takes on this machine."""


class PendingRequest(Protocol):
    """A request that was let in."""

    def begin(self) -> None:
        """The body is here too: from now on it takes a place among the answers. Raises GatewayError."""
        ...

    def answer(self) -> Coroutine[Any, Any, None]:
        """Make the answer. Cancelled when the client hangs up."""
        ...

    def leave(self) -> None:
        """End of the request, however it ended. Idempotent, and allowed before a start."""
        ...


class RequestHandler(Protocol):
    """Whoever answers."""

    def accept(self, request: HttpRequest, response: ResponseWriter) -> PendingRequest | None:
        """The head is here. None: it was answered at once, and its body is not wanted. Raises GatewayError."""
        ...

    def refuse(
        self, path: str, response: ResponseWriter, error: GatewayError, request: HttpRequest | None = None
    ) -> None:
        """Say why there is no answer, in the words of whatever API lives at the path."""
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

    def left(self, connection: "ClientConnection | Successor") -> None: ...

    def switched(self, old: "ClientConnection", new: Successor) -> None:
        """The socket changed to another protocol."""
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
        """With its response: from the end of its head until both are complete."""
        self._response: ResponseWriter | None = None
        self._pending: PendingRequest | None = None
        self._task: asyncio.Task[None] | None = None
        """Makes the answer."""
        self._body_until = NEVER
        self._at_once = 0
        """Requests that began in this read."""
        self._deaf = False
        self._lingers = False
        self._half_closed = False
        self._paused = False
        """The client does not take what is written."""

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
            task.cancel()  # whatever the answer is waiting for, it is not wanted any more

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
        else:
            self._watch()

    def eof_received(self) -> bool:
        """The client has said all it will say. It may still listen (`nc -N` does), or be gone: that shows only when
        something is sent, so something is that changes nothing, twice: the first is answered with a reset by the
        machine of a client that is gone, the second fails then."""
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
                response.close_after()  # whether its body comes all the same, nobody can know
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
            self._transport.abort()  # nobody is left who could answer

    # ---- for the response

    def answered(self) -> None:
        if self._response is None:
            return  # the client is gone
        self._reader.wanted = False
        self.wake_at(NEVER, None)
        if self._pending is not None:
            self._pending.leave()  # not when its task is done: the client's next request may be here before that
            self._pending = None
        if self._reader.phase is ReadPhase.BETWEEN:
            self._next()
        else:  # closing now would reset the connection, and the client would lose the answer
            self._reader.drop_body()
            self._due_in(self._server.limits.drain_timeout)

    def abort(self) -> None:
        self._transport.abort()

    def switch(self, make: MakeSuccessor) -> None:
        """The 101 is written. What a client sent before it got that was read as HTTP already: it must not go on."""
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
        """Request and answer are complete."""
        response, self._response, self._request, self._task = self._response, None, None, None
        if response is not None and (not response.keep_alive or (self._server.stopping and not response.goes_on)):
            self._transport.close()
        else:
            self._due_in(self._server.limits.keep_alive)

    def retire(self) -> None:
        """The server stops: an answer that is being made is the last one."""
        if self._response is not None:
            self._response.close_after()
        else:
            self._transport.close()

    # ---- time

    def _watch(self) -> None:
        """Checks after each input whether something must end in time."""
        phase = self._reader.phase
        if phase is ReadPhase.HEAD:
            if self._deadlines.due == NEVER:
                self._due_in(self._server.limits.head_timeout)
        elif phase is ReadPhase.BODY and self._reader.wanted:
            left = self._body_until - self._loop.time()
            self._due_in(min(left, self._server.bodies.limits.idle))

    def _due_in(self, seconds: float) -> None:
        self._deadlines.due = self._loop.time() + seconds

    def check(self, now: float) -> None:
        """Called by the server now and then: checks deadlines."""
        unsent, deadlines = self._transport.get_write_buffer_size(), self._deadlines
        if deadlines.stuck(now, unsent):
            self._transport.abort()  # close() would wait for the client to take the rest
            return
        if now >= deadlines.due and not (unsent and (self._lingers or self._idle)):
            deadlines.due = NEVER
            self._too_late()
        if self._half_closed:
            self._half_closed = False
            self._probe()  # once more, for clients that are far away
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
            return  # an answer is being made
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
        """Answer, hang up, and listen no more. While an answer is made there is nothing to be said: it is the last. Nor
        is there when the request was answered already and the rest of its body is no HTTP."""
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
