"""The pool of HTTP/2 connections: fills one up to MAX_CONCURRENT_STREAMS before the next, queues requests for a free
stream (OVERLOADED after 30 s), and retries a unary call once on a stale connection.
Connections are opened one at a time, and all waiters share the attempt. A slow attempt gets a parallel one, so that
requests after a network outage do not wait for an old attempt. Messages are packed and unpacked here; bytes move in
`H2Connection`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from ...core.errors import ErrorKind, GatewayError
from ...core.recovery import Fact, may_resend
from ...processes.tasks import spawn
from ..wire.envelope import pack
from ..wire.paths import RUN
from .dial import ALPN_BOTH, ALPN_H2, ALPN_HTTP1, Dial, Dialler, all_closed
from .faults import NeedsHttp1, cut, late, stopping
from .h2_connection import H2Connection, NotHttp2
from .h2_frames import field_block
from .h2_stream import H2Stream, Unprocessed
from .identity import RUN_HEADERS, head, run_ids
from .ports import DEFAULT_LIMITS, Listening, NewRun, RunHandler, RunStream, Transport, TransportLimits, UnaryResponse
from .run_reader import RunReader, UnaryAnswer

if TYPE_CHECKING:
    from .http1_transport import Http1Transport

Attempt = asyncio.Task[GatewayError | None]
"""An attempt to connect; its result is the error or None."""

MAX_DIALS: Final = 4
"""Parallel attempts to connect."""
MAX_HEADS: Final = 16
"""Cached encoded heads of runs: one for each token and set of allowed tools in use."""


class H2Transport:
    def __init__(self, dial: Dial, *, limits: TransportLimits = DEFAULT_LIMITS) -> None:
        self.name = "h2"
        self._dial = dial
        self._limits = limits
        self._connections: list[H2Connection] = []
        self._attempts: dict[Attempt, float] = {}  # attempt -> start time, the oldest first
        self._dialling_alone = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._heads: dict[tuple[tuple[str, str], ...], bytes] = {}
        self._closed = False
        self.on_downgrade: Callable[[NeedsHttp1], GatewayError] | None = None
        """Called when a run shows that a proxy speaks HTTP/1.1 to Cursor; returns the error for the run's owner."""

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def open_run(self, run: NewRun, handler: RunHandler) -> "H2Run":
        block = self._run_head(run.headers) + field_block(run_ids(run.id, run.original))
        connection = await (self._acquire_alone() if run.alone else self._acquire())
        return self._run(connection, block, handler)

    def open_run_now(self, run: NewRun, handler: RunHandler) -> "H2Run | None":
        connection = None if self._waiting else self._with_room()  # waiters come first
        if connection is None:
            return None
        return self._run(connection, self._run_head(run.headers) + field_block(run_ids(run.id, run.original)), handler)

    def _run(self, connection: H2Connection, block: bytes, handler: RunHandler, body: bytes | None = None) -> "H2Run":
        run = H2Run(handler, self._limits, foreign=body is not None)
        run.on_downgrade = self.on_downgrade
        run.stream = connection.open(block, run, body)
        return run

    def _run_head(self, headers: Mapping[str, str]) -> bytes:
        """The common header fields of runs, checked and encoded once."""
        key = tuple(headers.items())
        known = self._heads
        if key not in known:
            if len(known) >= MAX_HEADS:
                known.clear()
            known[key] = self._block("POST", RUN, head(RUN_HEADERS, headers))
        return known[key]

    async def open_stream(self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler) -> "H2Run":
        block = self._block("POST", path, head(RUN_HEADERS, headers))
        connection = await self._acquire()
        return self._run(connection, block, handler, pack(message))

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        fields = head({}, headers)
        if body:
            fields.append(("content-length", str(len(body))))
        block = self._block(method, path, fields)
        try:
            async with asyncio.timeout(self._limits.call_timeout_s):
                return await self._call(block, body)
        except TimeoutError as passed:
            raise late(path, self._limits.call_timeout_s) from passed

    async def aclose(self) -> None:
        self._closed = True
        attempts = list(self._attempts)
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.wait(attempts)
        connections = list(self._connections)
        for connection in connections:
            connection.shut(stopping())
        self._wake(len(self._waiting))
        await all_closed(connections)

    # -- calls --------------------------------------------------------------------------------------------------------

    def _block(self, method: str, path: str, fields: list[tuple[str, str]]) -> bytes:
        origin = self._dial.origin
        own = (
            (":method", method),
            (":scheme", origin.scheme),
            (":authority", origin.authority),
            (":path", origin.prefix + path),
        )
        return field_block((*own, *fields))

    async def _call(self, block: bytes, body: bytes) -> UnaryResponse:
        for resent in (False, True):
            connection = await self._acquire()
            kept = not connection.fresh
            answer = UnaryAnswer(self._limits.max_call_bytes)
            stream = connection.open(block, answer, body)
            try:
                return await answer.response
            except asyncio.CancelledError:
                if not answer.heard:
                    stream.doubt()  # mostly because of a timeout
                raise
            except GatewayError as error:
                if not may_resend(  # an idle connection that the peer has dropped fails only now
                    (Fact.RESENT, resent),
                    (Fact.UNPROCESSED, isinstance(error, Unprocessed)),
                    (Fact.ANSWERED, answer.heard),
                    (Fact.KEPT, kept and error.kind is ErrorKind.UPSTREAM_DOWN),
                ):
                    raise
            finally:
                stream.close()
        raise AssertionError("the second attempt returns or raises")

    # -- the pool -----------------------------------------------------------------------------------------------------

    async def _acquire(self) -> H2Connection:
        """A connection with room. The caller must open its stream before it awaits."""
        until = asyncio.get_running_loop().time() + self._limits.slot_timeout_s
        while (connection := self._with_room()) is None:
            if self._attempts or self._may_connect:
                await self._connect()
            else:
                await self._place_free(until)
        return connection

    async def _acquire_alone(self) -> H2Connection:
        """A new connection for one run; a shared connection if the limit of connections is reached."""
        if self._closed:
            raise stopping()
        if not self._may_connect:
            return await self._acquire()
        self._dialling_alone += 1
        try:
            connection = await self._open_connection()
        except BaseException:
            self._wake(1)  # a waiter may connect instead
            raise
        finally:
            self._dialling_alone -= 1
        connection.alone = True
        return connection

    @property
    def _may_connect(self) -> bool:
        there = len(self._connections) + len(self._attempts) + self._dialling_alone
        return there < self._limits.max_connections

    def _with_room(self) -> H2Connection | None:
        if self._closed:
            raise stopping()
        for connection in self._connections:
            if connection.room > 0:
                return connection
        return None

    async def _connect(self) -> None:
        """Wait until a connection has room, or until the attempt that was the newest at the call fails. Attempts
        outlive a cancelled waiter."""
        now = asyncio.get_running_loop().time
        mine = newest = self._young_attempt(now())
        while not mine.done():
            full = len(self._attempts) >= MAX_DIALS or not self._may_connect
            again_in = None if full else max(0.0, self._attempts[newest] + self._limits.dial_again_s - now())
            await asyncio.wait(list(self._attempts), timeout=again_in, return_when=asyncio.FIRST_COMPLETED)
            if self._with_room() is not None:
                return
            newest = mine if mine.done() else self._young_attempt(now())
        if mine.cancelled():
            raise stopping()
        error = mine.result()
        if error is not None:
            raise replace(error) from error

    def _young_attempt(self, now: float) -> Attempt:
        """The newest attempt if it is young or no other is allowed; otherwise a new parallel attempt."""
        newest = next(reversed(self._attempts), None)
        if newest is not None:
            old = now - self._attempts[newest] >= self._limits.dial_again_s
            if not old or len(self._attempts) >= MAX_DIALS or not self._may_connect:
                return newest
        attempt = spawn(self._try_connect(), "agent-h2-connect")
        self._attempts[attempt] = now
        return attempt

    async def _try_connect(self) -> GatewayError | None:
        try:
            await self._open_connection()
        except GatewayError as error:
            return error
        finally:
            self._attempts.pop(cast(Attempt, asyncio.current_task()))  # at once: a new waiter must not join it
        return None

    async def _open_connection(self) -> H2Connection:
        """Add a new connection to the pool, with the peer's settings. The caller must use it before it awaits."""
        limits, host = self._limits, self._dial.origin.shown
        connection = None
        try:
            _, connection = await self._dial(lambda: H2Connection(limits, host, self._changed))
            async with asyncio.timeout(limits.ready_timeout_s):
                await asyncio.shield(connection.ready)
            if self._closed:
                raise stopping()
            if not connection.usable:
                raise cut(f"{host} closed the connection at once")
            self._connections.append(connection)
            return connection
        except TimeoutError as passed:
            raise cut(f"{host} did not answer the HTTP/2 greeting within {limits.ready_timeout_s:g} s") from passed
        finally:
            if connection is not None and connection not in self._connections:
                connection.abort()

    async def _place_free(self, until: float) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout_at(until):
                await place
        except TimeoutError as passed:
            raise GatewayError(
                ErrorKind.OVERLOADED,
                f"all {len(self._connections)} connections to {self._dial.origin.host} are full",
                hint="Fewer runs at a time, or try again soon.",
            ) from passed
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._wake(1)  # pass the unused place on
            raise
        finally:
            self._waiting.remove(place)

    def _changed(self, connection: H2Connection) -> None:
        if connection.closed.done() and connection in self._connections:
            self._connections.remove(connection)
            self._wake(len(self._waiting))
        elif self._waiting:
            self._wake(connection.room)

    def _wake(self, count: int) -> None:
        for place in self._waiting:  # each waiter removes itself after its turn, so none is overtaken
            if count <= 0:
                return
            if not place.done():
                place.set_result(None)
                count -= 1


class H2Run(RunReader):
    """A RunStream whose messages are envelopes in one stream's DATA frames."""

    __slots__ = ("on_downgrade", "stream")

    stream: H2Stream
    on_downgrade: Callable[[NeedsHttp1], GatewayError] | None

    def send(self, message: bytes) -> None:
        self.stream.connection.queue(self.stream, pack(message))

    def doubt(self) -> None:
        self.stream.doubt()

    def _refused(self, headers: Mapping[str, str], body: bytearray) -> GatewayError:
        fault = super()._refused(headers, body)
        if self.on_downgrade is not None and isinstance(fault, NeedsHttp1):
            return self.on_downgrade(fault)
        return fault

    def _hold_back(self) -> None:
        self.stream.pause()

    def _let_go(self) -> None:
        self.stream.resume()

    def _give_up(self) -> None:
        self.stream.close()


# ---- Chooses HTTP/2 or HTTP/1.1 once and remembers the choice. A peer that is down does not decide it.
# `open_transport` builds the transport for a base URL.
#
# With TLS, ALPN decides; without TLS, the peer's first bytes: an HTTP/2 server begins with SETTINGS. If a proxy speaks
# HTTP/2 to the gateway and HTTP/1.1 to Cursor, a run is answered with 464: then HTTP/1.1 is chosen, too.

Mode = Literal["auto", "h2", "http1"]
T = TypeVar("T")

ALPN: Final[Mapping[Mode, tuple[str, ...]]] = {"auto": ALPN_BOTH, "h2": (ALPN_H2,), "http1": (ALPN_HTTP1,)}
"""The ALPN protocols that each mode offers."""


class AutoTransport:
    def __init__(self, dial: Dial, mode: Mode = "auto", *, limits: TransportLimits = DEFAULT_LIMITS) -> None:
        self.name: str = mode
        """`auto` until the peer has answered, then `h2` or `http1`."""
        self._h2: Final = H2Transport(dial, limits=limits)
        self._dial, self._limits = dial, limits
        if mode == "auto":
            self._h2.on_downgrade = self._downgraded
        self._chosen: Transport | None = None
        if mode != "auto":
            self._chosen = self._h2 if mode == "h2" else self._http1

    @cached_property
    def _http1(self) -> "Http1Transport":
        """The HTTP/1.1 transport, imported on first use."""
        from .http1_transport import Http1Transport

        return Http1Transport(self._dial, limits=self._limits)

    async def open_run(self, run: NewRun, handler: RunHandler) -> RunStream:
        return await self._with_carrier(lambda carrier: carrier.open_run(run, handler))

    def open_run_now(self, run: NewRun, handler: RunHandler) -> RunStream | None:
        return None if self._chosen is None else self._chosen.open_run_now(run, handler)

    async def open_stream(
        self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler
    ) -> Listening:
        return await self._with_carrier(lambda carrier: carrier.open_stream(path, headers, message, handler))

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        return await self._with_carrier(lambda carrier: carrier.call(method, path, headers, body))

    async def aclose(self) -> None:
        await self._h2.aclose()
        if "_http1" in self.__dict__:
            await self._http1.aclose()

    async def _with_carrier(self, ask: Callable[[Transport], Awaitable[T]]) -> T:
        if self._chosen is not None:
            return await ask(self._chosen)
        try:
            answer = await ask(self._h2)
        except NotHttp2:
            pass
        else:
            self._choose(self._h2)
            return answer
        try:
            answer = await ask(self._http1)
        except GatewayError as error:
            if error.kind is ErrorKind.UPSTREAM_DOWN:
                raise  # a lost peer does not decide the protocol
            self._choose(self._http1)
            raise
        self._choose(self._http1)
        return answer

    def _choose(self, carrier: Transport) -> None:
        self._chosen, self.name = carrier, carrier.name

    def _downgraded(self, error: NeedsHttp1) -> GatewayError:
        """Choose HTTP/1.1 and make the error repeatable, so that the run is tried again."""
        self._choose(self._http1)
        return replace(error, kind=ErrorKind.UPSTREAM_DOWN)


def open_transport(
    base_url: str, dialler: Dialler | None = None, *, mode: Mode = "auto", limits: TransportLimits = DEFAULT_LIMITS
) -> AutoTransport:
    """The transport for a base URL. Its dial offers the mode's protocols; it connects on first use."""
    return AutoTransport((dialler or Dialler()).dial(base_url, alpn=ALPN[mode]), mode, limits=limits)
