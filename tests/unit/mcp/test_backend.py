"""Turns with bridged calls, as stories: what the model does, what the client sees, what goes back."""

import asyncio

import pytest
from msgspec.structs import replace

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    Recovered,
    RunUsage,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.request import Message, Role, Text, ToolCall, ToolChoice, ToolResult, TurnRequest
from caretway.core.turn import Abilities, Turn
from caretway.mcp.backend import Offer
from caretway.sessions.loop_history import loop_guard
from receiving import receive
from turns import PARKING, called, reply_of

from .scripted import TEXT, ScriptedBackend, ScriptedTurn, Tools, bridged, request

QUICK, SLOW = "mcp__s__quick", "mcp__s__slow"


def calls_and_ends(*events: Event) -> list[list[Event]]:
    return [[*events, TurnPaused()], [TextDelta("done"), TurnEnded()]]


def paused_or_ended(steps: list[list[Event]], abilities: Abilities) -> list[ScriptedTurn]:
    """The same story for a backend that parks (one turn) and for one that does not (a turn for each step)."""
    if abilities.parks:
        return [ScriptedTurn(steps)]
    return [
        ScriptedTurn([[*step[:-1], TurnEnded() if isinstance(step[-1], TurnPaused) else step[-1]]]) for step in steps
    ]


async def started(inner: ScriptedBackend, tools: Tools, *client_tools: str) -> Turn:
    return await bridged(inner, tools).start(request(*client_tools))


def result(call_id: str, words: str) -> ToolResult:
    return ToolResult(call_id, (Text(words),))


@pytest.fixture(params=[PARKING, TEXT], ids=["parks", "text"])
def abilities(request: pytest.FixtureRequest) -> Abilities:
    found = request.param
    assert isinstance(found, Abilities)
    return found


def heard(inner: ScriptedBackend) -> list[ToolResult]:
    """Every result that the model was given, in order."""
    if inner.abilities.parks:
        return [one for results, _ in inner.turns[0].submitted for one in results]
    return [part for message in inner.requests[-1].messages for part in message.parts if isinstance(part, ToolResult)]


async def test_a_bridged_call_is_run_and_not_shown(abilities: Abilities) -> None:
    inner = ScriptedBackend(paused_or_ended(calls_and_ends(TextDelta("Let me see."), *called("1", QUICK)), abilities))
    inner.abilities = abilities
    turn = await started(inner, Tools(), "read")
    reply = await reply_of(turn)
    assert (reply.text, reply.calls, reply.paused) == ("Let me see.\n\ndone", (), False)
    assert heard(inner) == [result("1", "quick says {}")]
    assert [tool.name for tool in inner.requests[0].tools] == ["read", QUICK, SLOW]
    assert inner.requests[0].bridged == {QUICK, SLOW}


async def test_several_steps_are_one_response(abilities: Abilities) -> None:
    steps: list[list[Event]] = [[*called(str(n), QUICK, f'{{"n":{n}}}'), TurnPaused()] for n in range(5)]
    inner = ScriptedBackend(paused_or_ended([*steps, [TextDelta("done"), TurnEnded()]], abilities), abilities)
    assert (await reply_of(await started(inner, Tools()))).text == "done"
    assert [one.call_id for one in heard(inner)] == ["0", "1", "2", "3", "4"]


async def test_a_mixed_step_parks_for_the_client(abilities: Abilities) -> None:
    steps = calls_and_ends(*called("1", QUICK), *called("2", "read", '{"p":1}'))
    inner, tools = ScriptedBackend(paused_or_ended(steps, abilities), abilities), Tools()
    turn = await started(inner, tools, "read")
    first = await reply_of(turn)
    assert (first.paused, first.calls) == (True, (ToolCall("2", "read", '{"p":1}'),))
    await turn.submit([result("2", "a file")], [Text("and hurry")])
    assert (await reply_of(turn)).text == "done"
    assert sorted(heard(inner), key=lambda one: one.call_id) == [result("1", "quick says {}"), result("2", "a file")]
    if abilities.parks:
        assert inner.turns[0].submitted[0][1] == [Text("and hurry")]
    else:
        received = inner.requests[-1].messages
        assert received[1] == Message(Role.ASSISTANT, (ToolCall("1", QUICK, "{}"), ToolCall("2", "read", '{"p":1}')))
        assert received[-1] == Message(Role.USER, (Text("and hurry"),))


async def test_bridged_results_wait_with_the_parked_turn(abilities: Abilities) -> None:
    steps = calls_and_ends(*called("1", SLOW), *called("2", "read"))
    inner, tools = ScriptedBackend(paused_or_ended(steps, abilities), abilities), Tools()
    turn = await started(inner, tools, "read")
    assert (await reply_of(turn)).paused
    await turn.submit([result("2", "a file")])  # at once: the response waits for the slow one, not this call
    answer = asyncio.ensure_future(reply_of(turn))
    await asyncio.sleep(0)
    assert not answer.done()
    tools.go.set()
    assert (await answer).text == "done"
    assert {one.call_id for one in heard(inner)} == {"1", "2"}


async def test_calls_begin_before_the_step_is_complete() -> None:
    turn_script = ScriptedTurn([[*called("1", QUICK)], [TextDelta("x"), *called("2", "read"), TurnPaused()]])
    inner, tools = ScriptedBackend([turn_script]), Tools()
    turn = await started(inner, tools, "read")
    assert await receive(turn) == [TurnStarted(), AgentActivity("s: quick")]
    await asyncio.sleep(0)
    assert tools.running == ["1"]


async def test_a_reader_that_is_cancelled_can_come_back(abilities: Abilities) -> None:
    inner = ScriptedBackend(paused_or_ended(calls_and_ends(*called("1", SLOW)), abilities), abilities)
    tools = Tools()
    turn = await started(inner, tools)
    await receive(turn)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await receive(turn)
    tools.go.set()
    assert await receive(turn) == [TextDelta("done"), TurnEnded()]
    assert heard(inner) == [result("1", "slow says {}")]
    assert tools.running == ["1"]


async def test_closing_cancels_the_calls() -> None:
    inner, tools = ScriptedBackend([ScriptedTurn(calls_and_ends(*called("1", SLOW)))]), Tools()
    turn = await started(inner, tools)
    await receive(turn)
    waiting = asyncio.ensure_future(receive(turn))
    await asyncio.sleep(0.01)
    await turn.aclose()
    with pytest.raises(GatewayError) as closed:
        await waiting
    assert closed.value.kind is ErrorKind.CANCELLED
    assert tools.cancelled == ["1"] and inner.turns[0].closed
    with pytest.raises(GatewayError):
        await turn.submit([])


async def test_an_inner_failure_is_passed_on_and_cancels() -> None:
    failure = TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "down"))
    inner, tools = ScriptedBackend([ScriptedTurn([[*called("1", SLOW)], [failure]])]), Tools()
    turn = await started(inner, tools)
    await receive(turn)
    await asyncio.sleep(0)
    assert (await receive(turn))[-1] == TurnFailed(failure.error.after_work()), "a tool ran: do not just ask again"
    await asyncio.sleep(0.01)
    assert tools.cancelled == ["1"]


async def test_a_turn_that_is_gone_is_said_so() -> None:
    """Nothing ran here: the client's own history is all there is to tell anew."""
    inner = ScriptedBackend([ScriptedTurn(calls_and_ends(*called("2", "read")), lost=True)])
    turn = await started(inner, Tools(), "read")
    await reply_of(turn)
    with pytest.raises(GatewayError) as gone:
        await turn.submit([result("2", "a file")])
    assert gone.value.kind is ErrorKind.TURN_GONE


async def test_a_step_of_both_whose_run_is_gone_is_told_to_a_new_one() -> None:
    both = calls_and_ends(*called("1", QUICK), *called("2", "read"))
    again = ScriptedTurn([[TextDelta("done"), TurnEnded()]])
    inner, tools = ScriptedBackend([ScriptedTurn(both, lost=True), again]), Tools()
    turn = await started(inner, tools, "read")
    await reply_of(turn)
    await turn.submit([result("2", "a file")])
    assert (await reply_of(turn)).text == "done"
    assert tools.running == ["1"]


async def test_several_inner_turns_are_the_context_of_the_last_and_the_cost_of_all() -> None:
    first: list[Event] = [*called("1", QUICK), UsageReported(Usage(10, 2, run=RunUsage(10, 2))), TurnEnded()]
    counted = Usage(20, 3, cache_read_tokens=8, run=RunUsage(20, 3, 8))
    second: list[Event] = [TextDelta("done"), UsageReported(counted), TurnEnded()]
    inner = ScriptedBackend([ScriptedTurn([first]), ScriptedTurn([second])], TEXT)
    reply = await reply_of(await started(inner, Tools()))
    assert reply.usage == Usage(20, 5, cache_read_tokens=8, run=RunUsage(30, 5, 8, steps=2))
    assert inner.turns[0].closed


async def test_the_steps_of_one_inner_run_are_one_answer() -> None:
    """A bridged call pauses the inner run, not the response: what was said before the pause is part of the answer."""
    first: list[Event] = [TextDelta("look"), *called("1", QUICK), UsageReported(Usage(10, 2, estimated=True))]
    run = RunUsage(33, 5, steps=2)
    second: list[Event] = [TextDelta("done"), UsageReported(Usage(20, 3, run=run)), TurnEnded()]
    inner = ScriptedBackend([ScriptedTurn([[*first, TurnPaused()], second])], PARKING)
    reply = await reply_of(await started(inner, Tools()))
    assert reply.usage == Usage(20, 5, estimated=True, run=run)


async def test_the_loop_guard_is_asked(abilities: Abilities) -> None:
    """Twice is fine, the third result carries a note, the fourth ends the turn."""
    steps: list[list[Event]] = [[*called(str(n), QUICK), TurnPaused()] for n in range(6)]
    inner = ScriptedBackend(paused_or_ended(steps, abilities), abilities)
    turn = await bridged(inner, Tools(), guard=loop_guard(2)).start(request())
    reply = await reply_of(turn)
    assert reply.error is not None
    assert reply.error.kind is ErrorKind.TOOL_LOOP
    received = [one.text for one in heard(inner)]
    assert [("Note from the gateway" in one) for one in received] == [False, False, True]


async def test_the_snapshot_is_the_inner_turns() -> None:
    turn = await started(ScriptedBackend([ScriptedTurn([])]), Tools())
    snapshot = turn.snapshot()
    assert snapshot is not None
    assert snapshot.backend == "scripted"


WANTED: list[tuple[Offer, TurnRequest, bool]] = [
    ("always", request(), True),
    ("always", request(bridge=True), True),
    ("always", request(bridge=False), False),
    ("ask", request(), False),
    ("ask", request(bridge=True), True),
    ("never", request(bridge=True), False),
    ("always", request("read", tool_choice=ToolChoice("none")), False),
    ("always", request("read", tool_choice=ToolChoice("required")), False),
    ("always", request("read", tool_choice=ToolChoice("named", "read")), False),
]


@pytest.mark.parametrize(("offer", "asked", "wanted"), WANTED)
async def test_when_tools_are_offered(offer: Offer, asked: TurnRequest, wanted: bool) -> None:
    inner = ScriptedBackend([ScriptedTurn([])])
    turn = await bridged(inner, Tools(), offer).start(asked)
    assert (inner.requests[0] == asked) is not wanted
    assert (turn is inner.turns[0]) is not wanted  # nothing stands in the way of a turn without bridged tools


async def test_a_backend_without_tools_gets_none() -> None:
    inner = ScriptedBackend([ScriptedTurn([])], Abilities())
    backend = bridged(inner, Tools())
    assert backend.abilities == Abilities()
    await backend.start(request())
    assert inner.requests == [request()]


async def test_a_backend_that_cannot_park_seems_to(abilities: Abilities) -> None:
    assert bridged(ScriptedBackend([], abilities), Tools()).abilities == replace(abilities, parks=True)


# ---- a run that is lost after bridged calls


GONE = TurnFailed(GatewayError(ErrorKind.TURN_GONE, "lost"))


async def test_a_lost_run_is_told_the_bridged_results_and_runs_no_tool_twice() -> None:
    """Between the result and the answer the inner run is lost: only this turn knows that the tool ran."""
    lost = ScriptedTurn([[*called("1", QUICK), TurnPaused()], [Recovered("fresh run", "stalled", 1), GONE]])
    tools, inner = Tools(), ScriptedBackend([lost, ScriptedTurn([[TextDelta("done"), TurnEnded()]])])
    reply = await reply_of(await started(inner, tools))
    assert (reply.text, reply.error) == ("done", None)
    received = inner.requests[1]
    assert [part for message in received.messages for part in message.parts if isinstance(part, ToolResult)] == [
        result("1", "quick says {}")
    ]
    assert (received.reopened, lost.closed) == (1, 1)


async def test_results_that_a_lost_run_cannot_take_are_told_to_a_new_one() -> None:
    lost = ScriptedTurn([[*called("1", QUICK), TurnPaused()]], lost=True)
    inner = ScriptedBackend([lost, ScriptedTurn([[TextDelta("done"), TurnEnded()]])])
    reply = await reply_of(await started(inner, Tools()))
    assert (reply.text, reply.error) == ("done", None)
    assert [message.role for message in inner.requests[1].messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]


async def test_the_clients_results_after_a_bridged_step_are_told_to_a_new_run() -> None:
    lost = ScriptedTurn([[*called("1", QUICK), TurnPaused()], [*called("2", "read"), TurnPaused()]])
    inner = ScriptedBackend([lost, ScriptedTurn([[TextDelta("done"), TurnEnded()]])])
    turn = await started(inner, Tools(), "read")
    assert (await reply_of(turn)).paused
    lost.lost = True
    await turn.submit([result("2", "text")])
    reply = await reply_of(turn)
    assert (reply.text, reply.error) == ("done", None)
    given = [part for message in inner.requests[1].messages for part in message.parts if isinstance(part, ToolResult)]
    assert given == [result("1", "quick says {}"), result("2", "text")]


async def test_a_run_that_is_lost_before_any_bridged_call_is_the_sessions_business() -> None:
    inner = ScriptedBackend([ScriptedTurn([[GONE]])])
    reply = await reply_of(await started(inner, Tools()))
    assert reply.error is not None
    assert reply.error.kind is ErrorKind.TURN_GONE


async def test_a_slow_reader_leaves_the_words_with_the_inner_turn() -> None:
    words: list[list[Event]] = [[TextDelta("x" * 10_000)] for _ in range(100)]
    script = ScriptedTurn([*words, [TurnEnded()]])
    turn = await started(ScriptedBackend([script]), Tools())
    while script.steps:
        await asyncio.sleep(0)
    left = sum(len(event.text) for event in script.take() if isinstance(event, TextDelta))
    assert 900_000 < left < 950_000, "this turn took what it has room for, and not a million"
    assert sum(len(event.text) for event in turn.take() if isinstance(event, TextDelta)) == 1_000_000 - left


async def test_a_call_begins_though_nobody_reads() -> None:
    script = ScriptedTurn(calls_and_ends(*called("1", QUICK)))
    tools, inner = Tools(), ScriptedBackend([script])
    turn = await started(inner, tools)
    while not script.submitted:
        await asyncio.sleep(0)
    assert tools.running == ["1"]
    assert (await reply_of(turn)).text == "done"
