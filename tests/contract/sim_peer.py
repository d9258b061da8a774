"""A hand-written client of the Agent API, for testing the simulator from outside. They share `wire` and nothing else.

`Peer` is the client's mind: it answers blobs, context and tools, and remembers what it saw. `H2` and the functions for
HTTP/1.1 are its hands.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h11
from google.protobuf import json_format

from caretway.cursor.wire import paths
from caretway.cursor.wire.embedding import AppendWriter
from caretway.cursor.wire.envelope import ConnectError, End, EnvelopeReader, pack, read_end
from caretway.cursor.wire.messages import ai, pb

TOKEN = {"authorization": "Bearer key_test"}
STREAM = {**TOKEN, "content-type": paths.STREAM_TYPE, "connect-protocol-version": "1"}
PROTO = {**TOKEN, "content-type": paths.UNARY_TYPE}
JSON = {**TOKEN, "content-type": paths.JSON_TYPE}

Tool = Callable[[dict[str, Any]], str]


def say(text: str, **fields: Any) -> pb.AgentRunRequest:
    """A run request with one user message and an empty state."""
    request = pb.AgentRunRequest(conversation_id="conversation", run_id="run", **fields)
    request.conversation_state.SetInParent()
    request.action.user_message_action.user_message.text = text
    return request


def offer(request: pb.AgentRunRequest, *names: str) -> pb.AgentRunRequest:
    for name in names:
        request.mcp_tools.mcp_tools.add(name=f"mine-{name}", tool_name=name, provider_identifier="mine")
    return request


@dataclass
class Peer:
    tools: dict[str, Tool] = field(default_factory=dict)
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    native: Callable[[pb.ExecServerMessage], list[pb.AgentClientMessage]] | None = None
    deltas: list[str] = field(default_factory=list)
    thinking: str = ""
    tokens: int = 0
    heartbeats: int = 0
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """Kinds of messages, in order."""
    checkpoint: pb.ConversationStateStructure | None = None
    ended: pb.TurnEndedUpdate | None = None
    finished: bool = False
    error: ConnectError | None = None
    asked_context: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    async def until(self, condition: Callable[[], object]) -> None:
        """Returns once what was seen makes it true."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def take(self, frame: bytes) -> list[pb.AgentClientMessage]:
        """Remember a frame; the answers it wants."""
        self._changed.set()
        if isinstance(frame, End):
            self.finished = True
            self.error = read_end(frame)
            return []
        message = pb.AgentServerMessage.FromString(frame)
        match message.WhichOneof("message"):
            case "interaction_update":
                self._note(message.interaction_update)
            case "conversation_checkpoint_update":
                self.seen.append("checkpoint")
                self.checkpoint = message.conversation_checkpoint_update
            case "kv_server_message":
                return [self._keep(message.kv_server_message)]
            case "exec_server_message":
                return self._execute(message.exec_server_message)
            case "interaction_query":
                response = pb.InteractionResponse(id=message.interaction_query.id)
                response.web_search_request_response.rejected.reason = "not here"
                return [pb.AgentClientMessage(interaction_response=response)]
            case other:
                raise AssertionError(f"a message of kind {other}")
        return []

    def _note(self, update: pb.InteractionUpdate) -> None:
        kind = update.WhichOneof("message") or ""
        if kind == "heartbeat":
            self.heartbeats += 1
            return
        self.seen.append(kind)
        match kind:
            case "text_delta":
                self.deltas.append(update.text_delta.text)
            case "thinking_delta":
                self.thinking += update.thinking_delta.text
            case "token_delta":
                self.tokens += update.token_delta.tokens
            case "turn_ended":
                self.ended = update.turn_ended

    def _keep(self, kv: pb.KvServerMessage) -> pb.AgentClientMessage:
        answer = pb.KvClientMessage(id=kv.id)
        if kv.HasField("set_blob_args"):
            self.seen.append("set_blob")
            self.blobs[kv.set_blob_args.blob_id] = kv.set_blob_args.blob_data
            answer.set_blob_result.SetInParent()
        else:
            self.seen.append("get_blob")
            answer.get_blob_result.SetInParent()
            if (data := self.blobs.get(kv.get_blob_args.blob_id)) is not None:
                answer.get_blob_result.blob_data = data
        return pb.AgentClientMessage(kv_client_message=answer)

    def _execute(self, message: pb.ExecServerMessage) -> list[pb.AgentClientMessage]:
        kind = message.WhichOneof("message")
        self.seen.append(kind or "unknown exec")
        answer = pb.ExecClientMessage(id=message.id)
        if kind == "request_context_args":
            self.asked_context = True
            answer.request_context_result.success.request_context.SetInParent()
        elif kind == "mcp_args":
            args = {name: json_format.MessageToDict(value) for name, value in message.mcp_args.args.items()}
            name = message.mcp_args.tool_name
            self.calls.append((name, args))
            answer.mcp_result.success.content.add().text.text = self.tools[name](args)
        else:
            assert self.native is not None, f"nobody handles {kind}"
            return self.native(message)
        return [pb.AgentClientMessage(exec_client_message=answer), closed(message.id)]


def closed(number: int) -> pb.AgentClientMessage:
    close = pb.ExecClientStreamClose(id=number)
    return pb.AgentClientMessage(exec_client_control_message=pb.ExecClientControlMessage(stream_close=close))


def thrown(number: int, error: str) -> pb.AgentClientMessage:
    throw = pb.ExecClientThrow(id=number, error=error)
    return pb.AgentClientMessage(exec_client_control_message=pb.ExecClientControlMessage(throw=throw))


# ---------------------------------------------------------------------------------------------- HTTP/2


class Cut(Exception):
    """The stream was reset, or the connection closed, before its end."""


@dataclass
class Stream:
    number: int
    events: asyncio.Queue[h2.events.Event | None] = field(default_factory=asyncio.Queue)


class H2:
    """One HTTP/2 connection. `reads` False leaves the windows of its streams as they are: a reader that is stuck."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._streams: dict[int, Stream] = {}
        self.stuck: set[int] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, port: int | None = None, tls: ssl.SSLContext | None = None, sock: Any = None
    ) -> AsyncIterator["H2"]:
        if sock is not None:
            reader, writer = await asyncio.open_unix_connection(sock=sock)
        else:
            name = "localhost" if tls else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
        self = cls(reader, writer)
        self.connection.initiate_connection()
        self.connection.increment_flow_control_window(2**24)
        self.flush()
        pump = asyncio.create_task(self._pump())
        try:
            yield self
        finally:
            pump.cancel()
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(pump, writer.wait_closed(), return_exceptions=True)

    def flush(self) -> None:
        self._writer.write(self.connection.data_to_send())

    async def _pump(self) -> None:
        while data := await self._reader.read(65536):
            for event in self.connection.receive_data(data):
                number = getattr(event, "stream_id", None)
                if isinstance(event, h2.events.DataReceived) and number not in self.stuck:
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if number in self._streams:
                    self._streams[number].events.put_nowait(event)
            self.flush()
        for stream in self._streams.values():
            stream.events.put_nowait(None)

    def start(self, method: str, path: str, headers: Mapping[str, str], *, end: bool = False) -> Stream:
        number = self.connection.get_next_available_stream_id()
        stream = self._streams[number] = Stream(number)
        head = [(":method", method), (":scheme", "http"), (":authority", "sim"), (":path", path), *headers.items()]
        self.connection.send_headers(number, head, end_stream=end)
        self.flush()
        return stream

    def send(self, stream: Stream, data: bytes, *, end: bool = False) -> None:
        self.connection.send_data(stream.number, data, end_stream=end)
        self.flush()

    async def body(self, stream: Stream) -> AsyncIterator[bytes]:
        while True:
            event = await stream.events.get()
            match event:
                case h2.events.DataReceived():
                    yield event.data or b""
                case h2.events.StreamEnded():
                    return
                case None | h2.events.StreamReset():
                    raise Cut

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> tuple[int, bytes]:
        stream = self.start(method, path, headers, end=not body)
        if body:
            self.send(stream, body, end=True)
        head = await stream.events.get()
        assert isinstance(head, h2.events.ResponseReceived)
        status = next(int(value) for name, value in head.headers if str(name) == ":status")
        return status, b"".join([data async for data in self.body(stream)])

    async def run(
        self, request: pb.AgentRunRequest, peer: Peer, headers: Mapping[str, str] = STREAM, stream: Stream | None = None
    ) -> None:
        """A whole run; returns when the server has ended it."""
        stream = stream or self.start("POST", paths.RUN, headers)
        self.send(stream, _enveloped(pb.AgentClientMessage(run_request=request)))
        reader = EnvelopeReader()
        async for data in self.body(stream):
            for frame in reader.feed(data):
                for answer in peer.take(frame):
                    self.send(stream, _enveloped(answer))
        self.connection.end_stream(stream.number)
        self.flush()


def _enveloped(message: pb.AgentClientMessage) -> bytes:
    return pack(message.SerializeToString())


# ---------------------------------------------------------------------------------------------- HTTP/1.1


async def call(
    port: int, method: str, path: str, headers: Mapping[str, str] = TOKEN, body: bytes = b""
) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    chunks = [chunk async for chunk in _exchange(port, method, path, headers, body)]
    status, rest = chunks[0], chunks[1:]
    return int(status), b"".join(rest)


async def _exchange(
    port: int, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> AsyncGenerator[bytes, None]:
    """The status, then the body as it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        client = h11.Connection(h11.CLIENT)
        head = [("host", "sim"), ("content-length", str(len(body))), *headers.items()]
        writer.write(client.send(h11.Request(method=method, target=path, headers=head)) or b"")
        writer.write((client.send(h11.Data(data=body)) or b"") + (client.send(h11.EndOfMessage()) or b""))
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(65536)
                if not data:
                    raise Cut
                client.receive_data(data)
            elif isinstance(event, h11.Response):
                yield str(event.status_code).encode()
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def append(port: int, body: bytes, headers: Mapping[str, str] = PROTO) -> int:
    status, _ = await call(port, "POST", paths.BIDI_APPEND, headers, body)
    return status


def request_id_body(request_id: str) -> bytes:
    return pack(ai.BidiRequestId(request_id=request_id).SerializeToString())


async def frames(port: int, request_id: str, headers: Mapping[str, str] = STREAM) -> AsyncIterator[bytes]:
    """A RunSSE call: what the server says."""
    reader = EnvelopeReader()
    chunks = _exchange(port, "POST", paths.RUN_SSE, headers, request_id_body(request_id))
    async with contextlib.aclosing(chunks):
        assert await anext(chunks) == b"200"
        async for data in chunks:
            for frame in reader.feed(data):
                yield frame


async def run_h1(port: int, request: pb.AgentRunRequest, peer: Peer, request_id: str) -> None:
    """A whole run over RunSSE + BidiAppend."""
    numbered = AppendWriter(request_id)
    first = pb.AgentClientMessage(run_request=request).SerializeToString()
    assert await append(port, numbered.write(first)) == 200
    async for frame in frames(port, request_id):
        for answer in peer.take(frame):
            assert await append(port, numbered.write(answer.SerializeToString())) == 200
