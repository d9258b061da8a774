"""Which refusals lead to the next model of an alias, and what is asked of it."""

from typing import Any

import pytest

from caretway.core.errors import OWN_BUDGET, ErrorKind, GatewayError
from caretway.core.events import Event, TextDelta, TurnEnded, TurnFailed, TurnStarted
from caretway.core.request import Message, ModelChoice, ModelFallback, Role, SessionMode, Text, TurnRequest
from caretway.core.turn import Snapshot
from caretway.sessions.fallback import REASON, RUNG, going_on, leads_on, next_request
from caretway.sessions.live import LiveTurn
from caretway.sessions.plan import Parked
from caretway.sessions.second_try import SecondTry
from turns import PlayedTurn

from .played import ask, live
from .test_manager import HI, KEPT, House

THEN = tuple(
    [ModelFallback(name, (("effort", "low"),), ModelChoice(name, why="an alias")) for name in ("next", "last")]
)
SPENT = GatewayError(ErrorKind.QUOTA, "spent")

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


async def never(_reopened: int, _request: TurnRequest) -> LiveTurn:
    return live(PlayedTurn())


BEFORE: list[tuple[str, list[Event], bool, str | None]] = [
    ("at once", [], False, REASON),
    ("after it began", [TurnStarted()], False, REASON),
    ("after a word", [TurnStarted(), TextDelta("a")], False, None),
    ("after the headers", [TurnStarted()], True, None),
]


@pytest.mark.parametrize(("name", "before", "opened", "verdict"), BEFORE, ids=[row[0] for row in BEFORE])
def test_only_before_the_first_byte(name: str, before: list[Event], opened: bool, verdict: str | None) -> None:
    one = SecondTry(ask(fallbacks=THEN), never)
    one.opened = opened
    assert one.judge([*before, TurnFailed(SPENT)]) == verdict
    assert one.request.model == ("next" if verdict else "model")
    assert one.recoveries == ([(RUNG, "quota")] if verdict else [])


def test_not_where_no_other_run_may_answer() -> None:
    assert SecondTry(ask(fallbacks=THEN), None).judge([TurnFailed(SPENT)]) is None


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
