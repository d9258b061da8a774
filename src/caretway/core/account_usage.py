"""An account's usage at Cursor: its billing period, plan, teams, and the cost of single runs. Values only.

Money is in cents of US dollars, times are unix seconds. None means that Cursor did not report a figure, never zero. Two
pools have separate limits: Cursor's own models, and other vendors' models. Only their percentages show the remaining
usage: spending includes bonuses, so it may exceed the limit of a plan that is hardly used.
"""

from math import ceil
from typing import Any, Final

from msgspec import Struct

SPENT_PERCENT: Final = 100.0


class PlanUsage(Struct, frozen=True):
    """How much of the plan's included usage is spent."""

    cursor_models_percent: float | None = None
    """The pool of Cursor's own models and of Auto."""
    other_models_percent: float | None = None
    """The pool of other vendors' models."""
    total_percent: float | None = None
    """Cursor's combination of the two pools."""
    spent: float = 0.0
    """Including the bonus."""
    included_spent: float = 0.0
    bonus: float = 0.0
    remaining: float = 0.0
    limit: float | None = None

    @property
    def cursor_models_spent(self) -> bool:
        return _spent(self.cursor_models_percent)

    @property
    def other_models_spent(self) -> bool:
        return _spent(self.other_models_percent)


class OnDemand(Struct, frozen=True):
    """The limit of spending beyond the plan, for this user or shared with the team."""

    shared: bool = False
    """Whether the limit is the team's."""
    limit: float | None = None
    used: float = 0.0
    remaining: float | None = None
    unlimited: bool = False

    @property
    def some_left(self) -> bool:
        return self.unlimited or bool(self.remaining)


class PeriodUsage(Struct, frozen=True):
    starts_at: float | None = None
    ends_at: float | None = None
    plan: PlanUsage | None = None
    on_demand: OnDemand | None = None
    message: str = ""
    """Cursor's own message about the usage."""
    cursor_models: tuple[str, ...] = ()
    """The models in the pool of Cursor's own models."""
    team: int | None = None
    """The team of the seat."""

    @property
    def tells_nothing(self) -> bool:
        """Whether the period has no plan usage, as for the account of a team's member."""
        return self.plan is None


class PlanInfo(Struct, frozen=True):
    name: str = ""
    included: float | None = None
    price: str = ""
    """As Cursor writes it: `$20/mo`."""
    ends_at: float | None = None
    on_demand_allowed: bool | None = None


class TeamSeat(Struct, frozen=True):
    id: int
    name: str = ""
    role: str = ""


class UsageEvent(Struct, frozen=True):
    """The usage of one run, and its price."""

    at: float
    model: str = ""
    conversation: str = ""
    kind: str = ""
    input_tokens: int | None = None
    """Without tokens read from the cache."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cents: float | None = None
    """The value of its tokens."""
    charged_cents: float | None = None
    """The price to be paid; zero or unknown if the plan includes the run."""
    headless: bool | None = None


class BilledTurn(Struct, frozen=True, gc=False):
    """What Cursor billed for one turn of an agent."""

    id: str
    output_tokens: int
    cache_read_tokens: int
    cents: float
    charged_cents: float


class UsageEvents(Struct, frozen=True):
    events: tuple[UsageEvent, ...] = ()
    """The newest first. A run may appear ten minutes late."""
    complete: bool = True
    """False: there are more events than were fetched."""

    def of(self, conversation: str) -> tuple[UsageEvent, ...]:
        return tuple(event for event in self.events if event.conversation == conversation)


class AccountUsage(Struct, frozen=True):
    """All known usage of an account."""

    period: PeriodUsage
    plan: PlanInfo
    teams: tuple[TeamSeat, ...] = ()


def _spent(percent: float | None) -> bool:
    return percent is not None and percent >= SPENT_PERCENT


# ---- An account's usage as JSON for `/caretway/v1/account`, `caretway status` and `caretway usage`: the two pools by
# name, money in cents, the period with the remaining days, the seat. Pure.

CURSOR_MODELS: Final = "Cursor Models"
OTHER_MODELS: Final = "Other Models"
"""The names of the two pools in Cursor's dashboard."""
_DAY_S: Final = 86_400


def known_account(usage: AccountUsage, now: float) -> dict[str, Any]:
    """The JSON of `/caretway/v1/account` for a known usage. `now`: unix seconds."""
    period, plan, info = usage.period, usage.period.plan or PlanUsage(), usage.plan
    seat = next((seat for seat in usage.teams if seat.id == period.team), None)
    return {
        "known": True,
        "reason": None,
        "asked_at": int(now),
        "plan": {
            "name": info.name or None,
            "price": info.price or None,
            "included_cents": info.included,
            "on_demand_allowed": info.on_demand_allowed,
        },
        "period": {
            "starts_at": period.starts_at,
            "ends_at": period.ends_at,
            "days_left": None if period.ends_at is None else max(0, ceil((period.ends_at - now) / _DAY_S)),
        },
        "pools": [
            {
                "name": CURSOR_MODELS,
                "percent_used": plan.cursor_models_percent,
                "models": list(period.cursor_models),
            },
            {"name": OTHER_MODELS, "percent_used": plan.other_models_percent, "models": []},
        ],
        "spent_cents": plan.spent if period.plan else None,
        "limit_cents": plan.limit,
        "remaining_cents": plan.remaining if period.plan else None,
        "bonus_cents": plan.bonus if period.plan else None,
        "on_demand": None if period.on_demand is None else _on_demand(period.on_demand),
        "team": None if seat is None else {"id": seat.id, "name": seat.name, "role": seat.role},
        "message": period.message or None,
    }


def unknown_account(reason: str, now: float) -> dict[str, Any]:
    return {"known": False, "reason": reason, "asked_at": int(now)}


def _on_demand(more: OnDemand) -> dict[str, Any]:
    return {
        "shared": more.shared,
        "unlimited": more.unlimited,
        "limit_cents": more.limit,
        "used_cents": more.used,
        "remaining_cents": more.remaining,
    }
