"""A budget as a value and as text (`runs=50/day`, `conversation.tokens=2M`): whose it is, what is measured, how much,
in which period. Also what was spent. Pure.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeVar

from msgspec import Struct


class BudgetScope(Enum):
    KEY = "key"
    EVERYBODY = "everybody"
    CONVERSATION = "conversation"
    RUN = "run"


class Measure(Enum):
    RUNS = "runs"
    TOKENS = "tokens"
    """All that models read and wrote."""
    UNCACHED = "uncached"
    """The same without what was read from a cache."""
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
        """As it is typed."""
        amount = f"{self.measure.value}={self.limit:.15g}"
        per = "" if self.period is Period.ALL else f"/{self.period.value}"
        return f"{self.scope.value}.{amount}{per}"


class Spent(Struct, frozen=True):
    runs: int = 0
    tokens: int = 0
    uncached: int = 0
    cents: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.runs + other.runs,
            self.tokens + other.tokens,
            self.uncached + other.uncached,
            self.cents + other.cents,
        )

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(
            self.runs - other.runs,
            self.tokens - other.tokens,
            self.uncached - other.uncached,
            self.cents - other.cents,
        )

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
"""Beyond this the numbers of a computer are no longer exact."""


def parse_budget(text: str, scope: BudgetScope) -> UsageBudget:
    """`scope`: whose it is when the text does not say. Raises ValueError with a sentence."""
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
