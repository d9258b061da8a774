"""An HTTP/1.1 server for tests, on the `h11` library: RunSSE and BidiAppend with a script, everything else by echo."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import h11

from caretway.cursor.wire.embedding import AppendReader, read_append
from caretway.cursor.wire.envelope import EnvelopeReader, pack, write_end
from caretway.cursor.wire.messages import ai
from caretway.cursor.wire.paths import BIDI_APPEND, RUN_SSE, STREAM_TYPE, UNARY_TYPE


class Http1Script:
    """What the server does. Subclasses say it; this one sends every message of a run back to it."""

    def drops(self, request: "PeerRequest") -> bool:
        """True: close the connection without a look at the request, as one does that was given up before it came."""
        return False

    def on_run(self, run: "PeerRun") -> None:
        run.request.head()

    def on_append(self, request: "PeerRequest", number: int) -> None:
        """An append arrived. To answer is the script's business."""
        request.answer(200, b"")

    def on_message(self, run: "PeerRun", payload: bytes) -> None:
        run.message(payload)

    def on_call(self, request: "PeerRequest") -> None:
        request.answer(201, bytes(request.body), x_got=str(len(request.body)))


class PeerRequest:
    def __init__(self, connection: "PeerConnection", event: h11.Request) -> None:
        self.connection = connection
        self.method = event.method.decode()
        self.path = event.target.decode()
        self.headers = {name.decode(): value.decode() for name, value in event.headers}
        self.body = bytearray()

    def head(self, status: int = 200, content_type: str = STREAM_TYPE, **extra: str) -> None:
        fields = [("content-type", content_type)]
        fields += [(name.replace("_", "-"), value) for name, value in extra.items()]
        self.connection.send(h11.Response(status_code=status, headers=fields))

    def write(self, data: bytes) -> None:
        self.connection.send(h11.Data(data))

    def end(self) -> None:
        self.connection.send(h11.EndOfMessage())
        self.connection.next_request()

    def answer(self, status: int, body: bytes, content_type: str = UNARY_TYPE, **extra: str) -> None:
        self.head(status, content_type, content_length=str(len(body)), **extra)
        if body:
            self.write(body)
        self.end()

    def cut(self) -> None:
        self.connection.transport.close()


class PeerRun:
    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.reader = AppendReader()
        self.numbers: list[int] = []
        self.messages: list[bytes] = []
        self._request: PeerRequest | None = None
        self._early: list[bytes] = []

    @property
    def request(self) -> PeerRequest:
        assert self._request is not None
        return self._request

    def attach(self, request: PeerRequest) -> list[bytes]:
        self._request = request
        early, self._early = self._early, []
        return early

    def arrived(self, messages: list[bytes]) -> list[bytes]:
        self.messages += messages
        if self._request is None:  # the append was quicker than the RunSSE
            self._early += messages
            return []
        return messages

    def message(self, payload: bytes) -> None:
        self.request.write(pack(payload))

    def finish(self) -> None:
        self.request.write(pack(write_end(), end=True))
        self.request.end()


class PeerConnection(asyncio.Protocol):
    def __init__(self, script: Http1Script, site: "Http1Site") -> None:
        self.script = script
        self.site = site
        self.framing = h11.Connection(h11.SERVER)
        self.request: PeerRequest | None = None
        self.served = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.site.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        self.framing.receive_data(data)
        self._read()

    def _read(self) -> None:
        while True:
            event = self.framing.next_event()
            if isinstance(event, h11.Request):
                self.request = PeerRequest(self, event)
                self.site.requests.append(self.request)
            elif isinstance(event, h11.Data):
                assert self.request is not None
                self.request.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert self.request is not None
                self.site.serve(self.script, self.request)
            else:
                break

    def send(self, event: h11.Event) -> None:
        data = self.framing.send(event)
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def next_request(self) -> None:
        self.served += 1
        if self.framing.our_state is h11.DONE and self.framing.their_state is h11.DONE:
            self.framing.start_next_cycle()
        else:
            self.transport.close()


class Http1Site:
    def __init__(self) -> None:
        self.port = 0
        self.connections: list[PeerConnection] = []
        self.requests: list[PeerRequest] = []
        self.runs: dict[str, PeerRun] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, request_id: str) -> PeerRun:
        return self.runs.setdefault(request_id, PeerRun(request_id))

    def serve(self, script: Http1Script, request: PeerRequest) -> None:
        if script.drops(request):
            request.connection.transport.abort()
        elif request.path == RUN_SSE:
            (frame,) = EnvelopeReader().feed(bytes(request.body))
            run = self.run(ai.BidiRequestId.FromString(frame).request_id)
            early = run.attach(request)
            script.on_run(run)
            for payload in early:
                script.on_message(run, payload)
        elif request.path == BIDI_APPEND:
            request_id, number, data = read_append(bytes(request.body))
            run = self.run(request_id)
            run.numbers.append(number)
            script.on_append(request, number)
            for payload in run.arrived(run.reader.feed(number, data)):
                script.on_message(run, payload)
        else:
            script.on_call(request)


@asynccontextmanager
async def http1_site(script: Http1Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Http1Site]:
    site = Http1Site()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PeerConnection(script, site), "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for connection in site.connections:
            connection.transport.abort()
