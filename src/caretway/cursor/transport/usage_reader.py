"""The dashboard's answers, read: JSON -> values of `core/account_usage.py`. Pure, tolerant and bounded.

Proto-JSON leaves zeros out, and writes some numbers and all times as texts; others saw dates there too. What does not
look like a number or a time counts as not said. Nothing here fails: an answer of another shape gives empty values.
"""

from datetime import datetime
from math import isfinite
from typing import Any, Final

import msgspec

from ...core.account_usage import OnDemand, PeriodUsage, PlanInfo, PlanUsage, TeamSeat, UsageEvent

MAX_TEXT: Final = 200
MAX_TEAMS: Final = 100
MAX_NAMES: Final = 200
MAX_NUMBER: Final = 1e15
LATEST_S: Final = 4e9
"""Times after the year 2096 are none."""
UNLIMITED: Final = 2_147_483_647.0
"""A null limit."""
_MONEY: Final = ("totalSpend", "includedSpend", "bonusSpend")
_SHARES: Final = ("autoPercentUsed", "apiPercentUsed", "totalPercentUsed")


def read_object(body: bytes) -> dict[str, Any]:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def read_period(answer: dict[str, Any], team: int | None = None) -> PeriodUsage:
    names = answer.get("autoBucketModels")
    return PeriodUsage(
        starts_at=_moment(answer.get("billingCycleStart")),
        ends_at=_moment(answer.get("billingCycleEnd")),
        plan=_plan_usage(answer.get("planUsage")),
        on_demand=_on_demand(answer.get("spendLimitUsage")),
        message=_text(answer.get("displayMessage")),
        cursor_models=tuple(map(_text, names[:MAX_NAMES])) if isinstance(names, list) else (),
        team=team,
    )


def _plan_usage(told: Any) -> PlanUsage | None:
    if not isinstance(told, dict):
        return None
    shares = [_number(told.get(name)) for name in _SHARES]
    spent, included, bonus = (_number(told.get(name)) or 0.0 for name in _MONEY)
    remaining, limit = _number(told.get("remaining")) or 0.0, _number(told.get("limit"))
    # A share that is missing is zero, unless all of them are and something was spent: then nobody counts shares.
    untouched = not spent and remaining >= (limit or 0.0)
    if untouched or any(share is not None for share in shares):
        shares = [share or 0.0 for share in shares]
    own, others, total = shares
    return PlanUsage(own, others, total, spent, included, bonus, remaining, limit)


def _on_demand(told: Any) -> OnDemand | None:
    if not isinstance(told, dict):
        return None
    alone = any(name.startswith("individual") for name in told)
    shared = told.get("limitType") == "team" or ("limitType" not in told and not alone)
    whose = "pooled" if shared else "individual"
    limit, remaining = _number(told.get(f"{whose}Limit")), _number(told.get(f"{whose}Remaining"))
    unlimited = limit is not None and limit >= UNLIMITED
    if unlimited:
        limit = remaining = None
    elif limit is not None:
        remaining = remaining or 0.0
    return OnDemand(shared, limit, _number(told.get(f"{whose}Used")) or 0.0, remaining, unlimited)


def read_plan(answer: dict[str, Any]) -> PlanInfo:
    told = answer.get("planInfo")
    if not isinstance(told, dict):
        return PlanInfo()
    return PlanInfo(
        _text(told.get("planName")),
        _number(told.get("includedAmountCents")),
        _text(told.get("price")),
        _moment(told.get("billingCycleEnd")),
    )


def read_on_demand_allowed(answer: dict[str, Any]) -> bool | None:
    """From the hard limit: False when it is turned off, None when the answer reports nothing."""
    if answer.get("noUsageBasedAllowed") is True:
        return False
    limit = _number(answer.get("hardLimit"))
    return None if limit is None else limit > 0


def read_teams(answer: dict[str, Any]) -> tuple[TeamSeat, ...]:
    found = []
    for row in _rows(answer.get("teams"))[:MAX_TEAMS]:
        number = _number(row.get("id"))
        if number is not None and number > 0 and number.is_integer():
            found.append(TeamSeat(int(number), _text(row.get("name")), _text(row.get("role"))))
    return tuple(found)


def read_events(answer: dict[str, Any], most: int) -> tuple[list[UsageEvent], int]:
    """The readable rows, and how many rows there were."""
    rows = _rows(answer.get("usageEventsDisplay"))[:most]
    events = [event for row in rows if (event := _event(row)) is not None]
    return events, len(rows)


def read_total(answer: dict[str, Any]) -> int | None:
    return _count(answer.get("totalUsageEventsCount"))


def _event(row: dict[str, Any]) -> UsageEvent | None:
    at = _moment(row.get("timestamp"))
    if at is None:
        return None
    tokens = row.get("tokenUsage")
    counted = isinstance(tokens, dict)
    used: dict[str, Any] = tokens if isinstance(tokens, dict) else {}

    def count(name: str) -> int | None:
        return _count(used.get(name, 0)) if counted else None

    return UsageEvent(
        at,
        _text(row.get("model")),
        _text(row.get("conversationId")),
        _text(row.get("kind")),
        count("inputTokens"),
        count("outputTokens"),
        count("cacheReadTokens"),
        count("cacheWriteTokens"),
        _number(used.get("totalCents", 0)) if counted else None,
        _number(row.get("chargedCents")),
        row["isHeadless"] if isinstance(row.get("isHeadless"), bool) else None,
    )


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """Not negative; a text that is a number counts."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 40:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) and 0 <= number <= MAX_NUMBER else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _moment(value: Any) -> float | None:
    """Unix seconds: of milliseconds, as number or text, or of a date."""
    number = _number(value)
    if number is not None:
        return number / 1000 if 0 < number / 1000 < LATEST_S else None
    try:
        date = datetime.fromisoformat(value) if isinstance(value, str) and len(value) <= 40 else None
    except ValueError:
        return None
    if date is None or date.tzinfo is None:
        return None
    moment = date.timestamp()
    return moment if 0 < moment < LATEST_S else None
