"""All connections of the listening socket: accepting many at once, `max_connections`, the periodic check of deadlines,
the time limit of TLS handshakes, the `Date` header, the steps of a graceful shutdown.

Graceful shutdown, in the order that the gateway calls: `retire` closes the listener and makes the responses in progress
the last, `emptied` waits until all clients have left, `cut` closes the connections that remain.
"""

import asyncio
import logging
import math
import resource
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, cast

from msgspec.structs import replace

from ..processes.tasks import spawn
from .connection import LINGER_S, ClientConnection, RequestHandler, early_error, plain_on_tls_port
from .exchange import Successor
from .request_reader import Bodies, ConnectionLimits, http_date

# ---- TLS on the listening socket. Plain HTTP on a TLS port gets a refusal in plain HTTP that names the mistake, and
# then the connection ends. OpenSSL recognises such a request by its first bytes and aborts the handshake. It consumes
# the request line, so the refusal has no dialect.

_PLAIN_HTTP: Final = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
"""OpenSSL's reasons for GET, HEAD, POST and PUT, and for CONNECT."""


class TlsContext(ssl.SSLContext):
    """A server's TLS context. `refusal`, set at start, makes the bytes for a client that sent plain HTTP."""

    refusal: Callable[[], bytes]

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *given: Any, **named: Any) -> ssl.SSLObject:
        made = cast(_Handshake, super().wrap_bio(incoming, outgoing, *given, **named))
        made.outgoing = outgoing
        return made


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    refused: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self.refused is not None:
            raise self.refused
        try:
            super().do_handshake()
        except ssl.SSLError as failure:
            if failure.reason not in _PLAIN_HTTP:
                raise
            self.refused = failure
            self.outgoing.write(cast(TlsContext, self.context).refusal())
            # The event loop sends outgoing bytes only while the handshake continues. Then the client hangs up, or the
            # handshake's time limit ends it.
            raise ssl.SSLWantReadError from failure


def tls_context(certificate: str, key: str) -> TlsContext:
    context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Handshake
    context.load_cert_chain(certificate, key)
    return context


# ---- File descriptors. Above the limit accepting fails silently (uvloop closes such a connection at once). So the soft
# limit of open files (`ulimit -n`, RLIMIT_NOFILE) is raised towards the hard one at start, and the gateway takes no
# more connections than there are descriptors.

log = logging.getLogger(__name__)

RESERVED: Final = 256
"""Descriptors for everything else: connections to Cursor, programs, files."""
_LEAST: Final = 16


def fitting(wanted: int, soft: int | None) -> int:
    """Connections that fit under a soft limit; None means no limit."""
    return wanted if soft is None else min(wanted, max(_LEAST, soft - RESERVED))


def soft_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_soft_limit(connections: int) -> None:
    """Raise the process's soft limit as far as these connections need it and the hard limit allows."""
    soft = soft_limit()
    if soft is None or soft >= connections + RESERVED:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED if hard == resource.RLIM_INFINITY else min(hard, connections + RESERVED)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    except (OSError, ValueError) as refused:
        log.warning("the limit of open files stays at %d: %s", soft, refused)


def connections_that_fit(wanted: int) -> int:
    """The part of `max_connections` that this process can hold; logs a warning if that is less."""
    soft = soft_limit()
    fit = fitting(wanted, soft)
    if fit < wanted:
        log.warning(
            "only %d of %d connections (`max_connections`) fit under the limit of %s open files; raise `ulimit -n`",
            fit,
            wanted,
            soft,
        )
    return fit


BACKLOG: Final = 2048
"""Clients that wait to be accepted."""
LET_IN_AT_ONCE: Final = 64
"""Clients that are accepted in one turn of the event loop."""
TELL_EVERY_S: Final = 60.0


class Server:
    def __init__(
        self, handler: RequestHandler, limits: ConnectionLimits, bodies: Bodies, tls: TlsContext | None
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.bodies = bodies
        self.scheme = "https" if tls is not None else "http"
        self.stopping = False
        self._tls = tls
        self._connections: set[ClientConnection | Successor] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._listening: asyncio.Server | None = None
        self._listener: socket.socket | None = None
        self._letting_in = False
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.TimerHandle | None = None
        self._second = 0
        self._date = b""
        self._turned_away = -math.inf

    def date(self) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second, self._date = now, http_date(now)
        return self._date

    async def start(self, listener: socket.socket) -> None:
        if self._tls is not None:
            self._tls.refusal = self._no_plain_http
        self._listening = await self._loop.create_server(
            self._client, sock=listener, backlog=BACKLOG, **self._secured()
        )
        self._listener = listener

    def _client(self) -> ClientConnection:
        return ClientConnection(self, self._loop)

    def _secured(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        # A client that sends no TLS close is not waited for longer than a refused client.
        return {
            "ssl": self._tls,
            "ssl_handshake_timeout": self.limits.head_timeout,
            "ssl_shutdown_timeout": LINGER_S,
        }

    def _let_in(self) -> None:
        """Accept clients that connect at the same time. libuv accepts one per turn of the event loop, so the last of 64
        would wait for 64 long turns."""
        self._letting_in = False
        for _ in range(LET_IN_AT_ONCE):
            try:
                client, _ = cast(socket.socket, self._listener).accept()
            except OSError:  # no client, no listener, or no descriptors (the loop logs that)
                return
            client.setblocking(False)
            spawn(self._take(client), "a client's connection")

    async def _take(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._client, client, **self._secured())
        except OSError:
            client.close()  # the client left before it was accepted, or its handshake failed

    def _no_plain_http(self) -> bytes:
        return early_error(self.handler.refuse, b"", plain_on_tls_port())

    def _look_round(self) -> None:
        self._looking = None
        if self._connections:
            self._look_later()
        now = self._loop.time()
        for connection in list(self._connections):
            connection.check(now)

    def _look_later(self) -> None:
        self._looking = self._loop.call_later(self.limits.look_every, self._look_round)

    def joined(self, connection: ClientConnection) -> bool:
        self._connections.add(connection)
        if self._looking is None:
            self._look_later()
        if not self._letting_in and self._listener is not None:
            self._letting_in = True
            self._loop.call_soon(self._let_in)
        self._empty.clear()
        if len(self._connections) <= self.limits.connections:
            return True
        now = self._loop.time()
        if now - self._turned_away >= TELL_EVERY_S:  # one line for a flood, not one for each connection
            self._turned_away = now
            log.warning("%d connections are open, no more are taken (`max_connections`)", self.limits.connections)
        return False

    def switched(self, old: ClientConnection, new: Successor) -> None:
        self._connections.discard(old)
        self._connections.add(new)

    def left(self, connection: ClientConnection | Successor) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def drain(self) -> None:
        """Keep listening, but close each connection after one more response: its client reconnects."""
        self.stopping = True

    def retire(self) -> None:
        """Stop listening; the responses in progress are the last."""
        self.stopping = True
        # Some accepted clients have not joined yet; a silent one among them must not use up the whole grace period.
        self.limits = replace(self.limits, head_timeout=min(self.limits.head_timeout, LINGER_S))
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.retire()

    async def emptied(self, seconds: float) -> bool:
        """Wait until the last client has left. Returns False if some are left after that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def cut(self) -> None:
        for connection in list(self._connections):
            connection.abort()
