"""The dashboard's answers as others recorded them, read; and whatever else may come, without failing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.account_usage import OnDemand, PeriodUsage, PlanInfo, PlanUsage, TeamSeat, UsageEvent, UsageEvents
from caretway.cursor.transport.usage_api import (
    read_events,
    read_object,
    read_on_demand_allowed,
    read_period,
    read_plan,
    read_teams,
    read_total,
)

PERIODS: dict[str, tuple[dict[str, Any], PeriodUsage]] = {
    "a plan in the middle of its month": (
        {
            "billingCycleStart": "1768399334000",
            "billingCycleEnd": "1771077734000",
            "planUsage": {
                "totalSpend": 23222,
                "includedSpend": 23222,
                "remaining": 16778,
                "limit": 40000,
                "apiPercentUsed": 46.444,
                "totalPercentUsed": 15.48,
            },
            "spendLimitUsage": {"individualLimit": 10000, "individualRemaining": 9000, "individualUsed": 1000},
            "displayMessage": "46% is used",
            "autoBucketModels": ["default", "composer-2.5"],
        },
        PeriodUsage(
            1768399334.0,
            1771077734.0,
            PlanUsage(0.0, 46.444, 15.48, 23222.0, 23222.0, 0.0, 16778.0, 40000.0),
            OnDemand(False, 10000.0, 1000.0, 9000.0),
            "46% is used",
            ("default", "composer-2.5"),
        ),
    ),
    "spent, with a bonus: what remains is left out": (
        {
            "planUsage": {
                "totalSpend": 19146,
                "includedSpend": 2000,
                "bonusSpend": 17146,
                "limit": 2000,
                "autoPercentUsed": 97.3,
                "apiPercentUsed": 100,
            }
        },
        PeriodUsage(plan=PlanUsage(97.3, 100.0, 0.0, 19146.0, 2000.0, 17146.0, 0.0, 2000.0)),
    ),
    "a new month: every number is zero and left out": (
        {"planUsage": {"limit": 2000, "remaining": 2000}},
        PeriodUsage(plan=PlanUsage(0.0, 0.0, 0.0, remaining=2000.0, limit=2000.0)),
    ),
    "money without shares: nobody counts them": (
        {"planUsage": {"totalSpend": 13400, "remaining": 6600, "limit": 20000}},
        PeriodUsage(plan=PlanUsage(spent=13400.0, remaining=6600.0, limit=20000.0)),
    ),
    "money without shares, and what was spent is left out": (
        {"planUsage": {"remaining": 500, "limit": 2000}},
        PeriodUsage(plan=PlanUsage(remaining=500.0, limit=2000.0)),
    ),
    "numbers as texts, dates as dates": (
        {"billingCycleEnd": "2026-02-14T12:42:14.000Z", "planUsage": {"totalSpend": "1500", "limit": "4000"}},
        PeriodUsage(ends_at=1771072934.0, plan=PlanUsage(spent=1500.0, limit=4000.0)),
    ),
    "a team's pool": (
        {
            "planUsage": {"autoPercentUsed": 42},
            "spendLimitUsage": {"limitType": "team", "pooledLimit": 60000, "pooledUsed": 60000},
        },
        PeriodUsage(plan=PlanUsage(42.0, 0.0, 0.0), on_demand=OnDemand(True, 60000.0, 60000.0, 0.0)),
    ),
    "no limit at all": (
        {"spendLimitUsage": {"limitType": "user", "individualUsed": 500, "individualLimit": 2147483647}},
        PeriodUsage(on_demand=OnDemand(used=500.0, unlimited=True)),
    ),
    "a pool that does not say whose it is": (
        {"spendLimitUsage": {"pooledLimit": 500, "pooledRemaining": 20}},
        PeriodUsage(on_demand=OnDemand(True, 500.0, 0.0, 20.0)),
    ),
    "times beyond reason": (
        {"billingCycleStart": "9" * 14, "billingCycleEnd": "9999-12-31T00:00:00Z"},
        PeriodUsage(),
    ),
    "a seat": (
        {"billingCycleStart": "1785884859130", "billingCycleEnd": "1785884859130", "displayThreshold": 100},
        PeriodUsage(1785884859.13, 1785884859.13),
    ),
    "nothing": ({}, PeriodUsage()),
    "other shapes": (
        {
            "planUsage": [],
            "spendLimitUsage": "x",
            "autoBucketModels": {},
            "billingCycleEnd": "soon",
            "displayMessage": 3,
        },
        PeriodUsage(),
    ),
}


@pytest.mark.parametrize("name", PERIODS)
def test_a_period(name: str) -> None:
    told, read = PERIODS[name]
    assert read_period(read_object(json.dumps(told).encode())) == read


def test_which_pools_are_spent() -> None:
    spent = read_period(PERIODS["spent, with a bonus: what remains is left out"][0]).plan
    assert spent is not None
    assert (spent.cursor_models_spent, spent.other_models_spent) == (False, True)
    unknown = PlanUsage()
    assert not unknown.cursor_models_spent and not unknown.other_models_spent, "not told is not spent"


def test_a_seat_tells_nothing() -> None:
    assert read_period(PERIODS["a seat"][0], team=3).tells_nothing
    assert read_period({}, team=3).team == 3
    assert not read_period({"planUsage": {}}).tells_nothing


PLANS: list[tuple[Any, PlanInfo]] = [
    (
        {"planName": "Ultra", "includedAmountCents": 40000, "price": "$200/mo", "billingCycleEnd": "1771077734000"},
        PlanInfo("Ultra", 40000.0, "$200/mo", 1771077734.0),
    ),
    ({"planName": "Free", "price": "Free"}, PlanInfo("Free", price="Free")),
    ("none", PlanInfo()),
]


@pytest.mark.parametrize(("told", "plan"), PLANS)
def test_a_plan(told: Any, plan: PlanInfo) -> None:
    assert read_plan({"planInfo": told}) == plan


LIMITS: list[tuple[dict[str, Any], bool | None]] = [
    ({"noUsageBasedAllowed": True}, False),
    ({"noUsageBasedAllowed": True, "hardLimit": 50}, False),
    ({"hardLimit": 50}, True),
    ({"hardLimit": 0}, False),
    ({}, None),
]


@pytest.mark.parametrize(("told", "allowed"), LIMITS)
def test_spending_on_demand(told: dict[str, Any], allowed: bool | None) -> None:
    assert read_on_demand_allowed(told) is allowed


def test_teams() -> None:
    rows = [{"id": 42, "name": "Acme", "role": "TEAM_ROLE_MEMBER"}, {"id": "7"}, {"id": 0}, {"id": 1.5}, {}, 3]
    assert read_teams({"teams": rows}) == (TeamSeat(42, "Acme", "TEAM_ROLE_MEMBER"), TeamSeat(7))
    assert read_teams({}) == ()
    assert len(read_teams({"teams": [{"id": n + 1} for n in range(1000)]})) == 100


def test_events() -> None:
    row = {
        "timestamp": "1787727633431",
        "model": "composer-2.5",
        "kind": "USAGE_EVENT_KIND_INCLUDED_IN_PRO",
        "requestsCosts": 1,
        "conversationId": "c-1",
        "isHeadless": True,
        "chargedCents": 1.5,
        "tokenUsage": {"inputTokens": 10, "outputTokens": "20", "totalCents": 0.25},
    }
    bare = {"timestamp": 1787727633000, "model": "m"}
    events, rows = read_events({"usageEventsDisplay": [row, bare, {"timestamp": "never"}, 7]}, 10)
    assert rows == 3
    first = UsageEvent(
        1787727633.431, "composer-2.5", "c-1", "USAGE_EVENT_KIND_INCLUDED_IN_PRO", 10, 20, 0, 0, 0.25, 1.5, True
    )
    assert events == [first, UsageEvent(1787727633.0, "m")], "without tokenUsage nobody has counted"
    assert UsageEvents(tuple(events)).of("c-1") == (first,)
    assert read_events({"usageEventsDisplay": [bare] * 5}, 2)[1] == 2
    assert [read_total({"totalUsageEventsCount": n}) for n in (7, "8", None, "x", True)] == [7, 8, None, None, None]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "billingCycleStart",
        "billingCycleEnd",
        "planUsage",
        "spendLimitUsage",
        "limit",
        "individualLimit",
        "planInfo",
        "teams",
        "id",
        "usageEventsDisplay",
        "timestamp",
        "tokenUsage",
        "totalCents",
        "hardLimit",
        "totalUsageEventsCount",
    ]
)


@given(st.dictionaries(NAMES, ANYTHING | st.lists(st.dictionaries(NAMES, ANYTHING), max_size=3), max_size=6))
def test_no_answer_makes_it_fail(told: dict[str, Any]) -> None:
    read_period(told)
    read_plan(told)
    read_teams(told)
    read_events(told, 10)
    read_total(told)
    read_on_demand_allowed(told)


@pytest.mark.parametrize("body", [b"", b"[]", b"nothing", b"\xff", b"{", b"3"])
def test_what_is_no_object_is_empty(body: bytes) -> None:
    assert read_object(body) == {}
