"""Formats the rest of the plan for people: both pools with a bar, money, the day of the reset, the seat. Text in, text
out, except `ask_quota` and `ask_events`, which query Cursor.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ..core.account_usage import SPENT_PERCENT
from ..core.errors import GatewayError
from .figures import bar, dollars
from .terminal import Style

if TYPE_CHECKING:
    from ..core.account_usage import UsageEvents
    from ..core.turn import Backend

log = logging.getLogger(__name__)

EVENTS_PATIENCE_S: Final = 5.0
EVENT_PAGES: Final = 8
"""A limit of 2,000 events; a longer list is reported as incomplete."""
BAR: Final = 20
NEARLY: Final = 80.0
_MARGIN: Final = "  "


async def ask_quota(backend: Backend) -> dict[str, Any]:
    """The quota in the format of `/caretway/v1/account`."""
    from ..api.tenant import ask_account
    from ..upstream import account_source

    return await ask_account(account_source(backend))


async def ask_events(backend: Backend, since: float, team: int | None) -> UsageEvents | None:
    """The cost of single runs from a moment on; None if the backend does not report it in time."""
    from ..upstream import events_source

    source = events_source(backend)
    if source is None:
        return None
    try:
        async with asyncio.timeout(EVENTS_PATIENCE_S):
            return await source(since, time.time(), team=team, max_pages=EVENT_PAGES)
    except (TimeoutError, GatewayError) as failure:
        log.info("Cursor does not list what runs cost: %s", failure)
        return None


def quota_title(quota: dict[str, Any]) -> str:
    return "Quota (simulated)" if quota.get("backend") == "simulator" else "Quota"


def quota_lines(quota: dict[str, Any], style: Style) -> list[str]:
    if not quota["known"]:
        return [f"{_MARGIN}not known: {quota['reason']}"]
    lines = [f"{_MARGIN}{_pool(pool, style)}" for pool in quota["pools"]]
    on_demand = f"on demand {more}" if (more := _on_demand(quota["on_demand"])) else ""
    more_lines = (", ".join(_money(quota)), on_demand, _period(quota["period"]), _team(quota))
    lines += [f"{_MARGIN}{line}" for line in more_lines if line]
    return lines


def quota_rows(quota: dict[str, Any]) -> list[tuple[str, str]]:
    """The quota as labels and values."""
    if not quota["known"]:
        return [("quota", f"not known: {quota['reason']}")]
    pools = ", ".join(f"{pool['name']} {_percent(pool['percent_used'])}" for pool in quota["pools"])
    rows = [
        ("quota", pools),
        ("plan", ", ".join(_money(quota))),
        ("on demand", _on_demand(quota["on_demand"])),
        ("resets", _period(quota["period"]).removeprefix("resets on ")),
        ("seat", _team(quota).removeprefix("seat of ")),
    ]
    return [(label, value) for label, value in rows if value]


def _pool(pool: dict[str, Any], style: Style) -> str:
    used = pool["percent_used"]
    name = f"{pool['name']:<13}"
    if used is None:
        return f"{name}  unknown"
    mark = style.bad if used >= SPENT_PERCENT else style.careful if used >= NEARLY else style.good
    return f"{name}  {mark(bar(used / SPENT_PERCENT, BAR))}  {_percent(used)}"


def _percent(used: float | None) -> str:
    return "unknown" if used is None else f"{used:.1f} % used".replace(".0 %", " %")


def _money(quota: dict[str, Any]) -> list[str]:
    plan = " ".join(filter(None, (quota["plan"]["name"], quota["plan"]["price"]))) or "plan unknown"
    spent, limit, bonus = quota["spent_cents"], quota["limit_cents"], quota["bonus_cents"]
    words = [plan]
    if spent is not None:
        words.append(f"spent {dollars(spent)}" + (f" of {dollars(limit)}" if limit is not None else ""))
    if bonus:
        words.append(f"{dollars(bonus)} of it given")
    return words


def _on_demand(more: dict[str, Any] | None) -> str:
    if not more or not (more["limit_cents"] or more["used_cents"] or more["unlimited"]):
        return ""
    limit = "no limit" if more["unlimited"] else f"limit {dollars(more['limit_cents'] or 0)}"
    return f"{dollars(more['used_cents'])}, {limit}{' for the team' if more['shared'] else ''}"


def _period(period: dict[str, Any]) -> str:
    if period["ends_at"] is None:
        return ""
    left = period["days_left"]
    days = "today" if left == 0 else "in 1 day" if left == 1 else f"in {left} days"
    return f"resets on {datetime.fromtimestamp(period['ends_at'], UTC):%Y-%m-%d}, {days}"


def _team(quota: dict[str, Any]) -> str:
    team = quota["team"]
    if team is None:
        return ""
    role = str(team["role"]).removeprefix("TEAM_ROLE_").lower()
    return f"seat of {team['name'] or team['id']}{f' ({role})' if role else ''}"
