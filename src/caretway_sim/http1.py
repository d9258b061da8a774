"""The simulator's HTTP/1.1 server (h11): keep-alive, 100-continue, HEAD, pipelining up to 1 MiB, chunked responses,
responses cut in the middle.

One request is open at a time. Reading never pauses, because a hang-up during a long response would go unnoticed.
"""

import asyncio
import logging
from typing import Final

import h11

from .exchange import Accept, Deaf, Headers, Inlet, Request

log = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_PIPELINED_BYTES: Final = 1024 * 1024
_NO_BODY: Final = frozenset({204, 304})


class SimHttp1Connection:
    def __init__(self, transport: asyncio.Transport, accept: Accept) -> None:
        self.transport = transport
        self._accept = accept
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._exchange: SimHttp1Exchange | None = None
        self._inlet: Inlet = Deaf()
        self._pumping = False
        self.paused = False

    # ------------------------------------------------------------------ from the socket

    def data_received(self, data: bytes) -> None:
        self._h11.receive_data(data)
        self._pump()

    def connection_lost(self) -> None:
        inlet, exchange = self._inlet, self._exchange
        self._inlet, self._exchange = Deaf(), None
        if exchange is not None:
            exchange.release()
            inlet.on_gone()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._exchange is not None:
            self._exchange.release()

    # ------------------------------------------------------------------ the request

    def _pump(self) -> None:
        if self._pumping:
            return  # the loop below, in which a response ended, continues
        self._pumping = True
        try:
            while not self.transport.is_closing():
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    if self._h11.they_are_waiting_for_100_continue:
                        self.send(h11.InformationalResponse(status_code=100, headers=[]))
                    return
                if event is h11.PAUSED:
                    if len(self._h11.trailing_data[0]) > MAX_PIPELINED_BYTES:
                        self.transport.abort()
                    return
                self._take(event)
        except h11.RemoteProtocolError as broken:
            log.debug("a client broke HTTP/1.1: %s", broken)
            self.transport.close()
        finally:
            self._pumping = False

    def _take(self, event: object) -> None:
        match event:
            case h11.Request():
                path, _, query = event.target.decode("latin-1").partition("?")
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
                scheme = "http" if self.transport.get_extra_info("sslcontext") is None else "https"
                peer = self.transport.get_extra_info("peername")
                request = Request(event.method.decode("latin-1"), path, query, headers, "1.1", scheme, peer=peer)
                self._exchange = SimHttp1Exchange(self, bare=request.method == "HEAD")
                self._inlet = self._accept(request, self._exchange)
            case h11.Data():
                self._inlet.on_data(bytes(event.data))
            case h11.EndOfMessage():
                self._inlet.on_end()
            case h11.ConnectionClosed():
                self.transport.close()

    # ------------------------------------------------------------------ the answer

    def send(self, event: h11.Event) -> None:
        data = self._h11.send(event)
        if data:
            self.transport.write(data)

    def next(self) -> None:
        """Go on with the next request, after a complete response."""
        self._exchange, self._inlet = None, Deaf()
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
            self._pump()
        else:
            self.transport.close()  # the client asked to close, or the response came before its request was complete


class SimHttp1Exchange:
    def __init__(self, connection: SimHttp1Connection, *, bare: bool) -> None:
        """`bare`: the response to a HEAD has no body."""
        self._connection = connection
        self._bare = bare
        self._over = False
        self._room: asyncio.Future[None] | None = None

    @property
    def congested(self) -> bool:
        return self._connection.paused and not self._over

    async def drained(self) -> None:
        if self.congested:
            self._room = self._room or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def release(self) -> None:
        """Wake the sender: there is room again, or the connection is closing."""
        room, self._room = self._room, None
        self._over = self._over or self._connection.transport.is_closing()
        if room is not None and not room.done():
            room.set_result(None)

    def start(self, status: int, headers: Headers) -> None:
        if self._closed():
            return
        fields = list(headers)
        if status not in _NO_BODY and not any(name == "content-length" for name, _ in fields):
            fields.append(("transfer-encoding", "chunked"))
        self._connection.send(h11.Response(status_code=status, headers=fields))

    def write(self, data: bytes) -> None:
        if not self._closed() and not self._bare:
            self._connection.send(h11.Data(data=data))

    def finish(self) -> None:
        if not self._closed():
            self._over = True
            self._connection.send(h11.EndOfMessage())
            self._connection.next()

    def cut(self) -> None:
        if not self._closed():
            self._over = True
            self._connection.transport.close()  # flushes the written bytes, then ends in mid-body

    def _closed(self) -> bool:
        self._over = self._over or self._connection.transport.is_closing()
        return self._over
