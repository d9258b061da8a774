"""`Run` over HTTP/2: a few warm connections, shared by all runs and unary calls.

The pool fills a connection up to what the peer allows before it opens the next; connections are opened one at a time
and everybody who waits shares the attempt. What a run carries is packed and unpacked here; bytes move in `Connection`.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ...tasks import spawn
from ...wire.envelope import pack
from ...wire.paths import RUN
from .dial import Dial
from .h2_connection import Connection
from .h2_framing import Unprocessed
from .h2_stream import Stream
from .heads import RUN_HEADERS, head
from .limits import DEFAULT_LIMITS, TransportLimits
from .ports import Response, RunHandler
from .run_reader import RunReader, cut, stopping
from .unary import UnaryAnswer, late

CLOSE_GRACE_S: Final = 1.0
"""How long `aclose` waits for sockets to close in order."""


class H2Transport:
    def __init__(self, dial: Dial, *, limits: TransportLimits = DEFAULT_LIMITS) -> None:
        self.name = "h2"
        self._dial = dial
        self._limits = limits
        self._connections: list[Connection] = []
        self._attempt: asyncio.Task[GatewayError | None] | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def open_run(self, request_id: str, headers: Mapping[str, str], handler: RunHandler) -> "H2Run":
        fields = self._fields("POST", RUN, head(RUN_HEADERS, {"x-request-id": request_id, **headers}))
        run = H2Run(handler, self._limits)
        connection = await self._acquire()
        run.stream = connection.open(fields, run)
        return run

    async def open_stream(self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler) -> "H2Run":
        fields = self._fields("POST", path, head(RUN_HEADERS, headers))
        run = H2Run(handler, self._limits)
        connection = await self._acquire()
        run.stream = connection.open(fields, run, body=pack(message))
        return run

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Response:
        fields = self._fields(method, path, head({}, headers))
        if body:
            fields.append(("content-length", str(len(body))))
        try:
            async with asyncio.timeout(self._limits.call_timeout_s):
                return await self._call(fields, body)
        except TimeoutError as passed:
            raise late(path, self._limits.call_timeout_s) from passed

    async def aclose(self) -> None:
        self._closed = True
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        connections = list(self._connections)
        for connection in connections:
            connection.shut(stopping())
        self._wake(len(self._waiting))
        if connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_GRACE_S):
                    await asyncio.gather(*(connection.closed for connection in connections))
        for connection in connections:
            connection.abort()

    # -- calls --------------------------------------------------------------------------------------------------------

    def _fields(self, method: str, path: str, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
        origin = self._dial.origin
        return [
            (":method", method),
            (":scheme", origin.scheme),
            (":authority", origin.authority),
            (":path", origin.prefix + path),
            *fields,
        ]

    async def _call(self, fields: list[tuple[str, str]], body: bytes) -> Response:
        for last in (False, True):
            connection = await self._acquire()
            kept = not connection.fresh
            answer = UnaryAnswer(self._limits.max_call_bytes)
            stream = connection.open(fields, answer, body=body)
            try:
                return await answer.response
            except GatewayError as error:
                # A kept connection that the peer had given up shows it only now: that is worth one more try.
                given_up = kept and error.kind is ErrorKind.UPSTREAM_DOWN and not answer.heard
                if last or not (given_up or isinstance(error, Unprocessed)):
                    raise
            finally:
                stream.close()
        raise AssertionError("the second attempt returns or raises")

    # -- the pool -----------------------------------------------------------------------------------------------------

    async def _acquire(self) -> Connection:
        """A connection with room. The caller opens its stream before it awaits anything."""
        until = asyncio.get_running_loop().time() + self._limits.slot_timeout_s
        while True:
            if self._closed:
                raise stopping()
            for connection in self._connections:
                if connection.has_room:
                    return connection
            if self._attempt is not None or len(self._connections) < self._limits.max_connections:
                await self._connect()
            else:
                await self._place_free(until)

    async def _connect(self) -> None:
        """Join the attempt that is under way, or begin one. It outlives a waiter that is cancelled."""
        if self._attempt is None:
            self._attempt = spawn(self._try_connect(), "agent-h2-connect")
        attempt = self._attempt
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise stopping()
        error = attempt.result()
        if error is not None:
            raise type(error)(error.kind, error.message, hint=error.hint) from error

    async def _try_connect(self) -> GatewayError | None:
        limits, host = self._limits, self._dial.origin.host
        connection = None
        try:
            _, connection = await self._dial(lambda: Connection(limits, host, self._changed))
            async with asyncio.timeout(limits.ready_timeout_s):
                await asyncio.shield(connection.ready)
            if not connection.closed.done():
                self._connections.append(connection)
            return None
        except TimeoutError:
            return cut(f"{host} did not answer the HTTP/2 greeting within {limits.ready_timeout_s:g} s")
        except GatewayError as error:
            return error
        finally:
            self._attempt = None
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
                self._wake(1)  # the place was ours and we cannot use it
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(place)

    def _changed(self, connection: Connection) -> None:
        if connection.closed.done() and connection in self._connections:
            self._connections.remove(connection)
            self._wake(len(self._waiting))
        else:
            self._wake(1)

    def _wake(self, count: int) -> None:
        while count and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                count -= 1


class H2Run:
    """A RunStream whose messages are envelopes in one stream's DATA frames."""

    __slots__ = ("_handler", "_reader", "stream")

    stream: Stream

    def __init__(self, handler: RunHandler, limits: TransportLimits) -> None:
        self._handler = handler
        self._reader = RunReader(limits.max_frame_bytes, limits.max_refusal_bytes)

    def send(self, message: bytes) -> None:
        self.stream.send(pack(message))

    def pause(self) -> None:
        self.stream.pause()

    def resume(self) -> None:
        self.stream.resume()

    def close(self) -> None:
        self.stream.close()

    def on_head(self, status: int, headers: dict[str, str]) -> None:
        self._reader.head(status, headers)

    def on_data(self, data: bytes) -> None:
        messages = self._reader.feed(data)
        if messages:
            self._handler.on_messages(messages)

    def on_end(self, error: GatewayError | None) -> None:
        if self._reader.refused:
            error = self._reader.refusal()  # says more than how the stream ended
        self._handler.on_closed(error or self._reader.finish())
