"""All connections of the listening socket (which `app` binds): letting in many at once, `max_connections`, the periodic
look for late clients, the TLS handshake's time limit, the `Date` header, the steps of a graceful shutdown.

Graceful shutdown: `retire` listens no more and lets the answers that are being made be the last ones, `emptied` waits
for their clients to go, `cut` ends what is left. `app` puts the three in order.
"""

import asyncio
import logging
import math
import socket
import time
from typing import Any, Final, cast

from msgspec.structs import replace

from ..processes.tasks import spawn
from .body import Bodies
from .connection import LINGER_S, ClientConnection, RequestHandler
from .early_errors import early_error, plain_on_tls_port
from .exchange import Successor
from .head import http_date
from .limits import ConnectionLimits
from .tls import TlsContext

BACKLOG: Final = 2048
"""Clients that wait to be let in."""
LET_IN_AT_ONCE: Final = 64
"""Of them, in one turn of the event loop."""
TELL_EVERY_S: Final = 60.0

log = logging.getLogger(__name__)


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
        """Those who came together. libuv takes one in a turn of the event loop, and with many answers a turn is long.
        The last of 64 that came at once would wait for 64 turns."""
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
        """Go on listening, and answer one request on each connection: its client comes back through another door."""
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
