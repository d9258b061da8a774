"""The simulated dashboard leaves zeros out, writes times as texts, and knows pages."""

from typing import Any

import pytest

from caretway.cursor.wire.envelope import ConnectError
from caretway_sim import accounts
from caretway_sim.accounts import Person
from caretway_sim.manners import Manners
from caretway_sim.shared import BilledRun, Shared

ME = Person("me")


def world(**switches: Any) -> Shared:
    there = Shared(Manners(**switches), clock=lambda: 100.0)
    for second in range(1, 6):
        there.billed.add(BilledRun("me", second * 1000, "m", f"c{second}", 2000, 0, 100))
    there.billed.add(BilledRun("other", 3000, "m", "theirs", 1, 1, 1))
    return there


def events(there: Shared, **asked: Any) -> tuple[list[str], int | None]:
    told = accounts.usage_events(there, ME, asked)
    assert isinstance(told, dict)
    return [row["conversationId"] for row in told.get("usageEventsDisplay", [])], told.get("totalUsageEventsCount")


PAGES: list[tuple[dict[str, Any], list[str], int | None]] = [
    ({}, ["c5", "c4", "c3", "c2", "c1"], 5),
    ({"page": 1, "pageSize": 2}, ["c5", "c4"], 5),
    ({"page": 3, "pageSize": 2}, ["c1"], 5),
    ({"page": 4, "pageSize": 2}, [], 5),
    ({"startDate": "2000", "endDate": 4000}, ["c4", "c3", "c2"], 3),
    ({"startDate": "9000"}, [], None),
    ({"page": "x", "pageSize": -1, "startDate": True}, ["c5", "c4", "c3", "c2", "c1"], 5),
]


@pytest.mark.parametrize(("asked", "shown", "total"), PAGES)
def test_pages_of_events(asked: dict[str, Any], shown: list[str], total: int | None) -> None:
    assert events(world(), **asked) == (shown, total)


def test_dates_that_are_ignored_and_events_that_are_late() -> None:
    assert events(world(events_ignore_dates=True), startDate="4000", pageSize=2) == (["c5", "c4"], None)
    assert events(world(usage_lag_s=97)) == (["c3", "c2", "c1"], 3)


def test_what_an_event_tells() -> None:
    told = accounts.usage_events(world(), ME, {"pageSize": 1})
    assert isinstance(told, dict)
    (row,) = told["usageEventsDisplay"]
    assert row["timestamp"] == "5000" and "chargedCents" not in row
    assert row["tokenUsage"] == {"inputTokens": 2000, "outputTokens": 100, "totalCents": 0.125}


PLANS = [("pro", 2000, "Pro"), ("ultra", 40_000, "Ultra"), ("unheard_of", 2000, "Pro")]


@pytest.mark.parametrize(("plan", "limit", "name"), PLANS)
def test_a_plan(plan: str, limit: int, name: str) -> None:
    person = Person("me", spent=0, plan=plan)
    usage = accounts.period_usage(world(), person, {})
    assert isinstance(usage, dict)
    assert usage["planUsage"] == {"remaining": limit, "limit": limit}, "zeros are left out"
    info = accounts.plan_info(world(), person, {})["planInfo"]
    assert (info["planName"], info["includedAmountCents"]) == (name, limit)
    assert accounts.teams(world(), person, {}) == {}


def test_a_seat() -> None:
    seat = Person("me", team=42)
    alone = accounts.period_usage(world(), seat, {})
    assert isinstance(alone, dict)
    assert "planUsage" not in alone and alone["billingCycleStart"] == alone["billingCycleEnd"]
    assert isinstance(accounts.period_usage(world(), seat, {"teamId": 42}), dict)
    assert isinstance(accounts.period_usage(world(), seat, {"teamId": 43}), ConnectError)
    assert isinstance(accounts.usage_events(world(), seat, {"teamId": 43}), ConnectError)
