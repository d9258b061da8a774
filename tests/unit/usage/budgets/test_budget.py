"""Budgets as text and as values, what they come to, and when they begin again."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind
from caretway.usage.budget import (
    EVER,
    BillingCycle,
    BudgetScope,
    Level,
    Measure,
    Period,
    Spent,
    UsageBudget,
    Window,
    day_of,
    lowest,
    notice,
    parse_budget,
    parse_budgets,
    refusal,
    refused_by,
    window,
)

KEY, ALL = BudgetScope.KEY, BudgetScope.EVERYBODY
RUNS, TOKENS, CENTS = Measure.RUNS, Measure.TOKENS, Measure.CENTS
BERLIN, APIA = ZoneInfo("Europe/Berlin"), ZoneInfo("Pacific/Apia")


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("runs=50/day", UsageBudget(KEY, RUNS, 50, Period.DAY)),
        (" tokens=2M/month ", UsageBudget(KEY, TOKENS, 2_000_000, Period.MONTH)),
        ("uncached=1.5k", UsageBudget(KEY, Measure.UNCACHED, 1500)),
        ("cents=12.5/all", UsageBudget(KEY, CENTS, 12.5)),
        ("everybody.runs=0", UsageBudget(ALL, RUNS, 0)),
        ("conversation.runs=20", UsageBudget(BudgetScope.CONVERSATION, RUNS, 20)),
        ("run.tokens=300K", UsageBudget(BudgetScope.RUN, TOKENS, 300_000)),
    ],
)
def test_text(text: str, budget: UsageBudget) -> None:
    assert parse_budget(text, KEY) == budget
    assert parse_budget(str(budget), ALL) == budget, "what is shown can be typed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no budget"),
        ("runs", "is no budget"),
        ("runs=", "is no budget"),
        ("runs=-1", "is no budget"),
        ("runs=1e9", "is no budget"),
        ("runs=5/week", "not one of day, month, all"),
        ("requests=5", "not one of runs, tokens, uncached, cents"),
        ("team.runs=5", "not one of key, everybody"),
        ("runs=1.5", "whole numbers"),
        ("run.runs=1", "no period"),
        ("run.tokens=5/day", "no period"),
        ("tokens=9999999999999M", "too much"),
        ("runs=\u0665", "is no budget"),
    ],
)
def test_text_that_is_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_budget(text, KEY)


def test_the_same_budget_counts_once() -> None:
    assert len(parse_budgets(["runs=5", "key.runs=5", "runs=5/day"], KEY)) == 2


# ---- days and months


def at(text: str, zone: ZoneInfo) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("now", "zone", "day", "resets"),
    [
        ("2026-11-17T23:59:59", BERLIN, "2026-11-17", "2026-11-18T00:00"),
        ("2026-11-18T00:00:00", BERLIN, "2026-11-18", "2026-11-19T00:00"),
        ("2026-03-29T01:00:00", BERLIN, "2026-03-29", "2026-03-30T00:00"),  # of 23 hours
        ("2026-10-25T01:00:00", BERLIN, "2026-10-25", "2026-10-26T00:00"),  # of 25 hours
        ("2026-12-31T12:00:00", APIA, "2026-12-31", "2027-01-01T00:00"),
    ],
)
def test_a_day_is_one_of_the_users_zone(now: str, zone: ZoneInfo, day: str, resets: str) -> None:
    assert day_of(at(now, zone), zone) == day
    assert window(Period.DAY, at(now, zone), zone=zone) == Window(day, at(resets, zone))


CYCLE = BillingCycle(at("2026-11-05T13:40:00", BERLIN), at("2026-12-05T13:40:00", BERLIN))
LATE = BillingCycle(at("2026-01-31T08:00:00", BERLIN), at("2026-02-28T08:00:00", BERLIN))


@pytest.mark.parametrize(
    ("now", "cycle", "since", "resets"),
    [
        ("2026-11-17T12:00", None, "2026-11-01", "2026-12-01T00:00"),
        ("2026-12-31T12:00", None, "2026-12-01", "2027-01-01T00:00"),
        ("2026-11-17T12:00", CYCLE, "2026-11-05", "2026-12-05T13:40"),
        ("2026-12-05T13:39", CYCLE, "2026-11-05", "2026-12-05T13:40"),
        # The cycle that is known is over: the next one begins on the same day of the month.
        ("2026-12-20T12:00", CYCLE, "2026-12-05", "2027-01-05T00:00"),
        ("2027-01-02T12:00", CYCLE, "2026-12-05", "2027-01-05T00:00"),
        ("2026-02-28T09:00", LATE, "2026-02-28", "2026-03-28T00:00"),
        ("2026-04-30T09:00", LATE, "2026-04-30", "2026-05-30T00:00"),
    ],
)
def test_a_month_is_one_of_the_billing_cycle(now: str, cycle: BillingCycle | None, since: str, resets: str) -> None:
    found = window(Period.MONTH, at(now, BERLIN), cycle, BERLIN)
    assert found.since == since
    if cycle is not LATE:
        assert found.resets_at == at(resets, BERLIN)
    assert found.resets_at is not None
    assert found.resets_at > at(now, BERLIN)


def test_ever() -> None:
    assert window(Period.ALL, 0.0) == Window(EVER, None)
    assert EVER < "1970-01-01"


@given(st.floats(0, 4e9), st.floats(0, 4e9))
def test_a_period_holds_its_moment_and_ends_after_it(now: float, begun: float) -> None:
    for period in (Period.DAY, Period.MONTH):
        found = window(period, now, BillingCycle(begun, begun + 30 * 86400.0), UTC)
        assert found.since <= day_of(now, UTC)
        assert found.resets_at is not None
        assert now < found.resets_at < now + 63 * 86400


# ---- the verdict


def level(spent: float, limit: float = 50, resets_at: float | None = None, measure: Measure = RUNS) -> Level:
    return Level(UsageBudget(KEY, measure, limit, Period.DAY), spent, resets_at, "anna")


@pytest.mark.parametrize(
    ("spent", "low", "used_up"),
    [(0, False, False), (39, False, False), (40, True, False), (49, True, False), (50, True, True), (99, True, True)],
)
def test_the_rule(spent: float, low: bool, used_up: bool) -> None:
    found = level(spent)
    assert (found.low, found.used_up) == (low, used_up)


def test_nothing_is_allowed_by_a_budget_of_nothing() -> None:
    assert level(0, 0).used_up
    assert level(0, 0).share == 1.0


def test_of_several_the_one_that_lasts_longest_is_told() -> None:
    day, month, ever = level(50, 50, 100.0), level(60, 50, 200.0), level(51, 50, None)
    assert refused_by([day, month]) is month
    assert refused_by([ever, month]) is ever
    assert refused_by([level(1)]) is None
    assert lowest([level(41), level(45), level(1)]) == level(45)
    assert lowest([level(1)]) is None


def test_the_sentence() -> None:
    error = refusal(level(50, resets_at=at("2026-11-18T00:00", BERLIN)), BERLIN)
    assert error.kind is ErrorKind.QUOTA
    assert (error.code, error.reason, error.may_repeat) == ("insufficient_quota", "budget_exceeded", False)
    assert str(error) == (
        "The gateway's budget for the key anna is used up: 50 of 50 runs today. It resets on 2026-11-18 at 00:00. "
        "The administrator can raise it (key.runs=50/day)."
    )
    assert notice(level(412.3, 500, measure=CENTS)) == "for the key anna: $4.12 of $5.00 today (82 %)"


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0, 1e9))
def test_what_is_added_is_subtracted(runs: int, tokens: int, cents: float) -> None:
    one, other = Spent(runs, tokens, tokens // 2, cents), Spent(1, 2, 3, 0.0)
    assert one + other - other == one
