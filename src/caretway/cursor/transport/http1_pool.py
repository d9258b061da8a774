"""The pool of HTTP/1.1 connections: keep-alive reuse, limits for runs and calls, one retry on a new connection if a
kept one was stale, a parallel dial for a slow one.
A request uses an idle connection at once, without a task; else the first connection that becomes free or is opened.
Requests on shared connections start in order. HTTP/1.1 has no PING to test an idle connection, so it is closed after 10
s.
"""

import asyncio
from collections import deque

from ...core.errors import ErrorKind, GatewayError
from ...core.recovery import Fact, may_resend
from ...processes.tasks import spawn
from .dial import Dial, all_closed
from .faults import cut, stopping
from .http1_connection import Http1Connection, Http1Exchange
from .ports import TransportLimits


class Http1Pool:
    def __init__(self, dial: Dial, limits: TransportLimits) -> None:
        self._dial = dial
        self._limits = limits
        self._open: set[Http1Connection] = set()
        self._idle: list[Http1Connection] = []  # the last used connection is taken first
        self._waiting: deque[Http1Exchange] = deque()
        self._shared_busy = 0
        self._own_busy = 0
        self._opening: dict[asyncio.Task[None], float] = {}  # attempt -> start time
        self._again: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def connection_count(self) -> int:
        return len(self._open)

    def submit(self, exchange: Http1Exchange) -> None:
        """Submit an exchange over shared connections. The owner gets every failure through its sink."""
        if self._closed:
            exchange.end(stopping())
            return
        exchange.waits_since = _now()
        self._waiting.append(exchange)
        self._serve()

    def distrust(self) -> None:
        """A caller timed out: close the idle connections except those that received data just now."""
        limit = _now() - self._limits.sure_s
        for connection in [each for each in self._idle if each.heard_at < limit]:
            self._idle.remove(connection)
            connection.close(cut("the idle connection is not trusted any more"))

    async def start(self, exchange: Http1Exchange, *, alone: bool = False) -> None:
        """Start an exchange on its own connection, a new one if `alone`. Raises GatewayError without a connection."""
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
            # A run is not repeated, so it avoids kept connections that the peer may close.
            kept = None if alone else self._take_idle(heard_since=_now() - self._limits.sure_s)
            connection = kept or await self._connect()
        except BaseException:
            self._own_busy -= 1
            raise
        connection.start(exchange)

    async def aclose(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        tasks = self._again.union(self._opening)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        while self._waiting:
            self._waiting.popleft().end(stopping())
        connections = list(self._open)
        for connection in connections:
            connection.close(stopping())
        await all_closed(connections)

    # -- callbacks of connections --------------------------------------------------------------------------------------

    def released(self, connection: Http1Connection, exchange: Http1Exchange, *, reusable: bool) -> None:
        """The exchange has its whole answer; its owner is called next."""
        self._settle(exchange)
        if reusable:
            self._keep(connection)
        self._serve()

    def failed(self, exchange: Http1Exchange, error: GatewayError) -> None:
        again = may_resend(
            (Fact.OPENS_RUN, exchange.opens_run),
            (Fact.RESENT, exchange.repeated),
            (Fact.ANSWERED, exchange.heard or exchange.over),
            (Fact.KEPT, (exchange.kept or exchange.doubted) and error.kind is ErrorKind.UPSTREAM_DOWN),
        )
        if again and not self._closed:
            exchange.repeated, exchange.sent_at = True, None
            task = spawn(self._retry(exchange), "agent-http1-retry")
            self._again.add(task)
            task.add_done_callback(self._again.discard)
            return
        self._settle(exchange)
        exchange.end(error)
        self._serve()

    def lost(self, connection: Http1Connection) -> None:
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
        if self._closed or not waiting:
            return
        now, again = _now(), self._limits.dial_again_s
        hopeful = sum(now - began < again for began in self._opening.values())  # older attempts may fail
        wanted = min(len(waiting), limit - self._shared_busy) - hopeful
        for _ in range(min(wanted, 2 * limit - len(self._opening))):
            self._opening[spawn(self._open_one(now), "agent-http1-connect")] = now

    async def _open_one(self, began: float) -> None:
        try:
            connection = await self._connect()
        except GatewayError as error:
            self._opening_ended()
            while self._waiting and self._waiting[0].waits_since <= began:
                # Each waiter has one attempt, so a failure ends the longest waiter.
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
            self._opening.pop(task, None)

    async def _retry(self, exchange: Http1Exchange) -> None:
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

    async def _connect(self) -> Http1Connection:
        host = self._dial.origin.shown
        _, connection = await self._dial(lambda: Http1Connection(self, host))
        if self._closed:
            connection.abort()
            raise stopping()
        if not connection.usable:
            raise cut(f"{host} closed the connection at once")
        self._open.add(connection)
        return connection

    def _take_idle(self, heard_since: float = 0.0) -> Http1Connection | None:
        while self._idle and self._idle[-1].heard_at >= heard_since:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    def _keep(self, connection: Http1Connection) -> None:
        if not connection.usable:
            return
        if self._closed or len(self._idle) >= self._limits.http1_idle_connections:
            connection.close(stopping())
            return
        connection.idle_since = _now()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep_in(self._limits.http1_idle_timeout_s)

    def _sweep_in(self, delay_s: float) -> None:
        self._sweep = asyncio.get_running_loop().call_later(delay_s, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        limit = _now() - self._limits.http1_idle_timeout_s
        for connection in [each for each in self._idle if each.idle_since <= limit]:
            self._idle.remove(connection)
            connection.close(cut("the idle connection was closed"))
        if self._idle:
            oldest = min(each.idle_since for each in self._idle)
            self._sweep_in(oldest + self._limits.http1_idle_timeout_s - _now())

    def _settle(self, exchange: Http1Exchange) -> None:
        if exchange.opens_run:
            self._own_busy -= 1
        else:
            self._shared_busy -= 1


def _now() -> float:
    return asyncio.get_running_loop().time()
