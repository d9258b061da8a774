"""An account's usage as JSON for `/caretway/v1/account`, `caretway status` and `caretway usage`: the two pools by their
names, money in cents, the period with the days that are left, the seat. Pure.
"""

from math import ceil
from typing import Any, Final

from .account_usage import AccountUsage, OnDemand, PlanUsage

CURSOR_MODELS: Final = "Cursor Models"
OTHER_MODELS: Final = "Other Models"
"""As Cursor's own dashboard names the two pools."""
_DAY_S: Final = 86_400


def known_account(usage: AccountUsage, now: float) -> dict[str, Any]:
    """`now`: unix seconds."""
    period, plan, told = usage.period, usage.period.plan or PlanUsage(), usage.plan
    seat = next((seat for seat in usage.teams if seat.id == period.team), None)
    return {
        "known": True,
        "reason": None,
        "asked_at": int(now),
        "plan": {
            "name": told.name or None,
            "price": told.price or None,
            "included_cents": told.included,
            "on_demand_allowed": told.on_demand_allowed,
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
