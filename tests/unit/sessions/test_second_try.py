"""When another run answers instead, how often, and what a demanded call holds back."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from caretway.core.errors import OWN_BUDGET, ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    Note,
    Recovered,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
)
from caretway.core.recovery import Loss, Remedy
from caretway.core.request import Message, ModelChoice, ModelFallback, Role, SessionMode, Text, ToolChoice, TurnRequest
from caretway.core.turn import Snapshot
from caretway.sessions.plan import Parked
from caretway.sessions.second_try import (
    MAX_HELD_EVENTS,
    MAX_RECOVERIES,
    SecondTry,
    after_refusal,
    going_on,
    leads_on,
)
from turns import GONE, PlayedTurn, called

from .played import ask
from .test_manager import HI, KEPT, House

THEN = tuple(
    [ModelFallback(name, (("effort", "low"),), ModelChoice(name, why="an alias")) for name in ("next", "last")]
)
SPENT = GatewayError(ErrorKind.QUOTA, "spent")
RUNG = "next model"
REASON = "Cursor refused the model; its alias or the request names another"


def next_request(request: TurnRequest, error: GatewayError) -> TurnRequest | None:
    following = after_refusal(request, error)
    return following and following[0]


REFUSALS: list[tuple[ErrorKind, dict[str, Any], bool]] = [
    (ErrorKind.QUOTA, {}, True),
    (ErrorKind.QUOTA, {"code": "insufficient_quota", "reason": OWN_BUDGET}, False),
    (ErrorKind.MODEL_UNKNOWN, {}, True),
    (ErrorKind.FORBIDDEN, {"code": "plan_or_team_refused"}, True),
    (ErrorKind.FORBIDDEN, {"code": "model_blocked"}, True),
    (ErrorKind.FORBIDDEN, {"code": "region_refused"}, False),
    (ErrorKind.FORBIDDEN, {}, False),
    *[(kind, {}, False) for kind in ErrorKind if kind.value not in ("quota", "model_unknown", "forbidden")],
]


@pytest.mark.parametrize(("kind", "more", "leads"), REFUSALS)
def test_which_refusals_lead_on(kind: ErrorKind, more: dict[str, Any], leads: bool) -> None:
    error = GatewayError(kind, "no", **more)
    assert leads_on(error) is leads
    assert (next_request(ask(fallbacks=THEN), error) is not None) is leads
    assert next_request(ask(), error) is None


def test_each_model_is_asked_once_and_says_whose_place_it_takes() -> None:
    first = ask(fallbacks=THEN)
    second = next_request(first, SPENT)
    assert second is not None
    assert (second.model, second.parameters, second.fallbacks) == ("next", (("effort", "low"),), THEN[1:])
    assert (second.choice.instead_of, second.choice.why) == ("model", "an alias; model was refused (quota)")
    assert second.messages is first.messages
    third = next_request(second, SPENT)
    assert third is not None
    assert (third.model, third.fallbacks, third.choice.instead_of) == ("last", (), "next")
    assert next_request(third, SPENT) is None


@pytest.mark.parametrize(
    ("has_it", "model", "left"),
    [("model", "model", 2), ("next", "next", 1), ("last", "last", 0), ("another", "model", 2)],
)
def test_a_turn_stays_with_the_model_that_has_it(has_it: str, model: str, left: int) -> None:
    parked = Parked.starting(TurnRequest(has_it, ()), ())
    found = going_on(ask(fallbacks=THEN), [parked])
    assert (found.model, len(found.fallbacks)) == (model, left)


BEFORE: list[tuple[str, list[Event], bool, str | None]] = [
    ("at once", [], False, REASON),
    ("after it began", [TurnStarted()], False, REASON),
    ("after a word", [TurnStarted(), TextDelta("a")], False, None),
    ("after the headers", [TurnStarted()], True, None),
]


@pytest.mark.parametrize(("name", "before", "opened", "verdict"), BEFORE, ids=[row[0] for row in BEFORE])
def test_only_before_the_first_byte(name: str, before: list[Event], opened: bool, verdict: str | None) -> None:
    one = SecondTry(ask(fallbacks=THEN), fixed=False)
    one.opened = opened
    assert one.judge([*before, TurnFailed(SPENT)]) == verdict
    assert one.request.model == ("next" if verdict else "model")
    assert one.recoveries == ([(RUNG, "quota")] if verdict else [])


def test_not_where_no_other_run_may_answer() -> None:
    assert SecondTry(ask(fallbacks=THEN), fixed=True).judge([TurnFailed(SPENT)]) is None


class Refusing:
    """A backend's `start` that does not know a model, as that of `cli` says before there is a turn."""

    def __init__(self, house: House, *models: str) -> None:
        self.asked: list[str] = []
        self._models = models
        self._start = house.backend.start
        house.backend.start = self.start  # type: ignore[method-assign]  # only that is another

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> PlayedTurn:
        self.asked.append(request.model)
        if request.model in self._models:
            raise GatewayError(ErrorKind.MODEL_UNKNOWN, "no such model")
        return await self._start(request, snapshot)


async def test_a_backend_that_refuses_before_there_is_a_turn() -> None:
    house = House(PlayedTurn(TextDelta("hello"), TurnEnded()))
    refusing = Refusing(house, "model", "next")
    response = await house.sessions.open(ask(fallbacks=THEN))
    assert refusing.asked == ["model", "next", "last"]
    assert (response.request.model, response.label, response.reason) == ("last", "fresh", REASON)
    assert response.recoveries == [(RUNG, "model_unknown")] * 2
    response.take()
    assert [run.model for run in house.runs] == ["last"], "what was refused was no run"


async def test_nothing_takes_the_place_of_a_conversation_that_is_required() -> None:
    house = House(PlayedTurn(TextDelta("hello"), TurnEnded(), snapshot=KEPT))
    (await house.sessions.open(ask(HI))).take()
    refusing = Refusing(house, "model")
    more = (HI, Message(Role.ASSISTANT, (Text("hello"),)), Message(Role.USER, (Text("go on"),)))
    with pytest.raises(GatewayError):
        await house.sessions.open(ask(*more, fallbacks=THEN, session=SessionMode.REQUIRED))
    assert refusing.asked == ["model"]


START = TurnStarted()
LOST = TurnFailed(GONE)
RAN = AgentActivity("bash make deploy")
DOWN = TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "down"))
REQUIRED = ToolChoice("required")
NAMED = ToolChoice("named", "write")
NO_CALL = "the model did not call a tool at first"
NOT_WRITE = "the model did not call write at first"
GONE_WORDS = "the turn or its conversation could not be continued"


def second(choice: ToolChoice | None = None, *, may: bool = True) -> SecondTry:
    return SecondTry(ask(choice=choice), fixed=not may)


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
    Case("a turn that is gone", [[LOST]], [GONE_WORDS]),
    Case("gone after it began", [[START], [LOST]], [None, GONE_WORDS]),
    Case("gone again and again: the budget", [[LOST], [LOST], [LOST]], [GONE_WORDS, GONE_WORDS, None]),
    Case("where none may be started", [[LOST]], [None], may=False),
    Case("a demanded call comes", [[START], called("1"), [TurnPaused()]], [None, None, None], REQUIRED),
    Case("words instead of a call", [[START, TextDelta("no"), TurnEnded()]], [NO_CALL], REQUIRED),
    Case("twice", [[TextDelta("no"), TurnEnded()]] * 2, [NO_CALL, None], REQUIRED),
    Case("words after a tool that ran here", [[START, RAN], [TextDelta("no"), TurnEnded()]], [None, None], REQUIRED),
    Case("gone after such a tool", [[START, RAN], [LOST]], [None, None], REQUIRED),
    Case("gone with such a tool", [[START, RAN, LOST]], [None]),
    Case("a call in the last batch", [[*called("1"), TurnEnded()]], [None], REQUIRED),
    Case("the named call", [[START], called("1", "write"), [TurnPaused()]], [None, None, None], NAMED),
    Case("words instead of the named call", [[START, TextDelta("no"), TurnEnded()]], [NOT_WRITE], NAMED),
    Case("gone, and then no call", [[LOST], [LOST], [TurnEnded()]], [GONE_WORDS, GONE_WORDS, None], REQUIRED),
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


@pytest.mark.parametrize("cause", list(Loss))
def test_a_turn_that_decided_for_a_fresh_run_says_why(cause: Loss) -> None:
    one = second()
    one.recovered(Recovered(Remedy.FRESH_RUN.label, cause.label, 1))
    assert one.judge([LOST])
    assert one.recoveries == [(Remedy.FRESH_RUN.label, cause.label)], "and has counted it"


def test_the_turns_own_runs_take_from_the_same_budget() -> None:
    one = second()
    one.recovered(Recovered(Remedy.SAME_RUN.label, Loss.CUT.label, 2))
    assert one.judge([LOST]) is None


def test_recoveries_are_bounded() -> None:
    one = second()
    for _ in range(MAX_RECOVERIES + 5):
        one.recovered(Recovered(Remedy.SAME_RUN.label, Loss.CUT.label, 1))
    assert len(one.recoveries) == MAX_RECOVERIES


HELD: list[tuple[str, list[list[Event]], list[list[Event]], bool]] = [
    (
        "nothing before the call",
        [[START], [TextDelta("let me see")], called("1")],
        [[], [], [START, TextDelta("let me see"), *called("1")]],
        False,
    ),
    ("a failure is shown", [[START, TextDelta("a")], [DOWN]], [[], [START, TextDelta("a"), DOWN]], True),
]


@pytest.mark.parametrize(("name", "batches", "shown", "still"), HELD, ids=[row[0] for row in HELD])
def test_holding(name: str, batches: list[list[Event]], shown: list[list[Event]], still: bool) -> None:
    one = second(REQUIRED)
    assert [one.hold(batch) for batch in batches] == shown
    assert (one.must_call, one.shown) == (still, not still)


NOTES: list[tuple[str, ToolChoice, list[Event], str]] = [
    ("words", REQUIRED, [TextDelta("no"), TurnEnded()], "a call of a tool; the model answered in words twice"),
    ("words, a name", NAMED, [TextDelta("no"), TurnEnded()], "of the tool `write`; the model answered in words twice"),
]


@pytest.mark.seed("F22")
@pytest.mark.parametrize(("name", "choice", "answer", "note"), NOTES, ids=[row[0] for row in NOTES])
def test_after_two_tries_there_is_what_there_is_and_a_note(
    name: str, choice: ToolChoice, answer: list[Event], note: str
) -> None:
    one = second(choice)
    assert one.judge(answer) and one.judge(answer) is None
    *shown, noted, last = one.hold(answer)
    assert [*shown, last] == answer
    assert isinstance(noted, Note) and noted.key == "tool_choice" and noted.value == one.note
    assert one.note.endswith(note)


def test_a_second_run_that_fails_leaves_the_words_of_the_first() -> None:
    one = second(REQUIRED)
    one.hold([START, TextDelta("w")])
    assert one.judge([TextDelta("ords"), TurnEnded()])
    one.hold([TextDelta("o")])
    assert one.judge([DOWN]) is None
    noted = Note("tool_choice", one.note or "the request demands a call of a tool; the model answered in words")
    assert one.hold([DOWN]) == [START, TextDelta("w"), TextDelta("ords"), noted, TurnEnded()]


def test_a_tool_that_ran_without_the_client_is_not_run_again_by_a_retry() -> None:
    one = second(REQUIRED)
    batch: list[Event] = [START, RAN, TextDelta("done"), TurnEnded()]
    assert one.judge(batch) is None
    assert one.hold(batch)[:3] == batch[:3]
    assert one.note.endswith("the model answered in words")


def test_what_is_held_is_bounded() -> None:
    one = second(REQUIRED)
    assert not one.overfull(MAX_HELD_EVENTS)
    one.hold([START])
    assert one.overfull(MAX_HELD_EVENTS)


def test_without_tools_no_call_can_be_demanded() -> None:
    request = ask(choice=REQUIRED)
    assert SecondTry(request, fixed=True).must_call
    assert not SecondTry(type(request)("model", request.messages, (), REQUIRED), fixed=True).must_call


def test_the_words_of_a_run_that_did_not_call_are_not_said() -> None:
    one = second(REQUIRED)
    one.hold([START])
    one.hold([TextDelta("no")])
    assert one.judge([TurnEnded()])
    one.begins_again()
    assert one.hold(called("1")) == [START, *called("1")]
