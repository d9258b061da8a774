"""How a turn's first attempt begins (at once when nothing has to be waited for, in a task otherwise), and what a slow
reader does to its stream."""

import asyncio
from typing import Any

import pytest

from caretway.backends.agent.compose import Composer, RunContext
from caretway.backends.agent.conversation import Conversation
from caretway.backends.agent.turn import AgentTurn, QuotaCheck, Simplify
from caretway.backends.agent.turn_clock import ConversationLimits
from caretway.backends.builtin_tools.execs import Refuse
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, TextDelta, TurnFailed, TurnStarted
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.cursor.transport.ports import RunHandler, RunStream
from caretway.cursor.wire.envelope import ConnectError, End, write_end
from caretway.cursor.wire.messages import ai, pb


class Stream:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.did: list[str] = []
        self.closed = False

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def pause(self) -> None:
        self.did.append("pause")

    def resume(self) -> None:
        self.did.append("resume")

    def doubt(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class Opener:
    """Gives a stream at once (`now`), later, or an error."""

    def __init__(self, *, now: bool, trouble: Exception | None = None) -> None:
        self.now = now
        self.trouble = trouble
        self.gate = asyncio.Event()
        self.stream = Stream()
        self.asked = 0
        self.handler: RunHandler | None = None

    def say(self, text: str) -> None:
        update = pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text=text))
        assert self.handler is not None
        self.handler.on_messages([pb.AgentServerMessage(interaction_update=update).SerializeToString()])

    def open_now(self, handler: RunHandler) -> RunStream | None:
        self.handler = handler
        if self.now and self.trouble is not None:
            raise self.trouble
        return self.stream if self.now else None

    async def open(self, handler: RunHandler, *, refused: bool, alone: bool) -> RunStream:
        self.asked += 1
        self.handler = handler
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.stream

    async def move(self, *, sure: bool) -> bool:
        if self.trouble is not None:
            raise self.trouble
        return False


def begun(opener: Opener, quota: QuotaCheck | None = None, simplify: Simplify | None = None) -> AgentTurn:
    request = TurnRequest("model", (Message(Role.USER, (Text("hello"),)),))
    opening = Composer(RunContext()).compose(request, conversation_id="c", run_id="r")
    conversation = Conversation(
        opening, request, policy=lambda _: Refuse("no"), limits=ConversationLimits(), fetch_blob=lambda _: None
    )
    turn = AgentTurn("agent", conversation, opener, renewable=False, buffer_bytes=1000, quota=quota, simplify=simplify)
    turn.start()
    return turn


async def test_at_once() -> None:
    opener = Opener(now=True)
    turn = begun(opener)
    assert len(opener.stream.sent) == 1
    assert turn.take() == [TurnStarted(2, conversation="c")]
    await turn.aclose()
    assert opener.stream.closed and not opener.asked


async def test_later() -> None:
    opener = Opener(now=False)
    turn = begun(opener)
    assert turn.take() == [TurnStarted(2, conversation="c")]
    opener.gate.set()
    while not opener.stream.sent:
        await asyncio.sleep(0)
    assert turn._opening is None, "what is done is not kept"
    await turn.aclose()
    assert opener.stream.closed and opener.asked == 1


async def test_given_up_before_it_began() -> None:
    opener = Opener(now=False)
    turn = begun(opener)
    await asyncio.sleep(0)
    await turn.aclose()
    opener.gate.set()
    await asyncio.sleep(0)
    assert not opener.stream.sent


@pytest.mark.parametrize("now", [True, False])
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [(GatewayError(ErrorKind.BAD_REQUEST, "m"), ErrorKind.BAD_REQUEST), (KeyError("bug"), ErrorKind.INTERNAL)],
)
async def test_trouble_is_an_event(now: bool, trouble: Exception, kind: ErrorKind) -> None:
    opener = Opener(now=now, trouble=trouble)
    opener.gate.set()
    turn = begun(opener)
    events = turn.take()
    while not isinstance(events[-1], TurnFailed):
        await asyncio.sleep(0)
        events += turn.take()
    assert (events[0], events[-1].error.kind) == (TurnStarted(2, conversation="c"), kind)
    await turn.aclose()


BARE = ConnectError("resource_exhausted", "Error")
SCHEMA = ConnectError("internal", error=ai.ErrorDetails.ERROR_PROVIDER_ERROR, info=(("providerStatusCode", "400"),))


REGION = ConnectError("failed_precondition", "This region is not yet available for your team")
REMEDIES = [(BARE, "refused_without_reason"), (SCHEMA, "tool_schema_refused"), (REGION, "team_region_refused")]


@pytest.mark.parametrize(("error", "code"), REMEDIES)
async def test_a_remedy_that_fails_leaves_the_refusal(error: ConnectError, code: str) -> None:
    async def broken(*_: object) -> Any:
        raise KeyError("bug")

    opener = Opener(now=True)
    turn = begun(opener, broken, broken)
    opener.trouble = KeyError("bug")
    assert opener.handler is not None
    opener.handler.on_messages([End(write_end(error))])
    events = turn.take()
    async with asyncio.timeout(20):
        while not isinstance(events[-1], TurnFailed):
            await asyncio.sleep(0)
            events += turn.take()
    assert events[-1].error.code == code
    await turn.aclose()


def words(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_reader_that_keeps_up_is_never_waited_for() -> None:
    opener, heard = Opener(now=True), []
    turn = begun(opener)
    turn.take()
    turn.listen(lambda: heard.extend(turn.take()))
    for word in ("a" * 2000, "b" * 2000):
        opener.say(word)
    assert (words(heard), opener.stream.did) == ("a" * 2000 + "b" * 2000, [])
    turn.listen(lambda: None)
    await turn.aclose()


async def test_a_slow_reader_holds_its_stream_back() -> None:
    opener = Opener(now=True)
    turn = begun(opener)
    turn.take()
    for word in ("a" * 600, "b" * 600, "c"):
        opener.say(word)
    assert opener.stream.did == ["pause"]
    assert words(turn.take()) == "a" * 600 + "b" * 600 + "c"
    assert opener.stream.did == ["pause", "resume"]
    await turn.aclose()


async def test_a_new_attempt_waits_for_a_reader_that_is_still_slow() -> None:
    opener = Opener(now=True)
    turn = begun(opener)
    turn.take()
    opener.say("a" * 2000)
    assert opener.handler is not None
    opener.stream = again = Stream()
    opener.gate.set()
    opener.handler.on_closed(None)
    async with asyncio.timeout(20):
        while not again.sent:
            await asyncio.sleep(0.01)
    assert again.did == ["pause"]
    assert words(turn.take()) == "a" * 2000
    assert again.did == ["pause", "resume"]
    await turn.aclose()


async def test_closed_by_whoever_takes() -> None:
    """Inside the callback that brought the words: the close tells the reader once more, and it gets nothing twice."""
    opener, story = Opener(now=True), []
    turn = begun(opener)
    turn.take()

    def ready() -> None:
        story.append("told")
        if len(story) == 1:
            story.append(words(turn.take()))
            turn.close()

    turn.listen(ready)
    opener.say("enough")
    assert (story, opener.stream.closed) == (["told", "enough", "told"], True)
    opener.say("late")
    assert len(story) == 3
    with pytest.raises(GatewayError):
        turn.take()
