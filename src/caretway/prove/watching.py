"""A transport that notes when which kind of message passed, and the few values that facts are read from.

It sits on top of any carrier, as `cursor.transport.tracing` does. What it notes stays in memory; `sightings` makes
facts of it. A run notes no more than `MAX_MOMENTS`.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from google.protobuf.message import DecodeError

from ..cursor.transport.ports import NewRun, RunHandler, RunStream, Transport, UnaryResponse
from ..cursor.wire.envelope import End
from ..cursor.wire.errors import ErrorSyntax, read_end
from ..cursor.wire.messages import pb

MAX_MOMENTS: Final = 20_000

Kind = Literal[
    "text",
    "thought",
    "tokens",
    "started",
    "partial",
    "exec",
    "listed",
    "checkpoint",
    "ended",
    "end",
    "result",
]


class Moment(NamedTuple):
    ms: int
    what: Kind
    id: str = ""
    """The envelope's id of a call; Cursor's name of an error."""
    text: str = ""
    """The inner id of a call, its arguments, or the code of an error."""
    figures: tuple[int, ...] = ()


class RunNotes:
    """One attempt at a run."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._told = asyncio.Event()

    def note(self, what: Kind, name: str = "", text: str = "", figures: tuple[int, ...] = ()) -> None:
        if len(self.moments) < MAX_MOMENTS:
            ms = round((self._loop.time() - self._began) * 1000)
            self.moments.append(Moment(ms, what, name, text, figures))
            self._told.set()

    async def more(self) -> None:
        """Wait for the next moment."""
        self._told.clear()
        await self._told.wait()


class WireWatch:
    """All that passed, of one backend."""

    def __init__(self) -> None:
        self.runs: list[RunNotes] = []
        self.transport: WatchedTransport | None = None

    def around(self, transport: Transport) -> Transport:
        self.transport = WatchedTransport(transport, self)
        return self.transport


class WatchedTransport:
    def __init__(self, inner: Transport, watch: WireWatch) -> None:
        self._inner = inner
        self._watch = watch
        self._headers: dict[str, str] = {}
        self.open_stream, self.aclose = inner.open_stream, inner.aclose

    @property
    def name(self) -> str:
        return self._inner.name

    async def open_run(self, run: NewRun, handler: RunHandler) -> RunStream:
        notes = RunNotes()
        self._watch.runs.append(notes)
        return _Mouth(await self._inner.open_run(run, _Ear(handler, notes)), notes)

    def open_run_now(self, run: NewRun, handler: RunHandler) -> RunStream | None:
        return None  # what is noted is noted at one place

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        response = await self._inner.call(method, path, headers, body)
        self._headers = dict(headers)
        return response

    async def probe(self, path: str, kind: str, body: bytes = b"") -> UnaryResponse:
        """A call in the same name as the last one that was answered, with another path and content type."""
        return await self._inner.call("POST", path, self._headers | {"content-type": kind}, body)


class _Ear:
    def __init__(self, handler: RunHandler, notes: RunNotes) -> None:
        self._handler = handler
        self._notes = notes
        self.on_closed = handler.on_closed

    def on_messages(self, messages: list[bytes]) -> None:
        for message in messages:
            if isinstance(message, End):
                _hear_end(message, self._notes)
            else:
                _hear(message, self._notes)
        self._handler.on_messages(messages)


class _Mouth:
    def __init__(self, stream: RunStream, notes: RunNotes) -> None:
        self._stream = stream
        self._notes = notes
        self.pause, self.resume = stream.pause, stream.resume
        self.doubt, self.close = stream.doubt, stream.close

    def send(self, message: bytes) -> None:
        said = pb.AgentClientMessage.FromString(message)
        if said.WhichOneof("message") == "exec_client_message" and said.exec_client_message.HasField("mcp_result"):
            self._notes.note("result")
        self._stream.send(message)


def _hear_end(payload: bytes, notes: RunNotes) -> None:
    try:
        error = read_end(payload)
    except ErrorSyntax:
        notes.note("end", text="not understood")
        return
    notes.note("end", *(("", "") if error is None else (error.name, error.code)))


def _hear(payload: bytes, notes: RunNotes) -> None:
    try:
        message = pb.AgentServerMessage.FromString(payload)
    except DecodeError:
        return  # reported when it is really read
    match message.WhichOneof("message"):
        case "interaction_update":
            _hear_update(message.interaction_update, notes)
        case "exec_server_message" if message.exec_server_message.HasField("mcp_args"):
            notes.note("exec", text=message.exec_server_message.mcp_args.tool_call_id)
        case "conversation_checkpoint_update":
            tokens = message.conversation_checkpoint_update.token_details
            notes.note("checkpoint", figures=(tokens.used_tokens, tokens.max_tokens))
        case _:
            pass


def _hear_update(update: pb.InteractionUpdate, notes: RunNotes) -> None:
    match update.WhichOneof("message"):
        case "text_delta":
            notes.note("text")
        case "thinking_delta":
            notes.note("thought")
        case "token_delta":
            notes.note("tokens")
        case "tool_call_started":
            started = update.tool_call_started
            notes.note("started", started.call_id, started.tool_call.mcp_tool_call.args.tool_call_id)
        case "partial_tool_call":
            partial = update.partial_tool_call
            notes.note("partial", partial.call_id, partial.args_text_delta)
        case "tool_requests_listed":
            notes.note("listed", figures=(update.tool_requests_listed.call_count,))
        case "turn_ended":
            ended = update.turn_ended
            figures = (ended.input_tokens, ended.output_tokens, ended.cache_read_tokens, ended.cache_write_tokens)
            notes.note("ended", figures=figures)
        case _:
            pass
