"""Whether a run may be opened: allowed, allowed with a warning (from 80 % on), or refused, with the reason, the
sentence for clients and when it resets. Pure.

One rule for every measure: a run is refused when its budget is used up, and allowed as long as something is left. What
a run will cost is not known before; an estimate is counted while it is open.
"""

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final

from msgspec import Struct

from ...core.errors import OWN_BUDGET, ErrorKind, GatewayError
from .budget import BudgetScope, Measure, Period, UsageBudget

WARN_FROM: Final = 0.8
CODE: Final = "insufficient_quota"


class Level(Struct, frozen=True):
    """How much of a budget is used."""

    budget: UsageBudget
    spent: float
    resets_at: float | None = None
    name: str = ""
    """That of the key, for people."""

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
    """The budget that forbids a run; of several, the one that does so longest."""
    empty = [level for level in levels if level.used_up]
    return max(empty, key=lambda level: float("inf") if level.resets_at is None else level.resets_at, default=None)


def lowest(levels: Sequence[Level]) -> Level | None:
    """The budget to warn of: the one of which least is left."""
    return max((level for level in levels if level.low), key=lambda level: level.share, default=None)


def refusal(level: Level, zone: tzinfo | None = None) -> GatewayError:
    """The sentence that clients show."""
    return GatewayError(
        ErrorKind.QUOTA,
        f"The gateway's budget {whose(level)} is used up: {used(level)}.{resets(level, zone)}",
        hint=f"The administrator can raise it ({level.budget}).",
        code=CODE,
        reason=OWN_BUDGET,
        repeatable=False,
    )


def notice(level: Level) -> str:
    """For the header and the log: how much is used."""
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
    """`1,234 tokens`, `$5.00`: what people call it."""
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
