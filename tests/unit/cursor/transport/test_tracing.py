"""A recorded transport tells kinds and sizes, never content."""

import asyncio
from collections.abc import Mapping

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.ports import Listening, NewRun, RunHandler, RunStream, UnaryResponse
from caretway.cursor.transport.tracing import TracingTransport, kind
from caretway.cursor.wire.envelope import End
from caretway.cursor.wire.messages import pb

TEXT = pb.AgentServerMessage(interaction_update=pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text="marzipan")))
HEADERS = {"authorization": "Bearer marzipan", "x-request-id": "1"}


class Stream:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def send(self, message: bytes) -> None:
        self.heard.append(message)

    def pause(self) -> None:
        self.heard.append("pause")

    def resume(self) -> None:
        self.heard.append("resume")

    def doubt(self) -> None:
        self.heard.append("doubt")

    def close(self) -> None:
        self.heard.append("close")


class Carrier:
    name = "h2"

    def __init__(self) -> None:
        self.stream = Stream()
        self.handler: RunHandler | None = None
        self.trouble: GatewayError | None = None
        self.alone: bool | None = None

    def open_run_now(self, run: NewRun, handler: RunHandler) -> RunStream | None:
        raise AssertionError("what is recorded is never opened on the side")

    async def open_run(self, run: NewRun, handler: RunHandler) -> RunStream:
        if self.trouble is not None:
            raise self.trouble
        self.handler = handler
        self.alone = run.alone
        return self.stream

    async def open_stream(
        self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler
    ) -> Listening:
        return await self.open_run(NewRun("", headers), handler)

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        if self.trouble is not None:
            raise self.trouble
        return UnaryResponse(200, {}, b"marzipan")

    async def aclose(self) -> None:
        self.stream.close()


class Recorder:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def number(self) -> int:
        return len(self.lines)

    def write(self, what: str, **fields: object) -> None:
        self.lines.append((what, fields))


class Listener:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_messages(self, frames: list[bytes]) -> None:
        self.heard += frames

    def on_closed(self, error: GatewayError | None) -> None:
        self.heard.append(error)


def test_kinds() -> None:
    assert kind(pb.AgentServerMessage, TEXT.SerializeToString()) == "interaction_update.text_delta"
    assert kind(pb.AgentServerMessage, b"") == "empty"
    assert kind(pb.AgentServerMessage, b"\xff\xff\xff") == "not understood"


@pytest.mark.seed("E16")
def test_what_passes_and_what_is_told() -> None:
    carrier, recorder, listener = Carrier(), Recorder(), Listener()
    transport = TracingTransport(carrier, recorder)

    async def story() -> None:
        assert transport.open_run_now(NewRun("r", HEADERS), listener) is None
        run = await transport.open_run(NewRun("r", HEADERS, alone=True), listener)
        assert carrier.alone
        run.send(pb.AgentClientMessage(client_heartbeat=pb.ClientHeartbeat()).SerializeToString())
        run.pause()
        run.resume()
        assert carrier.handler is not None
        carrier.handler.on_messages([TEXT.SerializeToString(), End(b"{}")])
        carrier.handler.on_closed(None)
        await transport.open_stream("/path", HEADERS, b"marzipan", listener)
        assert (await transport.call("POST", "/path", HEADERS, b"marzipan")).body == b"marzipan"
        run.doubt()
        run.close()
        carrier.trouble = GatewayError(ErrorKind.UPSTREAM_DOWN, "marzipan")
        for attempt in (
            transport.open_run(NewRun("r", HEADERS), listener),
            transport.open_stream("/path", HEADERS, b"", listener),
            transport.call("GET", "/path", HEADERS),
        ):
            with pytest.raises(GatewayError):
                await attempt
        await transport.aclose()

    asyncio.run(story())
    assert listener.heard[1:] == [End(b"{}"), None]
    assert carrier.stream.heard[1:] == ["pause", "resume", "doubt", "close", "close"]
    whats = [what for what, _ in recorder.lines]
    assert whats == [
        *("run", "sent", "received", "closed", "stream", "call", "in doubt", "given up"),
        *("run", "run refused", "stream", "stream refused", "call failed"),
    ]
    assert recorder.lines[0][1]["headers"] == ["authorization", "x-request-id"]
    messages = recorder.lines[2][1]["messages"]
    assert messages == [("interaction_update.text_delta", len(TEXT.SerializeToString())), ("end of stream", 2)]
    assert "marzipan" not in repr(recorder.lines)
