"""The simulator's listener: a TCP or TLS port, or a socket pair inside the process.

HTTP/1.1 and HTTP/2 share the port: the first bytes of a connection decide (over TLS too, where ALPN has already
agreed).
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from .exchange import Accept
from .http1 import SimHttp1Connection
from .http2 import MAX_STREAMS, PREFACE, Http2Connection
from .manners import LIVE, Manners
from .prepared import Prepared
from .service import Service
from .shared import BilledRuns, Prefer, Shared, Stats

_SNIFF: Final = PREFACE[:16]
BACKLOG: Final = 1024


class Simulator:
    """A simulated Cursor. One instance has one account, one prompt cache and one set of counters."""

    def __init__(
        self,
        prefer: Prefer = "h1",
        heartbeat_s: float = 5.0,
        clock: Callable[[], float] = time.time,
        max_streams: int = MAX_STREAMS,
        manners: Manners = LIVE,
        home: Callable[[Any], bool] | None = None,
    ) -> None:
        """`clock`: unix seconds, for the expiry of tokens. `max_streams`: concurrent streams of one HTTP/2 connection.
        `manners`: its behaviour. `home`: whether a peer's address is on the allowed path, such as the proxy
        (`Manners.abroad`, `Manners.refuses_direct`). None: no peer is."""
        self._shared = Shared(manners, prefer=prefer, heartbeat_s=heartbeat_s, clock=clock, home=home)
        self._service = Service(self._shared)
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self._closed = False
        self._max_streams = max_streams

    @property
    def stats(self) -> Stats:
        return self._shared.stats

    @property
    def asked(self) -> Sequence[tuple[str, str]]:
        """For the last runs: the shape of the model fields, and the model that ran; empty if none ran."""
        return tuple(self._shared.asked)

    @property
    def billed(self) -> BilledRuns:
        """The usage events that the dashboard's calls report."""
        return self._shared.billed

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def prepared(self) -> Prepared:
        """Scripts for the next turns, and the requests that reached the model."""
        return self._shared.prepared

    @property
    def open_runs(self) -> int:
        return len(self._service.runs)

    async def listen(self, host: str, port: int, ssl_context: ssl.SSLContext | None = None) -> int:
        """Accept connections on an address and return the port; port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connection, host, port, ssl=ssl_context, backlog=BACKLOG)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def connect(self) -> socket.socket:
        """A connection without a network: returns one end; the other is served like an accepted connection."""
        if self._closed:
            raise ConnectionRefusedError("the simulator is closed")
        theirs, ours = socket.socketpair()
        theirs.setblocking(False)
        ours.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._connection, ours)
        except BaseException:
            theirs.close()
            ours.close()
            raise
        return theirs

    def break_connections(self) -> None:
        """Cut all connections, as a network failure does."""
        for connection in list(self._connections):
            connection.abort()

    async def aclose(self) -> None:
        """Stop listening, end every run, close every connection. Idempotent."""
        self._closed = True
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        runs = [run.task for run in self._service.runs]
        for run in list(self._service.runs):
            run.stop()
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*runs, *(connection.lost for connection in connections), return_exceptions=True)
        for server in servers:
            await server.wait_closed()

    def _connection(self) -> "_Connection":
        return _Connection(self._service.accept, self._connections, self._max_streams, self._lets_in)

    def _lets_in(self, peer: Any) -> bool:
        if not self._shared.manners.refuses_direct or self._shared.comes_from_home(peer):
            self.stats.connections += 1
            return True
        self.stats.turned_away += 1
        return False


class _Connection(asyncio.Protocol):
    """One connection: detects the HTTP version by the first bytes, then delegates."""

    def __init__(
        self, accept: Accept, connections: "set[_Connection]", max_streams: int, lets_in: Callable[[Any], bool]
    ) -> None:
        self._accept = accept
        self._lets_in = lets_in
        self._max_streams = max_streams
        self._connections = connections
        self._head = b""
        self._speaker: SimHttp1Connection | Http2Connection | None = None
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = link = cast(asyncio.Transport, transport)  # uvloop's transport is one in all but name
        self._connections.add(self)
        raw = link.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._lets_in(link.get_extra_info("peername")):
            link.abort()

    def data_received(self, data: bytes) -> None:
        if self._speaker is not None:
            self._speaker.data_received(data)
            return
        self._head += data
        if len(self._head) < len(_SNIFF) and _SNIFF.startswith(self._head):
            return  # could still be either
        assert self._transport is not None
        if self._head.startswith(_SNIFF):
            self._speaker = Http2Connection(self._transport, self._accept, self._max_streams)
        else:
            self._speaker = SimHttp1Connection(self._transport, self._accept)
        head, self._head = self._head, b""
        self._speaker.data_received(head)

    def pause_writing(self) -> None:
        if self._speaker is not None:
            self._speaker.pause_writing()

    def resume_writing(self) -> None:
        if self._speaker is not None:
            self._speaker.resume_writing()

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)
        if self._speaker is not None:
            self._speaker.connection_lost()
        if not self.lost.done():
            self.lost.set_result(None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
