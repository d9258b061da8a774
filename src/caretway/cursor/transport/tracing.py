"""Records the traffic of a transport (`--trace`): kinds and sizes of messages, statuses, names of headers. Never
content, tokens or prompts. It wraps any transport.
"""

from collections.abc import Mapping
from typing import Protocol

from google.protobuf.message import DecodeError, Message

from ...core.errors import GatewayError
from ..wire.envelope import End
from ..wire.messages import pb
from .identity import run_ids
from .ports import Listening, NewRun, RunHandler, RunStream, Transport, UnaryResponse


class Recorder(Protocol):
    def number(self) -> int: ...

    def write(self, what: str, **fields: object) -> None: ...


class TracingTransport:
    def __init__(self, inner: Transport, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder
        self.aclose = inner.aclose

    @property
    def name(self) -> str:
        return self._inner.name

    async def open_run(self, run: NewRun, handler: RunHandler) -> RunStream:
        number = self._recorder.number()
        headers = sorted({*run.headers, *dict(run_ids(run.id, run.original))})
        self._recorder.write("run", run=number, headers=headers)
        try:
            stream = await self._inner.open_run(run, _Ear(handler, self._recorder, number))
        except GatewayError as error:
            self._recorder.write("run refused", run=number, kind=error.kind.value)
            raise
        return _Mouth(stream, self._recorder, number)

    def open_run_now(self, run: NewRun, handler: RunHandler) -> RunStream | None:
        return None  # only `open_run` records

    async def open_stream(
        self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler
    ) -> Listening:
        stream = self._recorder.number()
        self._recorder.write("stream", run=stream, path=path, headers=sorted(headers), sent=len(message))
        try:
            return await self._inner.open_stream(path, headers, message, _Ear(handler, self._recorder, stream))
        except GatewayError as error:
            self._recorder.write("stream refused", run=stream, kind=error.kind.value)
            raise

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        try:
            response = await self._inner.call(method, path, headers, body)
        except GatewayError as error:
            self._recorder.write("call failed", method=method, path=path, kind=error.kind.value)
            raise
        self._recorder.write(
            "call", method=method, path=path, status=response.status, sent=len(body), received=len(response.body)
        )
        return response


class _Ear:
    def __init__(self, handler: RunHandler, recorder: Recorder, run: int) -> None:
        self._handler = handler
        self._recorder = recorder
        self._run = run

    def on_messages(self, messages: list[bytes]) -> None:
        kinds = [
            ("end of stream" if isinstance(message, End) else kind(pb.AgentServerMessage, message), len(message))
            for message in messages
        ]
        self._recorder.write("received", run=self._run, messages=kinds)
        self._handler.on_messages(messages)

    def on_closed(self, error: GatewayError | None) -> None:
        self._recorder.write("closed", run=self._run, kind=error.kind.value if error else None)
        self._handler.on_closed(error)


class _Mouth:
    def __init__(self, stream: RunStream, recorder: Recorder, run: int) -> None:
        self._stream = stream
        self._recorder = recorder
        self._run = run
        self.pause, self.resume = stream.pause, stream.resume

    def send(self, message: bytes) -> None:
        kinds = [(kind(pb.AgentClientMessage, message), len(message))]
        self._recorder.write("sent", run=self._run, messages=kinds)
        self._stream.send(message)

    def doubt(self) -> None:
        self._recorder.write("in doubt", run=self._run)
        self._stream.doubt()

    def close(self) -> None:
        self._recorder.write("given up", run=self._run)
        self._stream.close()


def kind(of: type[Message], payload: bytes) -> str:
    """The path of set choices in a message, as in `interaction_update.text_delta`."""
    try:
        message: Message = of.FromString(payload)
    except DecodeError:
        return "not understood"
    path: list[str] = []
    while message.DESCRIPTOR.oneofs:
        chosen = message.WhichOneof(message.DESCRIPTOR.oneofs[0].name)
        if chosen is None:
            break
        path.append(chosen)
        inner = getattr(message, chosen)
        if not isinstance(inner, Message):
            break
        message = inner
    return ".".join(path) or "empty"
