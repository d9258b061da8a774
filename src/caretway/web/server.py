"""All connections of the listening socket (which `app` binds): `max_connections`, the periodic look for late clients,
the TLS handshake's time limit, the `Date` header, the steps of a graceful shutdown (`app` has their order).

Graceful shutdown: `retire` listens no more and lets the answers that are being made be the last ones, `emptied` waits
for their clients to go, `cut` ends what is left. `app` puts the three in order.
"""

import asyncio
import logging
import math
import socket
import time
from typing import Final

from .body import Bodies
from .connection import LINGER_S, ClientConnection, RequestHandler
from .early_errors import early_error, plain_on_tls_port
from .exchange import Successor
from .head import http_date
from .limits import ConnectionLimits
from .tls import TlsContext

BACKLOG: Final = 2048
"""Clients that wait to be let in."""
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
        # A client that does not say goodbye in TLS is not waited for longer than one that was refused.
        waits = (self.limits.head_timeout, LINGER_S) if self._tls is not None else (None, None)
        if self._tls is not None:
            self._tls.refusal = self._no_plain_http
        self._listening = await self._loop.create_server(
            lambda: ClientConnection(self, self._loop),
            sock=listener,
            ssl=self._tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=waits[0],
            ssl_shutdown_timeout=waits[1],
        )

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
