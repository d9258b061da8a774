"""A budget as a value and as text (`runs=50/day`, `conversation.tokens=2M`): scope, measure, limit, period. Also spent
amounts, and the start and end of a period. Pure; callers pass time and zone.

Periods are days of the user's time zone and months of Cursor's billing cycle (calendar months if the cycle is unknown).
Counts are kept per day and a period is a sum of whole days, so no count is lost when the billing cycle becomes known
within a month.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from enum import Enum
from operator import add, sub
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from ..core.errors import OWN_BUDGET, ErrorKind, GatewayError


class BudgetScope(Enum):
    KEY = "key"
    EVERYBODY = "everybody"
    CONVERSATION = "conversation"
    RUN = "run"


class Measure(Enum):
    RUNS = "runs"
    TOKENS = "tokens"
    """All tokens that models read and wrote."""
    UNCACHED = "uncached"
    """All tokens except those read from a cache."""
    CENTS = "cents"


class Period(Enum):
    DAY = "day"
    MONTH = "month"
    ALL = "all"


class UsageBudget(Struct, frozen=True):
    scope: BudgetScope
    measure: Measure
    limit: float
    period: Period = Period.ALL

    def __str__(self) -> str:
        """The budget as users type it."""
        amount = f"{self.measure.value}={self.limit:.15g}"
        per = "" if self.period is Period.ALL else f"/{self.period.value}"
        return f"{self.scope.value}.{amount}{per}"


class Spent(Struct, frozen=True):
    runs: int = 0
    tokens: int = 0
    uncached: int = 0
    cents: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(*map(sub, astuple(self), astuple(other)))

    def of(self, measure: Measure) -> float:
        return float(getattr(self, measure.value))


NOTHING_SPENT: Final = Spent()
EXPECTED: Final = (
    "budgets such as runs=50/day, tokens=2M/month, uncached=500k, cents=500/month, "
    "conversation.runs=20 or run.tokens=300k"
)
_TEXT: Final = (
    r"(?a)(?:(?P<scope>[a-z]+)\.)?(?P<measure>[a-z]+)="
    r"(?P<amount>\d+(?:\.\d+)?)(?P<unit>[kKmM]?)(?:/(?P<period>[a-z]+))?"
)
_UNITS: Final = {"": 1, "k": 1000, "m": 1_000_000}
MOST: Final = 1e15
"""The largest amount of a budget: floats above this are not exact."""


def parse_budget(text: str, scope: BudgetScope) -> UsageBudget:
    """The budget that the text describes. `scope` applies if the text names none. Raises ValueError with a sentence."""
    parts = re.fullmatch(_TEXT, text.strip())
    if parts is None:
        raise ValueError(f'"{text.strip()[:60]}" is no budget; expected {EXPECTED}')
    whose = _word(BudgetScope, parts["scope"]) if parts["scope"] else scope
    period = _word(Period, parts["period"]) if parts["period"] else Period.ALL
    budget = UsageBudget(whose, _word(Measure, parts["measure"]), _amount(parts), period)
    if whose is BudgetScope.RUN and (period is not Period.ALL or budget.measure is Measure.RUNS):
        raise ValueError(f'"{text.strip()[:60]}": one run has tokens, uncached tokens or cents, and no period')
    if budget.measure is not Measure.CENTS and budget.limit != int(budget.limit):
        raise ValueError(f'"{text.strip()[:60]}": {budget.measure.value} are whole numbers')
    return budget


def parse_budgets(texts: Iterable[str], scope: BudgetScope) -> tuple[UsageBudget, ...]:
    return tuple(dict.fromkeys(parse_budget(text, scope) for text in texts))


Choice = TypeVar("Choice", BudgetScope, Measure, Period)


def _word(choices: type[Choice], word: str) -> Choice:
    try:
        return choices(word)
    except ValueError:
        known = ", ".join(choice.value for choice in choices)
        raise ValueError(f'"{word[:40]}" is not one of {known}') from None


def _amount(parts: re.Match[str]) -> float:
    amount = float(parts["amount"]) * _UNITS[parts["unit"].lower()]
    if amount > MOST:
        raise ValueError(f"{parts['amount'][:40]} is too much for a budget")
    return amount


# ---- periods

EVER: Final = ""
"""The first day of a period without a beginning; sorts before every day."""


class BillingCycle(Struct, frozen=True):
    starts_at: float
    ends_at: float


class Window(Struct, frozen=True):
    since: str
    """The first day, such as `2026-11-17`; `EVER` if there is none."""
    resets_at: float | None
    """Unix seconds; None if the period never ends."""


def day_of(now: float, zone: tzinfo | None = None) -> str:
    """The current day. `zone` None is the machine's time zone."""
    return _local(now, zone).date().isoformat()


def window(period: Period, now: float, cycle: BillingCycle | None = None, zone: tzinfo | None = None) -> Window:
    today = _local(now, zone).date()
    if period is Period.DAY:
        return Window(today.isoformat(), _midnight(today + timedelta(days=1), zone))
    if period is Period.ALL:
        return Window(EVER, None)
    if cycle is not None and cycle.starts_at <= now < cycle.ends_at:
        return Window(day_of(cycle.starts_at, zone), cycle.ends_at)
    first_day = _local(cycle.starts_at, zone).day if cycle is not None else 1
    first = _on(today.year, today.month, first_day)
    if first > today:
        first = _on(today.year, today.month - 1, first_day)
    return Window(first.isoformat(), _midnight(_on(first.year, first.month + 1, first_day), zone))


def _on(year: int, month: int, day: int) -> date:
    """The date, moved to the month's last day if the month is shorter. Months 0 and 13 belong to the adjacent years."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    last = (date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)).day
    return date(year, month, min(day, last))


def _local(now: float, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(now, zone)


def _midnight(day: date, zone: tzinfo | None) -> float:
    return datetime.combine(day, time(), zone).timestamp()


# ---- verdict

# The verdict on a new run: allowed, allowed with a warning (from 80 % on), or refused, with the reason, the sentence
# for clients and the reset time. Pure.

WARN_FROM: Final = 0.8
CODE: Final = "insufficient_quota"


class Level(Struct, frozen=True):
    """How much of a budget is used."""

    budget: UsageBudget
    spent: float
    resets_at: float | None = None
    name: str = ""
    """The name of the key, for people."""

    @property
    def share(self) -> float:
        return self.spent / self.budget.limit if self.budget.limit else 1.0

    @property
    def used_up(self) -> bool:
        return self.spent >= self.budget.limit

    @property
    def low(self) -> bool:
        return self.share >= WARN_FROM


def refused_by(levels: Sequence[Level]) -> Level | None:
    """The used-up budget that forbids runs for the longest time."""
    empty = [level for level in levels if level.used_up]
    return max(empty, key=lambda level: float("inf") if level.resets_at is None else level.resets_at, default=None)


def lowest(levels: Sequence[Level]) -> Level | None:
    """The budget to warn about: the low one with the largest used share."""
    return max((level for level in levels if level.low), key=lambda level: level.share, default=None)


def refusal(level: Level, zone: tzinfo | None = None) -> GatewayError:
    """The error that clients show."""
    return GatewayError(
        ErrorKind.QUOTA,
        f"The gateway's budget {whose(level)} is used up: {used(level)}.{resets(level, zone)}",
        hint=f"The administrator can raise it ({level.budget}).",
        code=CODE,
        reason=OWN_BUDGET,
        repeatable=False,
    )


def notice(level: Level) -> str:
    """The usage of a budget, for the header and the log."""
    return f"{whose(level)}: {used(level)} ({math.floor(level.share * 100)} %)"


def whose(level: Level) -> str:
    return _WHOSE[level.budget.scope] + (f" {level.name}" if level.name else "")


def used(level: Level) -> str:
    """`41 of 50 runs today`, `$4.10 of $5.00 this month`"""
    measure, limit = level.budget.measure, level.budget.limit
    spent = amount(level.spent, measure).partition(" ")[0]
    return f"{spent} of {amount(limit, measure)} {_PER[level.budget.period]}".rstrip()


def resets(level: Level, zone: tzinfo | None = None) -> str:
    if level.resets_at is None:
        return ""
    return f" It resets on {datetime.fromtimestamp(level.resets_at, zone):%Y-%m-%d at %H:%M}."


def amount(number: float, measure: Measure) -> str:
    """A number with its unit, as in `1,234 tokens` or `$5.00`."""
    if measure is Measure.CENTS:
        return f"${number / 100:,.2f}"
    word = _WORDS[measure]
    return f"{round(number):,} {word.removesuffix('s') if round(number) == 1 else word}"


_WORDS: Final = {Measure.RUNS: "runs", Measure.TOKENS: "tokens", Measure.UNCACHED: "uncached tokens"}
_PER: Final = {Period.DAY: "today", Period.MONTH: "this month", Period.ALL: ""}
_WHOSE: Final = {
    BudgetScope.KEY: "for the key",
    BudgetScope.EVERYBODY: "for everybody",
    BudgetScope.CONVERSATION: "for this conversation",
    BudgetScope.RUN: "for one run",
}
