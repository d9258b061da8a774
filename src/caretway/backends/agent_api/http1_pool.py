"""The kept-alive HTTP/1.1 connections to one host, and who waits for one.

A request goes out at once, without a task, when a connection is idle; else whichever comes first serves it, one that
becomes free or a new one. Requests that share connections start in the order they came in.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ...tasks import spawn
from .dial import Dial
from .http1_connection import Connection, Exchange
from .limits import TransportLimits
from .run_reader import cut, stopping

CLOSE_GRACE_S: Final = 1.0
"""How long `aclose` waits for sockets to close in order."""


class Http1Pool:
    def __init__(self, dial: Dial, limits: TransportLimits) -> None:
        self._dial = dial
        self._limits = limits
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []  # the one used last is taken first
        self._waiting: deque[Exchange] = deque()
        self._shared_busy = 0
        self._own_busy = 0
        self._opening: set[asyncio.Task[None]] = set()
        self._again: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def connection_count(self) -> int:
        return len(self._open)

    def submit(self, exchange: Exchange) -> None:
        """For exchanges that share connections. The owner hears of every failure through its sink."""
        if self._closed:
            exchange.end(stopping())
            return
        self._waiting.append(exchange)
        self._serve()

    async def start(self, exchange: Exchange) -> None:
        """For an exchange with a connection of its own; raises when none can be had."""
        if self._closed:
            raise stopping()
        if self._own_busy >= self._limits.http1_run_connections:
            raise GatewayError(
                ErrorKind.OVERLOADED,
                f"{self._own_busy} runs are open to {self._dial.origin.host}, which is the limit on HTTP/1.1",
                hint="Fewer runs at a time, or --agent-transport h2.",
            )
        self._own_busy += 1
        try:
            connection = self._take_idle() or await self._connect()
        except BaseException:
            self._own_busy -= 1
            raise
        connection.start(exchange)

    async def aclose(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        tasks = self._opening | self._again
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        while self._waiting:
            self._waiting.popleft().end(stopping())
        connections = list(self._open)
        for connection in connections:
            connection.close(stopping())
        if connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_GRACE_S):
                    await asyncio.gather(*(connection.closed for connection in connections))
        for connection in connections:
            connection.abort()

    # -- told by the connections --------------------------------------------------------------------------------------

    def released(self, connection: Connection, exchange: Exchange, *, reusable: bool) -> None:
        self._settle(exchange)
        if reusable:
            self._keep(connection)
        self._serve()

    def failed(self, exchange: Exchange, error: GatewayError) -> None:
        stale = exchange.kept and not exchange.heard and not exchange.over and error.kind is ErrorKind.UPSTREAM_DOWN
        if stale and not self._closed:
            # The peer gave the kept connection up before it saw the request. Appends carry their number, a RunSSE
            # only attaches to its request id, and a unary call whose answer is lost is lost either way.
            task = spawn(self._retry(exchange), "agent-http1-retry")
            self._again.add(task)
            task.add_done_callback(self._again.discard)
            return
        self._settle(exchange)
        exchange.end(error)
        self._serve()

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    # -- connections --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        waiting, limit = self._waiting, self._limits.http1_call_connections
        while waiting and self._shared_busy < limit:
            if waiting[0].over:
                waiting.popleft()
                continue
            connection = self._take_idle()
            if connection is None:
                break
            self._shared_busy += 1
            connection.start(waiting.popleft())
        wanted = min(len(waiting), limit - self._shared_busy) - len(self._opening)
        if not self._closed:
            for _ in range(wanted):
                task = spawn(self._open_one(), "agent-http1-connect")
                self._opening.add(task)

    async def _open_one(self) -> None:
        try:
            connection = await self._connect()
        except GatewayError as error:
            self._opening_ended()
            while self._waiting:  # an attempt for each that waits, so one failure for the one that waited longest
                exchange = self._waiting.popleft()
                if not exchange.over:
                    exchange.end(error)
                    break
            self._serve()
        except asyncio.CancelledError:
            self._opening_ended()
            raise
        else:
            self._opening_ended()
            self._keep(connection)
            self._serve()

    def _opening_ended(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._opening.discard(task)

    async def _retry(self, exchange: Exchange) -> None:
        try:
            connection = await self._connect()
        except GatewayError as error:
            self._settle(exchange)
            exchange.end(error)
            self._serve()
            return
        except asyncio.CancelledError:
            self._settle(exchange)
            exchange.end(stopping())
            raise
        if exchange.over:
            self._settle(exchange)
            self._keep(connection)
            self._serve()
        else:
            connection.start(exchange)

    async def _connect(self) -> Connection:
        host = self._dial.origin.host
        _, connection = await self._dial(lambda: Connection(self, host))
        if self._closed:
            connection.abort()
            raise stopping()
        if not connection.usable:
            raise cut(f"{host} closed the connection at once")
        self._open.add(connection)
        return connection

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    def _keep(self, connection: Connection) -> None:
        if not connection.usable:
            return
        if self._closed or len(self._idle) >= self._limits.http1_idle_connections:
            connection.close(stopping())
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._limits.idle_timeout_s, self._close_idle)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        limit = loop.time() - self._limits.idle_timeout_s
        for connection in [each for each in self._idle if each.idle_since <= limit]:
            self._idle.remove(connection)
            connection.close(cut("the idle connection was closed"))
        if self._idle:
            oldest = min(each.idle_since for each in self._idle)
            self._sweep = loop.call_at(oldest + self._limits.idle_timeout_s, self._close_idle)

    def _settle(self, exchange: Exchange) -> None:
        if exchange.shared:
            self._shared_busy -= 1
        else:
            self._own_busy -= 1
