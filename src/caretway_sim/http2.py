"""The simulator's HTTP/2 server (h2): flow control and a buffer for each stream (backpressure), resets, protocol errors
of clients.

Bytes that exceed the peer's window or the socket's buffer wait, so an unread stream does not block the other streams.
Input is passed on and acknowledged at once. Data after the end of a response is ignored: a client may send heartbeats
slightly longer than the run lasts.
"""

import asyncio
import logging
import struct
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from .exchange import Accept, Deaf, Headers, Inlet, Request

log = logging.getLogger(__name__)

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_STREAMS: Final = 4096
STREAM_WINDOW: Final = 4 * 1024 * 1024
CONNECTION_WINDOW: Final = 64 * 1024 * 1024
MAX_HEADER_BYTES: Final = 64 * 1024
HIGH_WATER: Final = 64 * 1024
_DEFAULT_WINDOW: Final = 65535
_DATA_HEAD: Final = struct.Struct(">IBI")
"""The head of a DATA frame: 24 bits of length and 8 of type (0); flags; stream."""

_Codes = h2.settings.SettingCodes


class Http2Connection:
    def __init__(self, transport: asyncio.Transport, accept: Accept, max_streams: int = MAX_STREAMS) -> None:
        self.transport = transport
        self._accept = accept
        self.paused = False
        self._streams: dict[int, Http2Exchange] = {}
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                _Codes.MAX_CONCURRENT_STREAMS: max_streams,
                _Codes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                _Codes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
            },
        )
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(CONNECTION_WINDOW - _DEFAULT_WINDOW)
        self.flush()

    # ------------------------------------------------------------------ from the socket

    def data_received(self, data: bytes) -> None:
        try:
            events = self.h2.receive_data(data)
            for event in events:
                self._take(event)
        except h2.exceptions.ProtocolError as broken:
            log.debug("a client broke HTTP/2: %s", broken)
            self.flush()  # h2 has queued a GOAWAY with the reason
            self.connection_lost()
            self.transport.close()
            return
        self.flush()

    def connection_lost(self) -> None:
        for stream in list(self._streams.values()):
            stream.gone()
        self._streams.clear()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._push_all()

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.DataReceived():
                number = event.stream_id
                self.h2.acknowledge_received_data(event.flow_controlled_length, number)
                if (stream := self._streams.get(number)) is not None:
                    stream.inlet.on_data(event.data or b"")
            case h2.events.RequestReceived():
                self._open(event)
            case h2.events.StreamEnded():
                if (stream := self._streams.get(event.stream_id or 0)) is not None:
                    stream.inlet.on_end()
            case h2.events.StreamReset():
                if (stream := self._streams.pop(event.stream_id or 0, None)) is not None:
                    stream.gone()
            case h2.events.WindowUpdated():
                if not event.stream_id:
                    self._push_all()
                elif (stream := self._streams.get(event.stream_id)) is not None:
                    stream.push()
            case h2.events.RemoteSettingsChanged():
                self._push_all()
            case h2.events.ConnectionTerminated():
                self.connection_lost()  # h2 sends nothing after the peer's GOAWAY
                self.transport.close()
            case _:
                pass

    def _open(self, event: h2.events.RequestReceived) -> None:
        number = event.stream_id
        assert number is not None
        if number not in self.h2.streams:
            return  # opened and reset in one read
        headers = {str(name): str(value) for name, value in event.headers or ()}
        path, _, query = headers.get(":path", "").partition("?")
        scheme, peer = headers.get(":scheme", ""), self.transport.get_extra_info("peername")
        request = Request(headers.get(":method", ""), path, query, headers, "2", scheme, peer=peer)
        stream = Http2Exchange(self, number)
        self._streams[number] = stream
        stream.listen(self._accept(request, stream))

    def _push_all(self) -> None:
        for stream in list(self._streams.values()):
            stream.push()

    # ------------------------------------------------------------------ for the streams

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def forget(self, number: int) -> None:
        self._streams.pop(number, None)


class Http2Exchange:
    def __init__(self, connection: Http2Connection, number: int) -> None:
        self.inlet: Inlet = Deaf()
        self._connection = connection
        self._number = number
        self._stream = connection.h2.streams[number]
        self._waiting = bytearray()
        self._ending = False
        self._over = False
        self._room: asyncio.Future[None] | None = None

    def listen(self, inlet: Inlet) -> None:
        if not self._over:
            self.inlet = inlet

    @property
    def congested(self) -> bool:
        return not self._over and (len(self._waiting) > HIGH_WATER or self._connection.paused)

    async def drained(self) -> None:
        if self.congested:
            self._room = self._room or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def start(self, status: int, headers: Headers) -> None:
        if not self._over:
            self._connection.h2.send_headers(self._number, [(":status", str(status)), *headers])
            self._connection.flush()

    def write(self, data: bytes) -> None:
        if self._over or self._ending:
            return
        connection, stream, size = self._connection, self._stream, len(data)
        fits = size <= min(
            stream.outbound_flow_control_window,
            connection.h2.outbound_flow_control_window,
            connection.h2.max_outbound_frame_size,
        )
        if not fits or self._waiting or connection.paused:
            self._waiting += data
            self.push()
        elif size:
            connection.transport.write(self._frame(size) + data)

    def _frame(self, size: int) -> bytes:
        """The head of a DATA frame; deducts its size from both windows.

        Written by hand: h2's `send_data` takes longer than the system call that follows it. All other frames go through
        h2 and are flushed at once, so no header can be queued that would have to go first.
        """
        self._stream.outbound_flow_control_window -= size
        self._connection.h2.outbound_flow_control_window -= size
        return _DATA_HEAD.pack(size << 8, 0, self._number)

    def finish(self) -> None:
        if not self._over and not self._ending:
            self._ending = True
            self.push()

    def cut(self) -> None:
        if self._over:
            return
        self._connection.h2.reset_stream(self._number, h2.errors.ErrorCodes.INTERNAL_ERROR)
        self._connection.flush()
        self._close()

    def gone(self) -> None:
        if not self._over:
            inlet = self.inlet
            self._close()
            inlet.on_gone()

    def push(self) -> None:
        """Send as much as the windows and the socket take."""
        connection, waiting = self._connection, self._waiting
        if self._over or connection.paused:
            return
        wire, stream = connection.h2, self._stream
        while waiting and not connection.paused:
            window = min(stream.outbound_flow_control_window, wire.outbound_flow_control_window)
            size = min(len(waiting), window, wire.max_outbound_frame_size)
            if size <= 0:
                break
            connection.transport.write(self._frame(size) + waiting[:size])
            del waiting[:size]
        if not waiting and self._ending:
            wire.end_stream(self._number)
            connection.flush()
            self._close()
        elif self._room is not None and not self.congested:
            self._release()

    def _close(self) -> None:
        self._over = True
        self.inlet = Deaf()  # breaks the reference cycle with the run
        self._waiting.clear()
        self._connection.forget(self._number)
        self._release()

    def _release(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
