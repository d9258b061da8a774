"""An HTTP/2 server for tests, on the `h2` library: scripted per stream, honours the client's flow control."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    PingReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from caretway.cursor.wire.envelope import EnvelopeReader, pack, write_end
from caretway.cursor.wire.paths import STREAM_TYPE


class PeerStream:
    def __init__(self, connection: "PeerConnection", stream_id: int, headers: dict[str, str]) -> None:
        self.connection = connection
        self.id = stream_id
        self.headers = headers
        self.reader = EnvelopeReader()
        self.body = bytearray()
        self.messages: list[bytes] = []
        self.waiting = bytearray()
        self.end_after = False
        self.reset_code: int | None = None
        self.half_closed = False

    @property
    def path(self) -> str:
        return self.headers[":path"]

    def head(self, status: int = 200, content_type: str = STREAM_TYPE, **extra: str) -> None:
        fields = [(":status", str(status)), ("content-type", content_type)]
        fields += [(name.replace("_", "-"), value) for name, value in extra.items()]
        with suppress(ProtocolError):  # the client may have closed it in the same read
            self.connection.h2.send_headers(self.id, fields)

    def write(self, data: bytes, *, end: bool = False) -> None:
        self.waiting += data
        self.end_after |= end
        self.connection.pump(self)

    def message(self, payload: bytes) -> None:
        self.write(pack(payload))

    def finish(self) -> None:
        self.write(pack(write_end(), end=True), end=True)

    def reset(self, code: int) -> None:
        self.connection.h2.reset_stream(self.id, code)
        self.connection.flush()


class Script:
    """What the server does. Subclasses say it; this one echoes every message of a run."""

    settings: dict[SettingCodes, int] = {}  # noqa: RUF012  # never written to
    acknowledge = True
    answer_pings = True

    def on_open(self, stream: PeerStream) -> None:
        if stream.path.endswith("/Run"):
            stream.head()
            stream.connection.flush()

    def on_message(self, stream: PeerStream, payload: bytes) -> None:
        stream.message(payload)

    def on_end(self, stream: PeerStream) -> None:
        """The request is complete."""


class PeerConnection(asyncio.Protocol):
    def __init__(self, script: Script, site: "H2Site") -> None:
        self.script = script
        self.site = site
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.local_settings = Settings(client=False, initial_values=dict(script.settings))
        self.streams: dict[int, PeerStream] = {}
        self.pings = 0
        self.reads = 0
        self.client_said_goodbye = False
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.site.connections.append(self)
        self.h2.initiate_connection()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        for event in self.h2.receive_data(data):
            match event:
                case RequestReceived(stream_id=int(stream_id)):
                    headers = dict(cast(list[tuple[str, str]], event.headers))
                    stream = self.streams[stream_id] = PeerStream(self, stream_id, headers)
                    self.site.streams.append(stream)
                    self.script.on_open(stream)
                case DataReceived(stream_id=stream_id):
                    stream = self.streams[stream_id]
                    if self.script.acknowledge:
                        with suppress(ProtocolError):
                            self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
                    if stream.path.endswith("/Run"):
                        for frame in stream.reader.feed(event.data or b""):
                            stream.messages.append(frame)
                            self.script.on_message(stream, frame)
                    else:
                        stream.body += event.data or b""
                case StreamEnded(stream_id=int(stream_id)):
                    self.streams[stream_id].half_closed = True
                    self.script.on_end(self.streams[stream_id])
                case StreamReset(stream_id=stream_id):
                    self.streams[stream_id].reset_code = int(event.error_code or 0)
                case WindowUpdated():
                    for stream in self.streams.values():
                        self.pump(stream)
                case PingReceived():
                    self.pings += 1
                    if not self.script.answer_pings:
                        self.h2.clear_outbound_data_buffer()
                case ConnectionTerminated():
                    self.client_said_goodbye = True
                case _:
                    pass
        self.flush()

    def pump(self, stream: PeerStream) -> None:
        if stream.reset_code is not None:
            return
        try:
            while stream.waiting:
                room = min(self.h2.local_flow_control_window(stream.id), self.h2.max_outbound_frame_size)
                if room <= 0:
                    break
                self.h2.send_data(stream.id, bytes(stream.waiting[:room]))
                del stream.waiting[:room]
            if stream.end_after and not stream.waiting:
                stream.end_after = False
                self.h2.end_stream(stream.id)
        except ProtocolError:
            stream.waiting.clear()  # the client reset it
        self.flush()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)


class H2Site:
    def __init__(self) -> None:
        self.port = 0
        self.connections: list[PeerConnection] = []
        self.streams: list[PeerStream] = []
        self.stop_listening: Callable[[], None] = lambda: None
        """Let nobody in any more."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def h2_site(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[H2Site]:
    site = H2Site()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PeerConnection(script, site), "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    site.stop_listening = server.close
    try:
        yield site
    finally:
        server.close()
        for connection in site.connections:
            connection.transport.abort()


def in_process(script: Script, site: H2Site) -> Callable[[], "asyncio.Future[socket.socket]"]:
    """A `connect` for socket_dial: the client's end of a socketpair whose other end this server serves."""

    async def connect() -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: PeerConnection(script, site), theirs)
        return ours

    return cast(Callable[[], "asyncio.Future[socket.socket]"], connect)
