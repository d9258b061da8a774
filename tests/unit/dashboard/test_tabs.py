"""When a budget is used up at today's pace."""

import pytest

from caretway.dashboard.tabs import runs_out_at
from caretway.usage.budget import BudgetScope, Level, Measure, Period, UsageBudget

HOUR = 3600.0
MIDNIGHT = 1_800_000_000.0
NOON = MIDNIGHT + 12 * HOUR


@pytest.mark.parametrize(
    ("spent", "today", "resets_after", "runs_out_after"),
    [
        (60, 60, 12 * HOUR, 8 * HOUR),
        (60, 30, 12 * HOUR, None),  # it lasts until midnight
        (60, 30, None, 16 * HOUR),
        (60, 0, None, None),
        (100, 60, 12 * HOUR, None),  # it is used up
    ],
)
def test_at_todays_pace(spent: float, today: float, resets_after: float | None, runs_out_after: float | None) -> None:
    budget = UsageBudget(BudgetScope.EVERYBODY, Measure.RUNS, 100, Period.DAY)
    level = Level(budget, spent, None if resets_after is None else NOON + resets_after)
    found = runs_out_at(level, today, MIDNIGHT, NOON)
    assert found == (None if runs_out_after is None else pytest.approx(NOON + runs_out_after))


def test_the_first_minutes_of_a_day_are_no_pace() -> None:
    budget = UsageBudget(BudgetScope.EVERYBODY, Measure.RUNS, 100, Period.ALL)
    assert runs_out_at(Level(budget, 1), 1, MIDNIGHT, MIDNIGHT + 60) == pytest.approx(MIDNIGHT + 60 + 99 * HOUR)
