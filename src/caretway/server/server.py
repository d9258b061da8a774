"""All connections of the listening socket (which `app` binds): letting in many at once, `max_connections`, the periodic
look for late clients, the TLS handshake's time limit, the `Date` header, the steps of a graceful shutdown.

Graceful shutdown: `retire` listens no more and lets the answers that are being made be the last ones, `emptied` waits
for their clients to go, `cut` ends what is left. `app` puts the three in order.
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

# ---- TLS on the listening socket, and plain HTTP that is spoken to it: answered with a refusal in plain HTTP, which
# names the mistake, then the end.
#
# OpenSSL knows the first bytes of such a request, and gives up the handshake. It takes their line with it, so the
# refusal is in no API's own words.

_PLAIN_HTTP: Final = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
"""OpenSSL's reasons: GET, HEAD, POST, PUT; CONNECT."""


class TlsContext(ssl.SSLContext):
    """The TLS of a server. `refusal` is set when it starts: the bytes for a client that spoke plain HTTP."""

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
            # The event loop sends what is outgoing only when a handshake is not over. The client hangs up, or the
            # handshake's time limit ends it.
            raise ssl.SSLWantReadError from failure


def tls_context(certificate: str, key: str) -> TlsContext:
    context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Handshake
    context.load_cert_chain(certificate, key)
    return context


# ---- File descriptors: raises the soft limit of open files (`ulimit -n`, RLIMIT_NOFILE) at the start, and takes no
# more connections than there are descriptors for.
#
# Beyond the limit, accepting fails silently (uvloop closes such a connection at once). So the soft limit is raised
# towards the hard one at the start, and a gateway takes no more connections than there are descriptors for.

log = logging.getLogger(__name__)

RESERVED: Final = 256
"""For everything else: connections to Cursor, programs, files."""
_LEAST: Final = 16


def fitting(wanted: int, soft: int | None) -> int:
    """Connections that fit under a soft limit; None: there is none."""
    return wanted if soft is None else min(wanted, max(_LEAST, soft - RESERVED))


def soft_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_soft_limit(connections: int) -> None:
    """As far as these connections need it and the hard limit lets it. The limit is the whole process's."""
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
    """What of `max_connections` this process can keep; says so when that is less."""
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
"""Clients that wait to be let in."""
LET_IN_AT_ONCE: Final = 64
"""Of them, in one turn of the event loop."""
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
        # A client that does not say goodbye in TLS is not waited for longer than one that was refused.
        return {
            "ssl": self._tls,
            "ssl_handshake_timeout": self.limits.head_timeout,
            "ssl_shutdown_timeout": LINGER_S,
        }

    def _let_in(self) -> None:
        """Accept clients that connect together. libuv accepts one in each turn of the event loop, and the last of 64
        would wait for 64 long turns."""
        self._letting_in = False
        for _ in range(LET_IN_AT_ONCE):
            try:
                client, _ = cast(socket.socket, self._listener).accept()
            except OSError:  # nobody waits; it listens no more; no descriptors, which the loop finds and tells too
                return
            client.setblocking(False)
            spawn(self._take(client), "a client's connection")

    async def _take(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._client, client, **self._secured())
        except OSError:
            client.close()  # it went before it was let in, or its handshake failed: nobody is there to be told

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
        if now - self._turned_away >= TELL_EVERY_S:  # one line for a flood, not one for each drop of it
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
        """Go on listening, and answer one request on each connection: its client comes back over another."""
        self.stopping = True

    def retire(self) -> None:
        """Listen no more; the answers that are being made are the last ones."""
        self.stopping = True
        # Some were let in and have not joined yet. One of them that says nothing is not worth the whole grace.
        self.limits = replace(self.limits, head_timeout=min(self.limits.head_timeout, LINGER_S))
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.retire()

    async def emptied(self, seconds: float) -> bool:
        """Wait for the last client to go; False when some are left after that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def cut(self) -> None:
        for connection in list(self._connections):
            connection.abort()
