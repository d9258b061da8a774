"""When another run answers instead, how often, and what a demanded call holds back."""

import asyncio
from dataclasses import dataclass, field

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    Recovered,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
)
from caretway.core.recovery import Cause, Rung
from caretway.core.request import ToolChoice
from caretway.sessions.live import LiveTurn
from caretway.sessions.second_try import MAX_HELD_EVENTS, MAX_RECOVERIES, SecondTry
from turns import GONE, PlayedTurn, called

from .played import ask, live

START = TurnStarted()
LOST = TurnFailed(GONE)
RAN = AgentActivity("bash make deploy")
DOWN = TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "down"))
REQUIRED = ToolChoice("required")
NO_CALL = "the model did not call a tool at first"
INCOMPLETE = "the kept conversation was incomplete"


async def fresh(reopened: int) -> LiveTurn:
    return live(PlayedTurn(TextDelta(f"after {reopened}")))


def second(choice: ToolChoice | None = None, *, may: bool = True) -> SecondTry:
    return SecondTry(ask(choice=choice), fresh if may else None)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    batches: list[list[Event]]
    verdicts: list[str | None]
    choice: ToolChoice = field(default_factory=ToolChoice)
    may: bool = True


CASES = [
    Case("words", [[START], [TextDelta("a")], [TurnEnded()]], [None, None, None]),
    Case("a failure of another kind", [[DOWN]], [None]),
    Case("a turn that is gone", [[LOST]], [INCOMPLETE]),
    Case("gone after it began", [[START], [LOST]], [None, INCOMPLETE]),
    Case("gone again and again: the budget", [[LOST], [LOST], [LOST]], [INCOMPLETE, INCOMPLETE, None]),
    Case("where none may be started", [[LOST]], [None], may=False),
    Case("a demanded call comes", [[START], called("1"), [TurnPaused()]], [None, None, None], REQUIRED),
    Case("words instead of a call", [[START, TextDelta("no"), TurnEnded()]], [NO_CALL], REQUIRED),
    Case("twice", [[TextDelta("no"), TurnEnded()]] * 2, [NO_CALL, None], REQUIRED),
    Case("words after a tool that ran here", [[START, RAN], [TextDelta("no"), TurnEnded()]], [None, None], REQUIRED),
    Case("gone after such a tool", [[START, RAN], [LOST]], [None, None], REQUIRED),
    Case("gone with such a tool", [[START, RAN, LOST]], [None]),
    Case("a call in the last batch", [[*called("1"), TurnEnded()]], [None], REQUIRED),
    Case("gone, and then no call", [[LOST], [LOST], [TurnEnded()]], [INCOMPLETE, INCOMPLETE, None], REQUIRED),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict(case: Case) -> None:
    one = second(case.choice, may=case.may)
    assert [one.judge(batch) for batch in case.batches] == case.verdicts


def test_what_a_client_sees_ends_it() -> None:
    one = second()
    one.judge([START])
    assert not one.shown
    one.judge([TextDelta("a")])
    assert one.shown


@pytest.mark.parametrize("cause", list(Cause))
def test_a_turn_that_decided_for_a_fresh_run_says_why(cause: Cause) -> None:
    one = second()
    one.recovered(Recovered(Rung.FRESH_RUN.value, cause.value, 1))
    assert one.judge([LOST])
    assert one.recoveries == [(Rung.FRESH_RUN.value, cause.value)], "and has counted it"


def test_the_turns_own_runs_take_from_the_same_budget() -> None:
    one = second()
    one.recovered(Recovered(Rung.SAME_RUN.value, Cause.CUT.value, 2))
    assert one.judge([LOST]) is None


def test_recoveries_are_bounded() -> None:
    one = second()
    for _ in range(MAX_RECOVERIES + 5):
        one.recovered(Recovered(Rung.SAME_RUN.value, Cause.CUT.value, 1))
    assert len(one.recoveries) == MAX_RECOVERIES


HELD: list[tuple[str, list[list[Event]], list[list[Event]], bool]] = [
    (
        "nothing before the call",
        [[START], [TextDelta("let me see")], called("1")],
        [[], [], [START, TextDelta("let me see"), *called("1")]],
        False,
    ),
    ("a failure is shown", [[START, TextDelta("a")], [DOWN]], [[], [START, TextDelta("a"), DOWN]], True),
    ("so is a pause", [[START], [TurnPaused()]], [[], [START, TurnPaused()]], True),
]


@pytest.mark.parametrize(("name", "batches", "shown", "still"), HELD, ids=[row[0] for row in HELD])
def test_holding(name: str, batches: list[list[Event]], shown: list[list[Event]], still: bool) -> None:
    one = second(REQUIRED)
    assert [one.hold(batch) for batch in batches] == shown
    assert (one.must_call, one.shown) == (still, not still)


def test_an_end_without_a_call_is_an_error_and_the_words_are_gone() -> None:
    one = second(REQUIRED)
    one.hold([START, TextDelta("words")])
    begun, failed = one.hold([TurnEnded()])
    assert begun == START
    assert isinstance(failed, TurnFailed)
    assert failed.error.kind is ErrorKind.UPSTREAM_ERROR


def test_a_tool_that_ran_without_the_client_is_not_run_again_by_a_retry() -> None:
    one = second(REQUIRED)
    batch: list[Event] = [START, RAN, TextDelta("done"), TurnEnded()]
    one.judge(batch)
    failed = one.hold(batch)[-1]
    assert isinstance(failed, TurnFailed)
    assert "answered in text." in failed.error.message
    assert not failed.error.may_repeat


def test_what_is_held_is_bounded() -> None:
    one = second(REQUIRED)
    assert not one.overfull(MAX_HELD_EVENTS)
    one.hold([START])
    assert one.overfull(MAX_HELD_EVENTS)


def test_without_tools_no_call_can_be_demanded() -> None:
    request = ask(choice=REQUIRED)
    assert SecondTry(request, None).must_call
    assert not SecondTry(type(request)("model", request.messages, (), REQUIRED), None).must_call


async def test_the_fresh_run_is_told_how_many_there_were() -> None:
    outcomes: list[LiveTurn | Exception] = []
    one = second()
    one.judge([LOST])
    one.start(outcomes.append)
    while one.starting is not None:
        await asyncio.sleep(0)
    (outcome,) = outcomes
    assert isinstance(outcome, LiveTurn)
    assert outcome.turn.take() == [START, TextDelta("after 1")]


async def test_the_words_of_a_run_that_did_not_call_are_not_said() -> None:
    one = second(REQUIRED)
    one.hold([START])
    one.hold([TextDelta("no")])
    assert one.judge([TurnEnded()])
    one.start(lambda _: None)
    assert one.hold(called("1")) == [START, *called("1")]
    one.cancel()


async def test_a_run_that_cannot_be_started_is_an_outcome_too() -> None:
    async def full(reopened: int) -> LiveTurn:
        raise GatewayError(ErrorKind.OVERLOADED, "no place")

    outcomes: list[LiveTurn | Exception] = []
    one = SecondTry(ask(), full)
    one.start(outcomes.append)
    while one.starting is not None:
        await asyncio.sleep(0)
    (outcome,) = outcomes
    assert isinstance(outcome, GatewayError)
    assert outcome.kind is ErrorKind.OVERLOADED


async def test_a_run_that_nobody_waits_for_is_not_started() -> None:
    never = asyncio.Event()

    async def slow(reopened: int) -> LiveTurn:
        await never.wait()
        raise AssertionError("nobody waits")

    outcomes: list[LiveTurn | Exception] = []
    one = SecondTry(ask(), slow)
    one.start(outcomes.append)
    await asyncio.sleep(0)
    one.cancel()
    while one.starting is not None:
        await asyncio.sleep(0)
    assert outcomes == []
