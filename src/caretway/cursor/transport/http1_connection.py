"""One HTTP/1.1 client connection (h11): one request at a time, keep-alive, at most 1000 events in a callback.
Unsolicited bytes abort it; an answer without a length ends with it. The pool does the retries.
The callback that reads body bytes delivers them, once per read. The content is opaque here.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

import h11

from ...core.errors import GatewayError
from .faults import broke_protocol, cut, unhandled
from .identity import read_fields
from .ports import NOBODY, StreamSink

if TYPE_CHECKING:
    from .http1_pool import Http1Pool

log = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_EVENTS: Final = 1000
"""Events per callback: a body may arrive in chunks of one byte."""


class Http1Exchange:
    """One request and its answer's owner. A repeatable request may use a second connection after a stale one."""

    __slots__ = (
        "body",
        "connection",
        "doubted",
        "fields",
        "heard",
        "kept",
        "method",
        "opens_run",
        "over",
        "paused",
        "repeated",
        "sent_at",
        "sink",
        "target",
        "waits_since",
    )

    def __init__(
        self,
        method: str,
        target: str,
        fields: list[tuple[str, str]],
        body: bytes,
        sink: StreamSink,
        *,
        opens_run: bool,
    ) -> None:
        self.method = method
        self.target = target
        self.fields = fields
        self.body = body
        self.sink = sink
        self.opens_run = opens_run
        """Whether it has a connection of its own, and is sent only once."""
        self.repeated = False
        self.waits_since = 0.0
        """When it began to wait for a connection."""
        self.sent_at: float | None = None
        self.connection: Http1Connection | None = None
        self.kept = False
        """Whether its connection was used before, so that the peer may have closed it."""
        self.doubted = False
        """Whether the gateway gave its connection up for lack of an answer."""
        self.heard = False
        self.paused = False
        self.over = False

    def pause(self) -> None:
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        self.paused = False
        if self.connection is not None:
            self.connection.resume()

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not accepted yet."""
        return self.connection.unsent if self.connection is not None else 0

    @property
    def heard_at(self) -> float:
        """When its connection last received data; 0 without a connection."""
        return self.connection.heard_at if self.connection is not None else 0.0

    def doubt(self) -> None:
        """Do not reuse its connection after this exchange."""
        if self.connection is not None:
            self.connection.spent = True

    def abandon(self) -> None:
        """Detach the owner and abort the connection, if an answer is pending."""
        self.sink = NOBODY
        self.over = True
        if self.connection is not None:
            self.connection.abort()

    def end(self, error: GatewayError | None) -> None:
        self.over = True
        sink, self.sink = self.sink, NOBODY
        try:
            sink.on_end(error)
        except Exception:  # an owner's bug must not affect the connection's next users
            log.exception("the owner of a request failed at its end")


class Http1Connection(asyncio.Protocol):
    def __init__(self, pool: "Http1Pool", host: str) -> None:
        self._pool = pool
        self._host = host
        self._framing = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._exchange: Http1Exchange | None = None
        self._used = False
        self._behind = False  # received bytes are still unread
        self._loop = asyncio.get_running_loop()
        self.heard_at = self._loop.time()
        """When the connection was opened or last received data."""
        self.idle_since = 0.0
        self.spent = False
        """Whether the connection is not reused after this exchange."""
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def start(self, exchange: Http1Exchange) -> None:
        assert self._transport is not None
        assert self._exchange is None
        exchange.kept, self._used, exchange.doubted = self._used, True, False
        exchange.connection, self._exchange = self, exchange
        exchange.sent_at = self._loop.time()
        framing = self._framing
        request = h11.Request(method=exchange.method, target=exchange.target, headers=exchange.fields)
        parts = [framing.send(request) or b""]
        if exchange.body:
            parts.append(framing.send(h11.Data(exchange.body)) or b"")
        parts.append(framing.send(h11.EndOfMessage()) or b"")
        self._transport.write(b"".join(parts))
        if exchange.paused:
            self.pause()

    def pause(self) -> None:
        if self.usable and self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.usable and self._transport is not None and not self._behind:
            self._transport.resume_reading()

    def close(self, cause: GatewayError) -> None:
        if self._transport is not None:
            self._transport.close()
        self._fail(cause)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        if self._exchange is None:
            self.abort()  # unsolicited: a late answer, or an error before closing
            return
        self._exchange.heard = True
        self._receive(self._exchange, data)

    def eof_received(self) -> None:
        """End an answer without a length. Another answer is cut, which `connection_lost` reports."""
        if self._exchange is not None:
            self._receive(self._exchange, b"")

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc is not None and str(exc) else ""
        self._fail(cut(f"the connection to {self._host} was closed{reason}"))
        if not self.closed.done():
            self.closed.set_result(None)
        self._pool.lost(self)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _receive(self, exchange: Http1Exchange, data: bytes | None) -> None:
        """Process received bytes; None: bytes received earlier that are still unread."""
        try:
            if data is not None:
                self._framing.receive_data(data)
            ended = self._read(exchange)
        except h11.RemoteProtocolError as broken:
            if data != b"":
                self._give_up(broke_protocol(f"{self._host} broke HTTP/1.1: {broken}"))
        except GatewayError as refused:
            self._give_up(refused)
        except Exception as bug:  # as on HTTP/2: the owner gets the error
            log.exception("the owner of a request failed")
            self._give_up(unhandled(bug))
        else:
            if ended:
                self._finish(exchange)

    def _give_up(self, error: GatewayError) -> None:
        self.abort()
        self._fail(error)

    def _catch_up(self, exchange: Http1Exchange) -> None:
        self._behind = False
        if self._exchange is exchange:
            self._receive(exchange, None)
        if not exchange.paused:
            self.resume()

    def _read(self, exchange: Http1Exchange) -> bool:
        """Read at most MAX_EVENTS available events. True if the answer is complete."""
        pieces: list[bytes] = []
        ended = False
        left = MAX_EVENTS
        while not ended:
            left -= 1
            if not left and not self._behind:
                self._behind = True
                self.pause()
                self._loop.call_soon(self._catch_up, exchange)
            if left <= 0:
                break
            event = self._framing.next_event()
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.Response):
                exchange.sink.on_head(event.status_code, read_fields(event.headers))
            elif isinstance(event, h11.EndOfMessage):
                ended = True
            elif isinstance(event, h11.InformationalResponse):
                continue
            else:
                break
        if pieces:
            exchange.sink.on_data(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return ended and self._exchange is exchange

    def _finish(self, exchange: Http1Exchange) -> None:
        self._detach(exchange)
        if exchange.paused:
            self.resume()
        framing = self._framing
        in_order = framing.our_state is h11.DONE and framing.their_state is h11.DONE
        reusable = in_order and self.usable and not self.spent
        if reusable:
            framing.start_next_cycle()
        elif self._transport is not None:
            self._transport.close()
        self._pool.released(self, exchange, reusable=reusable)
        exchange.end(None)

    def _fail(self, error: GatewayError) -> None:
        exchange = self._exchange
        if exchange is not None:
            self._detach(exchange)
            self._pool.failed(exchange, error)

    def _detach(self, exchange: Http1Exchange) -> None:
        self._exchange = exchange.connection = None
