"""The session engine with turns that the test plays: who resumes what, what is parked, kept, and closed."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

import pytest
from msgspec.structs import replace

from caretway.core.caller import Caller
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    Event,
    RunUsage,
    TextDelta,
    ToolCallReady,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.fold import Reply
from caretway.core.records import RequestOrigin, RunRecord
from caretway.core.request import Message, Role, SessionMode, Text, ToolCall, ToolChoice, ToolResult, TurnRequest
from caretway.core.turn import Guard, Snapshot
from caretway.sessions.lifecycle import Happening
from caretway.sessions.manager import SessionLimits, Sessions
from caretway.sessions.response import DRAINED_BYTES, Response
from turns import GONE, PlayedBackend, PlayedTurn, called

from .played import ask

HI = Message(Role.USER, (Text("hi"),))
KEPT = Snapshot("played", b"kept")


@dataclass
class Memory:
    """A store of conversations that forgets nothing."""

    kept: dict[bytes, Snapshot] = field(default_factory=dict)
    settled: bool = True
    shared: bool = False
    waited: int = 0
    brought: list[bytes] = field(default_factory=list)

    def recall(self, key: bytes) -> Snapshot | None:
        return self.kept.get(key)

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        self.kept[key] = snapshot

    async def settle(self) -> None:
        self.waited += 1

    async def bring(self, key: bytes) -> None:
        self.brought.append(key)


class House:
    """Sessions, and all that they were told."""

    def __init__(
        self, *turns: PlayedTurn, guard: Guard | None = None, memory: Memory | None = None, **limits: object
    ) -> None:
        self.turns = turns
        self.backend = PlayedBackend(list(turns))
        self.memory = memory or Memory()
        self.runs: list[RunRecord] = []
        self.sessions = Sessions(
            self.backend,
            stages=(),
            limits=SessionLimits(**limits),  # type: ignore[arg-type]  # by name
            store=self.memory,
            guard=guard or (lambda request: request),
            run_ended=self.runs.append,
        )


def calls_in(response: Response) -> list[str]:
    return [event.id for event in response.take() if isinstance(event, ToolCallReady)]


def after(tickets: list[str], *extra: Message, said: str = "") -> TurnRequest:
    """The follow-up of a client: its history, our calls, and a result for each."""
    words = (Text(said),) if said else ()
    answer = Message(Role.ASSISTANT, (*words, *(ToolCall(ticket, "read", "{}") for ticket in tickets)))
    results = [Message(Role.TOOL, (ToolResult(ticket, (Text("a file"),)),)) for ticket in tickets]
    return ask(HI, answer, *results, *extra)


async def test_a_new_conversation_is_a_new_turn() -> None:
    house = House(PlayedTurn(TextDelta("hello"), TurnEnded(), snapshot=KEPT))
    response = await house.sessions.open(ask(HI))
    assert (response.label, house.sessions.live) == ("fresh", 1)
    response.take()
    assert (house.sessions.live, house.turns[0].closed) == (0, 1)
    (kept,) = house.memory.kept.values()
    assert kept == replace(KEPT, conversation=response.live.account.conversation)


async def test_a_known_conversation_is_continued_from_its_snapshot() -> None:
    house = House(PlayedTurn(TextDelta("hello"), TurnEnded(), snapshot=KEPT), PlayedTurn(TextDelta("yes"), TurnEnded()))
    (await house.sessions.open(ask(HI))).take()
    more = ask(HI, Message(Role.ASSISTANT, (Text("hello"),)), Message(Role.USER, (Text("go on"),)))
    house.memory.settled = False
    response = await house.sessions.open(more)
    assert (response.label, house.memory.waited) == ("continued", 1)
    assert house.backend.started[1] == (more, *house.memory.kept.values())


async def test_a_conversation_belongs_to_whoever_had_it() -> None:
    house = House(PlayedTurn(TextDelta("hello"), TurnEnded(), snapshot=KEPT), PlayedTurn(), scope="one account")
    (await house.sessions.open(ask(HI))).take()
    other = House(PlayedTurn(), memory=house.memory, scope="another account")
    more = ask(HI, Message(Role.ASSISTANT, (Text("hello"),)), Message(Role.USER, (Text("go on"),)))
    assert (await other.sessions.open(more)).label == "replayed"
    assert (await house.sessions.open(more)).label == "continued"


async def test_results_resume_the_turn_that_waits_for_them() -> None:
    turn = PlayedTurn(*called("upstream 1"), TurnPaused())
    house = House(turn)
    tickets = calls_in(await house.sessions.open(ask(HI)))
    assert (house.sessions.parked, turn.closed) == (1, 0)
    response = await house.sessions.open(after(tickets, Message(Role.USER, (Text("hurry"),))))
    assert (response.label, house.sessions.parked) == ("resumed", 0)
    assert turn.submitted == [([ToolResult("upstream 1", (Text("a file"),))], [Text("hurry")])]
    turn.say(TextDelta("done"), TurnEnded())
    assert response.take() == [TurnStarted(), TextDelta("done"), TurnEnded()]
    assert (house.sessions.live, turn.closed) == (0, 1)


async def test_of_two_that_come_with_the_same_results_one_resumes() -> None:
    house = House(PlayedTurn(*called("1"), TurnPaused()), PlayedTurn())
    tickets = calls_in(await house.sessions.open(ask(HI)))
    outcomes = await asyncio.gather(
        house.sessions.open(after(tickets)), house.sessions.open(after(tickets)), return_exceptions=True
    )
    assert [one.label for one in outcomes if isinstance(one, Response)].count("resumed") == 1
    assert len(house.turns[0].submitted) == 1


async def test_a_parked_turn_that_is_lost_is_replayed() -> None:
    lost, again = PlayedTurn(*called("1"), TurnPaused()), PlayedTurn(TextDelta("done"), TurnEnded())
    house = House(lost, again)
    tickets = calls_in(await house.sessions.open(ask(HI)))
    lost.lost = True
    response = await house.sessions.open(after(tickets))
    assert (response.label, response.reason) == ("replayed", "the parked turn was lost")
    assert response.recoveries == [("fresh run", "gone")]
    assert lost.closed == 1


async def test_who_requires_its_session_is_told_that_it_is_gone() -> None:
    lost = PlayedTurn(*called("1"), TurnPaused())
    house = House(lost)
    tickets = calls_in(await house.sessions.open(ask(HI)))
    lost.lost = True
    with pytest.raises(GatewayError) as gone:
        await house.sessions.open(replace(after(tickets), session=SessionMode.REQUIRED))
    assert gone.value.kind is ErrorKind.TURN_GONE


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("words", ["hi", " hi\n"])
async def test_the_same_request_again_gets_the_same_answer(large: bool, words: str) -> None:
    """Whose client lost the answer with the calls, and asks again: it gets the same calls, and no second turn. Large
    requests are compared elsewhere, and spelling does not count."""
    first = PlayedTurn(*called("1"), TurnPaused())
    house = House(first)
    before = calls_in(await house.sessions.open(ask(HI)))
    resumed = await house.sessions.open(after(before))
    first.say(*called("2"), TurnPaused())
    tickets = calls_in(resumed)
    repeated = after(before)
    said = (Message(Role.USER, (Text(words),)), *repeated.messages[1:])
    again = await house.sessions.open(replace(repeated, messages=said, large=large))
    assert calls_in(again) == tickets
    assert (house.sessions.parked, len(first.submitted)) == (1, 1)


async def test_too_many_parked_turns_let_the_oldest_go() -> None:
    turns = [PlayedTurn(*called("1"), TurnPaused()) for _ in range(3)]
    house = House(*turns, max_parked=2)
    for _ in turns:
        (await house.sessions.open(ask(HI))).take()
    assert (house.sessions.parked, [turn.closed for turn in turns]) == (2, [1, 0, 0])


async def test_nobody_comes_back() -> None:
    house = House(PlayedTurn(*called("1"), TurnPaused()), parked_timeout=0.0)
    (await house.sessions.open(ask(HI))).take()
    async with asyncio.timeout(60):
        while house.sessions.parked:
            await asyncio.sleep(0)
    assert house.turns[0].closed == 1


async def test_the_guard_speaks_to_the_model_and_not_to_the_transcript() -> None:
    note = Message(Role.USER, (Text("a word of the gateway's"),))

    def guard(request: TurnRequest) -> TurnRequest:
        return replace(request, messages=(*request.messages, note))

    house = House(PlayedTurn(), guard=guard)
    response = await house.sessions.open(ask(HI))
    assert house.backend.started[0][0].messages == (HI, note)
    assert response.request.messages == response.live.unchained == (HI,)


async def test_a_loop_ends_its_parked_turn() -> None:
    def guard(request: TurnRequest) -> TurnRequest:
        if len(request.messages) > 1:
            raise GatewayError(ErrorKind.TOOL_LOOP, "again and again")
        return request

    house = House(PlayedTurn(*called("1"), TurnPaused()), guard=guard)
    tickets = calls_in(await house.sessions.open(ask(HI)))
    with pytest.raises(GatewayError):
        await house.sessions.open(after(tickets))
    assert (house.sessions.parked, house.turns[0].closed) == (0, 1)


LEFT: list[tuple[str, list[Event], int, int]] = [
    ("ends by itself", [TextDelta("nearly there"), TurnEnded()], 0, 0),
    ("parks by itself", [*called("1"), TurnPaused()], 1, 1),
    ("says too much", [TextDelta("x" * DRAINED_BYTES)], 0, 0),
]


@pytest.mark.parametrize(("name", "events", "live", "parked"), LEFT, ids=[row[0] for row in LEFT])
async def test_the_turn_of_a_client_that_hung_up(name: str, events: list[Event], live: int, parked: int) -> None:
    turn = PlayedTurn(TextDelta("a"))
    house = House(turn, disconnect_grace=3600.0)
    response = await house.sessions.open(ask(HI))
    response.take()
    response.close()
    assert (house.sessions.live, turn.closed) == (1, 0)
    turn.say(*events)
    assert (house.sessions.live, house.sessions.parked, turn.closed) == (live, parked, 1 - live)


@pytest.mark.parametrize(
    ("choice", "events"),
    [("auto", [TurnFailed(GONE)]), ("required", [TextDelta("words"), TurnEnded()])],
    ids=["lost", "no call"],
)
async def test_a_turn_that_is_started_anew_after_its_client_hung_up_ends_too(
    choice: Literal["auto", "required"], events: list[Event]
) -> None:
    first, second = PlayedTurn(), PlayedTurn(TextDelta("nearly there"), TurnEnded())
    house = House(first, second, disconnect_grace=3600.0)
    response = await house.sessions.open(ask(HI, choice=ToolChoice(choice)))
    response.close()
    first.say(TurnStarted(), *events)
    async with asyncio.timeout(60):
        while house.sessions.live or not second.closed:
            await asyncio.sleep(0)
    assert (first.closed, second.closed) == (1, 1)


async def test_the_grace_of_a_turn_ends() -> None:
    turn = PlayedTurn(TextDelta("a"))
    house = House(turn, disconnect_grace=0.0)
    response = await house.sessions.open(ask(HI))
    response.close()
    async with asyncio.timeout(60):
        while house.sessions.live:
            await asyncio.sleep(0)
    assert turn.closed == 1


async def test_a_lost_turn_is_started_anew_inside_the_response() -> None:
    house = House(PlayedTurn(TurnFailed(GONE)), PlayedTurn(TextDelta("here"), TurnEnded()))
    response = await house.sessions.open(ask(HI))
    told = asyncio.Event()
    response.listen(told.set)
    assert response.take() == []
    told.clear()  # the lost turn was closed
    await told.wait()
    assert response.take()[-2:] == [TextDelta("here"), TurnEnded()]
    assert [request.reopened for request, _ in house.backend.started] == [0, 1]


async def test_a_run_is_counted_whoever_reads() -> None:
    run = RunUsage(10, 2)
    house = House(PlayedTurn(TextDelta("a"), UsageReported(Usage(10, 2, run=run)), TurnEnded()))
    (await house.sessions.open(ask(HI))).take()
    assert [(told.model, told.usage, told.outcome) for told in house.runs] == [("model", run, "ended")]


USED = UsageReported(Usage(10, 2, run=RunUsage(10, 2)))
BYE = Message(Role.USER, (Text("go on"),))


async def test_every_run_is_told_once_and_what_cursor_did_not_count_is_not_guessed() -> None:
    """A run that spans two responses, one that failed, one that nobody came back for, one whose client hung up."""
    spans = PlayedTurn()
    spans.say(TurnStarted(conversation="theirs"), *called("1"), TurnPaused())
    failed = PlayedTurn(TurnFailed(GatewayError(ErrorKind.QUOTA, "spent", code="usage_spent")))
    house = House(spans, failed, PlayedTurn(*called("2"), TurnPaused()), PlayedTurn(), disconnect_grace=0.0)
    origin = RequestOrigin(Caller("laptop", "opencode"), "req_1", "openai_chat", "asked")
    tickets = calls_in(await house.sessions.open(ask(HI), origin))
    assert house.runs == [], "it is parked"
    response = await house.sessions.open(after(tickets), RequestOrigin(request_id="req_2"))
    spans.say(TextDelta("done"), USED, TurnEnded())
    response.take()
    (run,) = house.runs
    assert (run.origin, run.responses, run.session, run.upstream) == (origin, 2, "fresh", "theirs")
    assert (run.usage, run.outcome, run.error, run.again) == (RunUsage(10, 2), "ended", "", False)
    assert run.run == response.live.tickets.sid and 0 < run.started_at <= run.ended_at
    (await house.sessions.open(ask(HI))).take()
    (await house.sessions.open(ask(HI))).take()
    (await house.sessions.open(ask(HI))).close()
    async with asyncio.timeout(10):
        while len(house.runs) < 3:
            await asyncio.sleep(0)
    await house.sessions.aclose()
    told = [(one.outcome, one.usage, one.error) for one in house.runs[1:]]
    assert told == [("failed", None, "usage_spent"), ("hung_up", None, ""), ("shutdown", None, "")]
    assert len({one.run for one in house.runs}) == len({one.conversation for one in house.runs}) == 4


async def test_a_total_that_comes_after_the_end_is_told_under_the_same_id() -> None:
    house = House(PlayedTurn(TextDelta("a")))
    response = await house.sessions.open(ask(HI))
    response.take()
    await house.sessions.aclose()
    house.sessions.settle(response.live, Happening.ENDED, Reply(usage=Usage(10, 2, run=RunUsage(10, 2))))
    first, second = house.runs
    assert (first.usage, first.again, second.usage, second.again) == (None, False, RunUsage(10, 2), True)
    assert first.run == second.run


async def test_each_total_of_a_turn_that_ends_at_every_pause_is_told() -> None:
    turn = PlayedTurn(*called("1"), USED, TurnPaused())
    house = House(turn)
    tickets = calls_in(await house.sessions.open(ask(HI)))
    response = await house.sessions.open(after(tickets))
    turn.say(TextDelta("done"), USED, TurnEnded())
    response.take()
    assert [(told.outcome, told.usage) for told in house.runs] == [
        ("paused", RunUsage(10, 2)),
        ("ended", RunUsage(10, 2)),
    ]
    assert len({told.run for told in house.runs}) == 2


async def test_a_conversation_keeps_its_id() -> None:
    """Continued, resumed, replayed instead of a parked turn, and replayed because nothing is known any more."""
    turns = [PlayedTurn(TextDelta("hello"), TurnEnded(), snapshot=KEPT)]
    turns += [PlayedTurn(*called(str(number)), TurnPaused()) for number in range(3)]
    house = House(*turns)
    first = await house.sessions.open(ask(HI))
    first.take()
    more = ask(HI, Message(Role.ASSISTANT, (Text("hello"),)), BYE)
    continued = await house.sessions.open(more)
    unknown = await house.sessions.open(ask(HI, Message(Role.ASSISTANT, (Text("another answer"),)), BYE))
    tickets = calls_in(unknown)
    house.turns[2].lost = True
    lost = await house.sessions.open(after(tickets))
    assert [one.label for one in (first, continued, unknown, lost)] == ["fresh", "continued", "replayed", "replayed"]
    assert len({one.live.account.conversation for one in (first, continued, unknown, lost)}) == 1


async def test_closing_ends_every_turn_and_starts_none() -> None:
    running, parked = PlayedTurn(TextDelta("a")), PlayedTurn(*called("1"), TurnPaused())
    house = House(running, parked, PlayedTurn())
    response = await house.sessions.open(ask(HI))
    response.take()
    (await house.sessions.open(ask(HI))).take()
    await house.sessions.aclose()
    assert running.closed and parked.closed
    assert (house.sessions.live, house.sessions.parked) == (0, 0)
    failed = response.take()[-1]
    assert isinstance(failed, TurnFailed)
    assert failed.error.kind is ErrorKind.CANCELLED
    with pytest.raises(GatewayError) as refused:
        await house.sessions.open(ask(HI))
    assert failed.error.may_repeat and refused.value.may_repeat  # whoever starts next answers it
