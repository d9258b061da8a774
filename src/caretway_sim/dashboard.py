"""The simulated dashboard: what an account has used of its plan, which plan it is, its team, and each run's cost.

As the real one does it: proto-JSON leaves zeros and empty lists out, times are milliseconds as texts, money is in
cents. A seat of a team has no usage of its own: it has to be asked for with the team's id.
"""

from collections.abc import Callable
from typing import Any, Final

from caretway.cursor.wire import paths
from caretway.cursor.wire.errors import ConnectError

from .accounts import Person
from .billing import BilledRun
from .shared import Shared

CYCLE_MS: Final = 30 * 86_400_000
PLANS: Final = {
    "free": ("Free", 0, "Free"),
    "pro": ("Pro", 2000, "$20/mo"),
    "pro_plus": ("Pro+", 7000, "$60/mo"),
    "ultra": ("Ultra", 40_000, "$200/mo"),
    "team": ("Team", 4000, "$40/mo"),
}
ON_DEMAND_CENTS: Final = 5000
"""The limit of a team for what its plan does not include."""
MAX_PAGE: Final = 1000
NOT_IN_TEAM: Final = ConnectError("permission_denied", "not a member of this team", retryable=False)

Told = Callable[[Shared, Person, dict[str, Any]], "dict[str, Any] | ConnectError"]


def period_usage(shared: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any] | ConnectError:
    team = _number(asked, "teamId")
    if team and team != person.team:
        return NOT_IN_TEAM
    start, end = _cycle(shared)
    if person.team and not team:
        return {"billingCycleStart": start, "billingCycleEnd": start, "displayThreshold": 100}
    limit = PLANS.get(person.plan, PLANS["pro"])[1]
    spent = limit * person.spent // 100
    money = {
        "totalSpend": spent,
        "includedSpend": min(spent, limit),
        "bonusSpend": max(0, spent - limit),
        "remaining": max(0, limit - spent),
        "limit": limit,
    }
    shares = {
        "autoPercentUsed": person.spent / 2,
        "apiPercentUsed": min(100.0, float(person.spent)),
        "totalPercentUsed": person.spent * 0.75,
    }
    on_demand: dict[str, Any] = {"limitType": "user"}
    if team:
        on_demand = {"limitType": "team", "pooledLimit": ON_DEMAND_CENTS, "pooledRemaining": ON_DEMAND_CENTS}
    return {
        "billingCycleStart": start,
        "billingCycleEnd": end,
        "planUsage": _without_zeros({**money, **shares}),
        "spendLimitUsage": on_demand,
        "displayMessage": f"Simulated: {person.spent}% of the plan is used",
        "autoBucketModels": ["default", "composer-2.5"],
    }


def plan_info(shared: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any]:
    name, cents, price = PLANS["team" if person.team else person.plan if person.plan in PLANS else "pro"]
    told = {"planName": name, "includedAmountCents": cents, "price": price, "billingCycleEnd": _cycle(shared)[1]}
    return {"planInfo": _without_zeros(told)}


def teams(_: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any]:
    if not person.team:
        return {}
    return {"teams": [{"id": person.team, "name": "Simulated team", "role": "TEAM_ROLE_MEMBER"}]}


def hard_limit(_: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any]:
    return {"hardLimit": ON_DEMAND_CENTS // 100} if person.team else {"noUsageBasedAllowed": True}


def usage_events(shared: Shared, person: Person, asked: dict[str, Any]) -> dict[str, Any] | ConnectError:
    team = _number(asked, "teamId")
    if team and team != person.team:
        return NOT_IN_TEAM
    now_ms = int(shared.clock() * 1000)
    rows = shared.billed.of(person.name, now_ms - shared.manners.usage_lag_s * 1000)
    first, last = _number(asked, "startDate"), _number(asked, "endDate") or now_ms
    dated = "startDate" in asked or "endDate" in asked
    blind = shared.manners.events_ignore_dates and dated
    if not blind:
        rows = [row for row in rows if first <= row.at_ms <= last]
    size = min(max(1, _number(asked, "pageSize") or 100), MAX_PAGE)
    start = (max(1, _number(asked, "page")) - 1) * size
    shown = [_event(row) for row in rows[start : start + size]]
    counted = {} if blind or not rows else {"totalUsageEventsCount": len(rows)}
    return counted | ({"usageEventsDisplay": shown} if shown else {})


def _event(row: BilledRun) -> dict[str, Any]:
    tokens = {"inputTokens": row.read, "outputTokens": row.written, "cacheReadTokens": row.cached}
    return {
        "timestamp": str(row.at_ms),
        "model": row.model,
        "kind": "USAGE_EVENT_KIND_INCLUDED_IN_PRO",
        "requestsCosts": 1,
        "isTokenBasedCall": True,
        "tokenUsage": _without_zeros({**tokens, "totalCents": row.cents}),
        "isHeadless": True,
        **({"conversationId": row.conversation} if row.conversation else {}),
    }


def _cycle(shared: Shared) -> tuple[str, str]:
    """When the current billing period began, and when it ends."""
    start = int(shared.clock() * 1000) // CYCLE_MS * CYCLE_MS
    return str(start), str(start + CYCLE_MS)


def _number(asked: dict[str, Any], name: str) -> int:
    """Numbers may come as texts."""
    value = asked.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:18])
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _without_zeros(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


CALLS: Final[dict[str, Told]] = {
    paths.PERIOD_USAGE: period_usage,
    paths.PLAN_INFO: plan_info,
    paths.TEAMS: teams,
    paths.HARD_LIMIT: hard_limit,
    paths.USAGE_EVENTS: usage_events,
}
