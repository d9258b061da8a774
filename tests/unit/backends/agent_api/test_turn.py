"""How a turn's first attempt begins: at once when nothing has to be waited for, in a task otherwise."""

import asyncio

import pytest

from caretway.backends.agent_api.compose import Composer, RunContext
from caretway.backends.agent_api.conversation import Conversation
from caretway.backends.agent_api.turn import AgentTurn
from caretway.backends.agent_api.watch import ConversationLimits
from caretway.builtin_tools.decisions import Refuse
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import TurnFailed, TurnStarted
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.cursor_transport.ports import RunHandler, RunStream


class Stream:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def pause(self) -> None: ...

    def resume(self) -> None: ...

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

    def open_now(self, handler: RunHandler) -> RunStream | None:
        if self.now and self.trouble is not None:
            raise self.trouble
        return self.stream if self.now else None

    async def open(self, handler: RunHandler, *, refused: bool, alone: bool) -> RunStream:
        self.asked += 1
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.stream


def begun(opener: Opener) -> AgentTurn:
    request = TurnRequest("model", (Message(Role.USER, (Text("hello"),)),))
    opening = Composer(RunContext()).compose(request, conversation_id="c", run_id="r")
    conversation = Conversation(
        opening, request, policy=lambda _: Refuse("no"), limits=ConversationLimits(), fetch_blob=lambda _: None
    )
    turn = AgentTurn("agent", conversation, opener, renewable=False, buffer_bytes=1000)
    turn.start()
    return turn


async def test_at_once() -> None:
    opener = Opener(now=True)
    turn = begun(opener)
    assert len(opener.stream.sent) == 1
    assert turn.take() == [TurnStarted(2)]
    await turn.aclose()
    assert opener.stream.closed and not opener.asked


async def test_later() -> None:
    opener = Opener(now=False)
    turn = begun(opener)
    assert turn.take() == [TurnStarted(2)]
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
    assert (events[0], events[-1].error.kind) == (TurnStarted(2), kind)
    await turn.aclose()
