"""One live turn: what the plan is shown of it, and the fingerprints by which its client is recognised."""

import asyncio

import pytest
from msgspec.structs import replace

from caretway.core.request import Message, Role, Text, ToolCall, ToolResult, ToolSpec
from caretway.core.tally import history_tokens
from caretway.sessions.lifecycle import Happening, SessionState
from caretway.sessions.live import LiveTurn
from caretway.sessions.transcript import Chain, tools_key
from turns import PlayedTurn

from .played import TOOLS, ask, live

HI = Message(Role.USER, (Text("hi"),))
CALLS = Message(Role.ASSISTANT, (ToolCall("call_1", "read", "{}"),))
RESULT = Message(Role.TOOL, (ToolResult("call_1", (Text("a file"),)),))


def waiting() -> LiveTurn:
    one = live(PlayedTurn(), ask(HI))
    one.unchained = (HI,)
    one.answer = CALLS
    one.open = ["call_1"]
    one.happened(Happening.PAUSED)
    return one


def fingerprint(*messages: Message) -> bytes:
    return Chain(tools_key(TOOLS)).add(messages).said()


@pytest.mark.seed("J05")
def test_as_the_plan_sees_it() -> None:
    one = waiting()
    seen = one.parked()
    assert (seen.tickets, seen.waiting, seen.own, seen.abandoned) == (frozenset({"call_1"}), True, True, False)
    assert (seen.answer, seen.tools, seen.history) == (CALLS, TOOLS, (HI,))
    assert seen.before() == fingerprint(HI)
    assert not one.parked(own=False).own


def test_a_turn_whose_client_hung_up_is_abandoned() -> None:
    one = live(PlayedTurn())
    one.happened(Happening.HUNG_UP)
    assert one.parked().abandoned


def test_a_client_is_recognised_by_its_own_words() -> None:
    """It retold our answer in another way: that is what it will send again."""
    one = waiting()
    retold = Message(Role.ASSISTANT, (Text("I look."), ToolCall("call_1", "read", "{}")))
    one.goes_on(ask(HI, retold, RESULT), (retold, RESULT))
    assert one.before() == fingerprint(HI, retold, RESULT)


def test_a_client_that_sends_results_alone_means_our_answer() -> None:
    one = waiting()
    one.goes_on(ask(RESULT), (RESULT,))
    assert one.before() == fingerprint(HI, CALLS, RESULT)


def test_the_transcript_includes_the_answer_and_the_tools() -> None:
    one = waiting()
    assert one.transcript() == Chain(tools_key(TOOLS)).add((HI, CALLS)).digest()


def test_tools_that_were_added_are_the_newest_requests_and_not_the_runs() -> None:
    one = waiting()
    more = (*TOOLS, ToolSpec("later"))
    one.goes_on(replace(ask(HI, CALLS, RESULT), tools=more, call_prefix="toolu_"), (CALLS, RESULT))
    assert (one.tools, one.tickets.prefix) == (TOOLS, "toolu_")
    one.answer = Message(Role.ASSISTANT, (Text("done"),))
    assert one.transcript() == Chain(tools_key(more)).add((HI, CALLS, RESULT, one.answer)).digest()


@pytest.mark.parametrize("retold", [True, False], ids=["the client retells the call", "results alone"])
def test_what_it_holds_is_counted_step_by_step(retold: bool) -> None:
    """The same as counting the whole history, which grows with every step of a loop."""
    said: tuple[Message, ...] = (HI, CALLS, RESULT)
    one = waiting()
    one.goes_on(ask(*said), said[1:] if retold else said[2:])
    assert one.held == history_tokens(ask(*said))
    one.answer = Message(Role.ASSISTANT, (ToolCall("call_2", "read_it_all", '{"path": "/tmp"}'),))
    said = (*said, one.answer, Message(Role.TOOL, (ToolResult("call_2", (Text("another file"),)),)))
    one.goes_on(ask(*said), said[3:] if retold else said[4:])
    assert one.held == history_tokens(ask(*said))


async def test_its_timer_runs_only_while_it_is_parked() -> None:
    one = waiting()
    one.timer = timer = asyncio.get_running_loop().call_later(3600, lambda: None)
    one.happened(Happening.RESULTS)
    assert timer.cancelled()
    assert one.state is SessionState.RUNNING
