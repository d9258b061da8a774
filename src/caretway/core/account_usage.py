"""What an account has used at Cursor: its billing period, plan, teams, and what single runs cost. Values only.

Money is in cents of US dollars, times are unix seconds. None means that Cursor did not say; it never stands for zero.
Two pools have limits of their own: Cursor's own models, and those of other makers. Only their percentages tell what is
left: spending includes gifts, and so may exceed the limit of a plan that is hardly used.
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
    """The pool of the models of other makers."""
    total_percent: float | None = None
    """Cursor's own mixture of the two; it is neither."""
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
    """What may be spent beyond the plan, by this user alone or together with the team."""

    shared: bool = False
    """The limit is the team's."""
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
    """Cursor's own sentence about it."""
    cursor_models: tuple[str, ...] = ()
    """What Cursor counts among its own models."""
    team: int | None = None
    """Whose seat it is."""

    @property
    def tells_nothing(self) -> bool:
        """Seats of a team have no usage of their own, and their period is empty."""
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
    """What one run has used, and its price."""

    at: float
    model: str = ""
    conversation: str = ""
    kind: str = ""
    input_tokens: int | None = None
    """Without what was read from the cache."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cents: float | None = None
    """What its tokens are worth."""
    charged_cents: float | None = None
    """What is to be paid for it. Nothing, or unknown, when the plan includes it."""
    headless: bool | None = None


class UsageEvents(Struct, frozen=True):
    events: tuple[UsageEvent, ...] = ()
    """The newest first. A run may take ten minutes to show up here."""
    complete: bool = True
    """False: there are more of them than were fetched."""

    def of(self, conversation: str) -> tuple[UsageEvent, ...]:
        return tuple(event for event in self.events if event.conversation == conversation)


class AccountUsage(Struct, frozen=True):
    """Everything that can be told about an account at once."""

    period: PeriodUsage
    plan: PlanInfo
    teams: tuple[TeamSeat, ...] = ()


def _spent(percent: float | None) -> bool:
    return percent is not None and percent >= SPENT_PERCENT


# ---- An account's usage as JSON for `/caretway/v1/account`, `caretway status` and `caretway usage`: the two pools by
# their names, money in cents, the period with the days that are left, the seat. Pure.

CURSOR_MODELS: Final = "Cursor Models"
OTHER_MODELS: Final = "Other Models"
"""As Cursor's own dashboard names the two pools."""
_DAY_S: Final = 86_400


def known_account(usage: AccountUsage, now: float) -> dict[str, Any]:
    """`now`: unix seconds."""
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
