"""A turn on the legacy chat call, driven frame by frame, and the message it sends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from caretway.backends.legacy_chat import ChatLimits, ChatTurn, compose
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, TextDelta, TurnEnded, TurnFailed, TurnStarted
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.cursor.transport.ports import Listening, RunHandler
from caretway.cursor.wire.envelope import ConnectError, End, write_end
from caretway.cursor.wire.messages import ai
from receiving import receive


def say(text: str) -> bytes:
    return ai.StreamChatResponse(msg=text).SerializeToString()


def end(error: ConnectError | None = None) -> bytes:
    return End(write_end(error))


DEPRECATED = ConnectError("failed_precondition", "old", error=ai.ErrorDetails.ERROR_DEPRECATED)
SIGNED_OUT = ConnectError("unauthenticated", "who?", error=ai.ErrorDetails.ERROR_NOT_LOGGED_IN)
DOWN = GatewayError(ErrorKind.UPSTREAM_DOWN, "cut")


class Wire:
    """Upstream, as the test plays it."""

    def __init__(self, *plays: Callable[[RunHandler], None] | GatewayError) -> None:
        self._plays = list(plays)
        self.refused: list[bool] = []
        self.did: list[str] = []

    def open(self, handler: RunHandler, refused: bool) -> Awaitable[Listening]:
        return self._open(handler, refused)

    async def _open(self, handler: RunHandler, refused: bool) -> Listening:
        self.refused.append(refused)
        play = self._plays.pop(0)
        if isinstance(play, GatewayError):
            raise play
        asyncio.get_running_loop().call_soon(play, handler)
        return self

    def pause(self) -> None:
        self.did.append("pause")

    def resume(self) -> None:
        self.did.append("resume")

    def close(self) -> None:
        self.did.append("close")


def frames(*sent: bytes) -> Callable[[RunHandler], None]:
    return lambda handler: handler.on_messages(list(sent))


async def run(wire: Wire, limits: ChatLimits | None = None, *, renewable: bool = False) -> list[Event]:
    turn = ChatTurn(wire.open, limits or ChatLimits(), renewable=renewable)
    events: list[Event] = []
    while not events or not isinstance(events[-1], TurnEnded | TurnFailed):
        events += await receive(turn)
    await turn.aclose()
    return events


def kind(events: list[Event]) -> ErrorKind:
    assert isinstance(events[-1], TurnFailed)
    return events[-1].error.kind


async def test_text() -> None:
    wire = Wire(frames(say("a"), say(""), say("b"), end()))
    assert await run(wire) == [TurnStarted(), TextDelta("a"), TextDelta("b"), TurnEnded()]
    assert wire.did == ["close"]


async def test_deprecation_names_the_way_out() -> None:
    events = await run(Wire(frames(end(DEPRECATED))))
    assert kind(events) is ErrorKind.UPSTREAM_DEPRECATED and len(events) == 1
    assert isinstance(events[0], TurnFailed) and "--backend agent" in events[0].error.hint


async def test_a_refused_token_is_renewed_once() -> None:
    wire = Wire(frames(end(SIGNED_OUT)), frames(say("a"), end()))
    assert (await run(wire, renewable=True))[-1] == TurnEnded()
    assert wire.refused == [False, True]
    assert kind(await run(Wire(frames(end(SIGNED_OUT))))) is ErrorKind.SIGNED_OUT


async def test_a_cut_is_tried_again_before_the_first_text_only() -> None:
    wire = Wire(DOWN, frames(say("a"), end()))
    assert (await run(wire))[-1] == TurnEnded()

    def cut(handler: RunHandler) -> None:
        handler.on_messages([say("a")])
        handler.on_closed(None)

    assert kind(await run(Wire(cut))) is ErrorKind.UPSTREAM_DOWN
    assert kind(await run(Wire(DOWN, DOWN, DOWN))) is ErrorKind.UPSTREAM_DOWN, "the budget of every request"


async def test_silence_ends_it() -> None:
    assert kind(await run(Wire(lambda handler: None), ChatLimits(progress=0.01))) is ErrorKind.TIMEOUT


async def test_what_cannot_be_read_ends_it() -> None:
    assert kind(await run(Wire(frames(b"\xff\xff")))) is ErrorKind.UPSTREAM_PROTOCOL
    assert kind(await run(Wire(frames(End(b"no json"))))) is ErrorKind.UPSTREAM_PROTOCOL


async def test_a_slow_reader_holds_upstream_back() -> None:
    wire = Wire(frames(say("a" * 50), say("b" * 60)))
    turn = ChatTurn(wire.open, ChatLimits(buffer_bytes=100), renewable=False)
    while "pause" not in wire.did:
        await asyncio.sleep(0)
    await receive(turn)
    assert wire.did == ["pause", "resume"]
    await turn.aclose()
    await turn.aclose()
    assert wire.did[-1] == "close"


@pytest.mark.seed("E05")
def test_the_message() -> None:
    said = (
        Message(Role.SYSTEM, (Text("be nice"),)),
        Message(Role.USER, (Text("hi"),)),
        Message(Role.ASSISTANT, (Text("ho"),)),
    )
    ids = iter("12")
    sent = ai.StreamChatRequest.FromString(compose(TurnRequest("gpt", said), "r", "c", lambda: next(ids)))
    assert (sent.instructions.instruction, sent.model.name, sent.request_id, sent.conversation_id) == (
        "be nice",
        "gpt",
        "r",
        "c",
    )
    assert [(one.content, one.role, one.message_id) for one in sent.messages] == [("hi", 1, "1"), ("ho", 2, "2")]
    assert sent.SerializeToString().startswith(b"\x12\x09\x0a\x02hi\x10\x01\x6a\x011")  # field 2: content, role, id 13
