"""A run over HTTP/1.1: RunSSE carries the frames, and each message to Cursor is a numbered BidiAppend. Also unary calls
and their timeout.

One counter numbers all appends of a run in the order of `send`; several are in flight at a time to save round trips,
and the server restores the order. A failed append fails the run, because the server would wait for its number forever.
If a kept connection breaks or does not answer, an append is sent once more: the server recognises its number. A unary
call may be repeated too if a kept connection breaks; a run is never repeated here: its opener decides, with a new
request id.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ...core.errors import GatewayError
from ...core.recovery import Fact, may_resend
from ..wire.embedding import AppendWriter
from ..wire.envelope import pack
from ..wire.messages import ai
from ..wire.paths import BIDI_APPEND, RUN_SSE
from .dial import Dial, Origin
from .faults import NEVER_RETRIED, cut, fault_from_status, late
from .http1_connection import Http1Exchange
from .http1_pool import Http1Pool
from .identity import APPEND_HEADERS, RUN_HEADERS, head, run_ids
from .ports import DEFAULT_LIMITS, NewRun, RunHandler, TransportLimits, UnaryResponse
from .run_reader import RunReader, UnaryAnswer

# ---- Decides whether an unanswered BidiAppend (HTTP/1.1) waits, is sent once more over a new connection, or fails its
# run: a silent run, a slow upload, the append's timeout. Pure: times are arguments.
#
# HTTP/1.1 has no PING, so a missing answer is the only sign. If the run is silent and the append is unanswered, the
# run's path is dead. If the run receives data, only the append's connection is dead: the append is sent once more over
# a new connection. An upload that progresses is not in doubt.


class AppendVerdict(Enum):
    WAIT = "wait"
    RESEND = "its connection leads nowhere, most likely"
    SILENT = "neither the run nor the append is answered"
    UNANSWERED = "two connections brought no answer"
    LATE = "its time is over"


@dataclass(frozen=True, slots=True)
class AppendState:
    """The current state of an append."""

    sent_at: float | None
    """None while the append waits for a connection."""
    heard: bool
    """Whether its answer has begun."""
    repeated: bool
    """Whether this is the second connection."""
    unsent: int
    """Bytes that the kernel has not accepted."""
    run_heard_at: float | None
    """When the run's own connection last received data; None while it is not being read."""
    under_way: int
    """Bytes in flight of all appends of the run."""


class AppendWatch:
    __slots__ = ("_left", "_limits", "_moved_at", "until")

    def __init__(self, limits: TransportLimits, now: float) -> None:
        self._limits = limits
        self.until = now + limits.append_timeout_s
        self._left = 0  # bytes that were unsent at the last look
        self._moved_at = 0.0  # when `_left` last fell

    def look(self, now: float, seen: AppendState) -> tuple[AppendVerdict, float]:
        """The verdict, and when to look again."""
        limits = self._limits
        left, self._left = self._left, seen.unsent
        if seen.unsent < left:
            self._moved_at, self.until = now, max(self.until, now + limits.append_timeout_s)
        if now >= self.until:
            return AppendVerdict.LATE, now
        again = min(self.until, now + limits.append_silence_s)  # often enough to see an upload move
        if seen.sent_at is None:
            return AppendVerdict.WAIT, again
        limit = limits.append_silence_s + seen.under_way / limits.slowest_bytes_per_s
        moved_at = max(seen.sent_at, self._moved_at)
        if seen.run_heard_at is not None:
            silent_at = max(moved_at, seen.run_heard_at) + limit
            if now >= silent_at:
                return AppendVerdict.SILENT, now
            again = min(again, silent_at)
        if seen.heard:
            return AppendVerdict.WAIT, again
        # The second connection gets more time: two dead connections are rare, a slow server is not.
        doubt_at = moved_at + limit * (2 if seen.repeated else 1)
        if now < doubt_at:
            return AppendVerdict.WAIT, min(again, doubt_at)
        resend = may_resend((Fact.KEPT, True), (Fact.RESENT, seen.repeated))
        return (AppendVerdict.RESEND if resend else AppendVerdict.UNANSWERED), again


class Http1Transport:
    def __init__(self, dial: Dial, *, limits: TransportLimits = DEFAULT_LIMITS) -> None:
        self.name = "http1"
        self._origin = dial.origin
        self._limits = limits
        self._pool = Http1Pool(dial, limits)

    @property
    def connection_count(self) -> int:
        return self._pool.connection_count

    async def open_run(self, run: NewRun, handler: RunHandler) -> "Http1Run":
        mine = {"x-cursor-streaming": "true", **run.headers, **dict(run_ids(run.id, run.original))}
        stream = Http1Run(self._pool, self._origin, self._limits, run.id, mine, handler)
        await self._pool.start(stream.listening, alone=run.alone)
        return stream

    def open_run_now(self, run: NewRun, handler: RunHandler) -> "Http1Run | None":
        return None  # every run has its own connection, which is rarely ready

    async def open_stream(
        self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler
    ) -> "Http1Stream":
        stream = Http1Stream(handler, self._limits, foreign=True)
        fields = head({**RUN_HEADERS, "x-cursor-streaming": "true"}, headers)
        stream.listening = _exchange(self._origin, "POST", path, fields, pack(message), stream, run=True)
        await self._pool.start(stream.listening)
        return stream

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        answer = UnaryAnswer(self._limits.max_call_bytes)
        exchange = _exchange(self._origin, method, path, head({}, headers), body, answer)
        try:
            async with asyncio.timeout(self._limits.call_timeout_s):
                self._pool.submit(exchange)
                return await answer.response
        except TimeoutError as passed:
            self._pool.distrust()
            raise late(path, self._limits.call_timeout_s) from passed
        finally:
            exchange.abandon()

    async def aclose(self) -> None:
        await self._pool.aclose()


class Http1Stream(RunReader):
    """The sink of one exchange, whose answer consists of frames."""

    listening: Http1Exchange

    def _hold_back(self) -> None:
        self.listening.pause()

    def _let_go(self) -> None:
        self.listening.resume()

    def _give_up(self) -> None:
        self.listening.abandon()


class Http1Run(Http1Stream):
    """A RunStream: `listening` is the RunSSE exchange; appends use other connections."""

    def __init__(
        self,
        pool: Http1Pool,
        origin: Origin,
        limits: TransportLimits,
        request_id: str,
        headers: Mapping[str, str],
        handler: RunHandler,
    ) -> None:
        super().__init__(handler, limits)
        self._pool = pool
        self._origin = origin
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._writer = AppendWriter(request_id)
        self._append_fields = head(APPEND_HEADERS, headers)
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._in_flight: set[_Append] = set()
        self._flying_bytes = 0
        self._over = self._doubted = False
        opening = pack(ai.BidiRequestId(request_id=request_id).SerializeToString())
        self.listening = _exchange(origin, "POST", RUN_SSE, head(RUN_HEADERS, headers), opening, self, run=True)

    # -- RunStream ----------------------------------------------------------------------------------------------------

    def send(self, message: bytes) -> None:
        if self._over:
            return
        body = self._writer.write(message)
        if self._unsent and self._unsent_bytes + len(body) > self._limits.max_unsent_bytes:
            error = cut(f"{self._origin.shown} does not take what is sent; {self._unsent_bytes} bytes are waiting")
            self._loop.call_soon(self._fail, error)  # soon: we are inside a call of the owner's
            return
        self._unsent.append(body)
        self._unsent_bytes += len(body)
        self._send_more()

    def doubt(self) -> None:
        self._doubted = True
        self.listening.doubt()
        self._pool.distrust()
        if self._over:
            self._stop()

    def close(self) -> None:
        self._stop()
        super().close()

    def on_end(self, error: GatewayError | None) -> None:
        self._stop()
        super().on_end(error)

    # -- appends ------------------------------------------------------------------------------------------------------

    def _send_more(self) -> None:
        while self._unsent and len(self._in_flight) < self._limits.appends_in_flight:
            size = len(self._unsent[0])
            if self._in_flight and self._flying_bytes + size > self._limits.append_bytes_in_flight:
                break
            body = self._unsent.popleft()
            self._unsent_bytes -= size
            self._flying_bytes += size
            append = _Append(self, self._limits, size)
            patience_s = self._limits.append_timeout_s + size // self._limits.slowest_bytes_per_s
            fields = [("connect-timeout-ms", str(int(patience_s * 1000))), *self._append_fields]
            append.exchange = _exchange(self._origin, "POST", BIDI_APPEND, fields, body, append)
            self._in_flight.add(append)
            self._pool.submit(append.exchange)

    def seen(self, exchange: Http1Exchange) -> AppendState:
        """The state of one append of the run."""
        heard_at = None if self.listening.paused else self.listening.heard_at
        return AppendState(
            exchange.sent_at, exchange.heard, exchange.repeated, exchange.unsent, heard_at, self._flying_bytes
        )

    def resend(self, append: "_Append") -> None:
        """Abort an append's probably dead connection: the pool then sends the append again on a new one."""
        self._pool.distrust()
        if append.exchange.connection is not None:
            append.exchange.doubted = True
            append.exchange.connection.abort()

    def silent(self) -> None:
        self._unheard(f"answered neither the run nor its append within {self._limits.append_silence_s:g} s")

    def unanswered(self) -> None:
        self._unheard("did not answer a message that was sent over two connections")

    def _unheard(self, what: str) -> None:
        self.doubt()
        self._fail(cut(f"{self._origin.shown} {what}"))

    def append_ended(self, append: "_Append", error: GatewayError | None) -> None:
        if append in self._in_flight:
            self._in_flight.discard(append)
            self._flying_bytes -= append.size
        if error is not None:
            self._fail(error)
        else:
            self._send_more()

    def _fail(self, error: GatewayError) -> None:
        if not self._over:
            handler = self._handler
            self.close()
            handler.on_closed(error)

    def _stop(self) -> None:
        self._over = True
        self._unsent.clear()
        self._unsent_bytes = 0
        for append in list(self._in_flight):  # they hold connections that other requests wait for
            append.hurry(0.0 if self._doubted else self._limits.append_linger_s)


class _Append:
    """The sink and the timer of one append. It may be sent twice if its kept connection broke or was given up in doubt:
    the server drops a known number. If the server refuses the number instead, the run fails, as it would without the
    repetition."""

    __slots__ = ("_limits", "_loop", "_refusal", "_run", "_status", "_timer", "_watch", "exchange", "size")
    exchange: Http1Exchange

    def __init__(self, run: Http1Run, limits: TransportLimits, size: int) -> None:
        self._run = run
        self.size = size
        self._limits = limits
        self._status = 0
        self._refusal: tuple[Mapping[str, str], bytearray] | None = None
        self._loop = asyncio.get_running_loop()
        self._watch = AppendWatch(limits, self._loop.time())
        self._timer = self._loop.call_later(min(limits.append_silence_s, limits.append_timeout_s), self._look)

    def hurry(self, left_s: float) -> None:
        """The run is over: end the append within `left_s`."""
        self._timer.cancel()
        if left_s:
            until = min(self._watch.until, self._loop.time() + left_s)
            self._timer = self._loop.call_at(until, self._late)
        else:
            self._late()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        if status != 200:
            self._refusal = headers, bytearray()

    def on_data(self, data: bytes) -> None:
        if self._refusal is not None:
            body = self._refusal[1]
            body += data[: self._limits.max_refusal_bytes - len(body)]

    def on_end(self, error: GatewayError | None) -> None:
        self._timer.cancel()
        if error is None and self._refusal is not None:
            headers, body = self._refusal
            error = fault_from_status(self._status, headers, bytes(body))
            if self.exchange.repeated and error.kind not in NEVER_RETRIED:
                error = cut(f"a message had to be sent twice, and was refused: {error.message}")
        self._run.append_ended(self, error)

    def _look(self) -> None:
        verdict, again = self._watch.look(self._loop.time(), self._run.seen(self.exchange))
        match verdict:
            case AppendVerdict.LATE:
                self._late()
            case AppendVerdict.SILENT:
                self._run.silent()
            case AppendVerdict.UNANSWERED:
                self._run.unanswered()
            case AppendVerdict.RESEND:
                self._timer = self._loop.call_at(again, self._look)
                self._run.resend(self)
            case AppendVerdict.WAIT:
                self._timer = self._loop.call_at(again, self._look)

    def _late(self) -> None:
        self.exchange.abandon()
        self._run.append_ended(self, late(BIDI_APPEND, self._limits.append_timeout_s))


def _exchange(
    origin: Origin,
    method: str,
    path: str,
    fields: list[tuple[str, str]],
    body: bytes,
    sink: "UnaryAnswer | Http1Stream | _Append",
    *,
    run: bool = False,
) -> Http1Exchange:
    """A request with the headers of its host and its size. `run`: the exchange has its own connection and is sent only
    once."""
    own = [("host", origin.authority)]
    if body or method != "GET":
        own.append(("content-length", str(len(body))))
    return Http1Exchange(method, origin.prefix + path, [*own, *fields], body, sink, opens_run=run)
