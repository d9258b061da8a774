"""A client of Cursor's dashboard API: the account's usage, its plan, its teams, and the cost of single runs.
The calls are the web site's own, unofficial, in JSON and read-only. `UsageCall` authenticates them and replaces a
refused token. Pages of events are fetched one after the other, up to a limit.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...core.account_usage import (
    AccountUsage,
    OnDemand,
    PeriodUsage,
    PlanInfo,
    PlanUsage,
    TeamSeat,
    UsageEvent,
    UsageEvents,
)
from ...core.errors import ErrorKind, GatewayError
from ..wire import paths
from .faults import HINTS, fault_from_status
from .ports import UnaryResponse

# ---- Decodes the dashboard's JSON into values of `core/account_usage.py`. Pure, tolerant and bounded.
#
# Proto-JSON omits zeros, and writes some numbers and all times as strings; others observed dates, too. A value that is
# not a number or a time counts as missing. Decoding never fails: an answer of another shape gives empty values.

MAX_TEXT: Final = 200
MAX_TEAMS: Final = 100
MAX_NAMES: Final = 200
MAX_NUMBER: Final = 1e15
LATEST_S: Final = 4e9
"""Times after the year 2096 are invalid."""
UNLIMITED: Final = 2_147_483_647.0
"""The value that means no limit."""
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


def _plan_usage(fields: Any) -> PlanUsage | None:
    if not isinstance(fields, dict):
        return None
    shares = [_number(fields.get(name)) for name in _SHARES]
    spent, included, bonus = (_number(fields.get(name)) or 0.0 for name in _MONEY)
    remaining, limit = _number(fields.get("remaining")) or 0.0, _number(fields.get("limit"))
    # A missing share is zero, unless all are missing and something was spent: then shares are unknown.
    untouched = not spent and remaining >= (limit or 0.0)
    if untouched or any(share is not None for share in shares):
        shares = [share or 0.0 for share in shares]
    own, others, total = shares
    return PlanUsage(own, others, total, spent, included, bonus, remaining, limit)


def _on_demand(fields: Any) -> OnDemand | None:
    if not isinstance(fields, dict):
        return None
    alone = any(name.startswith("individual") for name in fields)
    shared = fields.get("limitType") == "team" or ("limitType" not in fields and not alone)
    whose = "pooled" if shared else "individual"
    limit, remaining = _number(fields.get(f"{whose}Limit")), _number(fields.get(f"{whose}Remaining"))
    unlimited = limit is not None and limit >= UNLIMITED
    if unlimited:
        limit = remaining = None
    elif limit is not None:
        remaining = remaining or 0.0
    return OnDemand(shared, limit, _number(fields.get(f"{whose}Used")) or 0.0, remaining, unlimited)


def read_plan(answer: dict[str, Any]) -> PlanInfo:
    info = answer.get("planInfo")
    if not isinstance(info, dict):
        return PlanInfo()
    return PlanInfo(
        _text(info.get("planName")),
        _number(info.get("includedAmountCents")),
        _text(info.get("price")),
        _moment(info.get("billingCycleEnd")),
    )


def read_on_demand_allowed(answer: dict[str, Any]) -> bool | None:
    """Whether the hard limit allows on-demand usage; None if the answer does not report it."""
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
    """A number that is not negative; numeric strings are accepted."""
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
    """Unix seconds from milliseconds (a number or a string) or from a date."""
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


log = logging.getLogger(__name__)

PAGE_SIZE: Final = 250
"""Events per page: small pages mean many calls."""
MAX_PAGES: Final = 40
MAX_SEATS: Final = 5
"""The number of teams that are searched for a seat."""
UsageCall = Callable[[str, bytes], Awaitable[UnaryResponse]]
"""Posts JSON to a path as the account. Raises GatewayError."""


class UsageApi:
    def __init__(self, call: UsageCall) -> None:
        self._call = call

    async def account(self) -> AccountUsage:
        """The period, the plan and the teams. Only the period is required; the plan and the teams may be missing."""
        period, teams = await self._period_and_teams()
        return AccountUsage(period, await self._plan_if_reported(), teams)

    async def current(self) -> PeriodUsage:
        """The current billing period of the account, or of its seat in a team."""
        return (await self._period_and_teams())[0]

    async def _period_and_teams(self) -> tuple[PeriodUsage, tuple[TeamSeat, ...]]:
        period = await self.period()
        if not period.tells_nothing:
            return period, ()
        teams = await self.teams()
        for seat in teams[:MAX_SEATS]:
            of_seat = await self.period(team=seat.id)
            if not of_seat.tells_nothing:
                return of_seat, teams
        return period, teams

    async def period(self, *, team: int | None = None) -> PeriodUsage:
        """The current billing period of the account, or of its seat in `team`."""
        return read_period(await self._ask(paths.PERIOD_USAGE, _of(team)), team)

    async def teams(self) -> tuple[TeamSeat, ...]:
        return read_teams(await self._ask(paths.TEAMS, {}))

    async def plan(self) -> PlanInfo:
        plan = read_plan(await self._ask(paths.PLAN_INFO, {}))
        return replace(plan, on_demand_allowed=read_on_demand_allowed(await self._ask(paths.HARD_LIMIT, {})))

    async def _plan_if_reported(self) -> PlanInfo:
        try:
            return await self.plan()
        except GatewayError as failure:
            if failure.kind is ErrorKind.SIGNED_OUT:
                raise
            log.info("Cursor does not report the plan: %s", failure.message)
            return PlanInfo()

    async def events(
        self, since: float, until: float, *, team: int | None = None, max_pages: int = MAX_PAGES
    ) -> UsageEvents:
        """The runs between two times (unix seconds). The dates are also checked here: others saw Cursor ignore them."""
        asked = {"startDate": str(int(since * 1000)), "endDate": str(int(until * 1000)), "pageSize": PAGE_SIZE}
        found: dict[UsageEvent, None] = {}  # a run that ends meanwhile moves other runs to the next page
        seen = 0
        for page in range(1, max_pages + 1):
            answer = await self._ask(paths.USAGE_EVENTS, {**_of(team), **asked, "page": page})
            events, rows = read_events(answer, PAGE_SIZE)
            total = read_total(answer)
            seen += rows
            found |= dict.fromkeys(event for event in events if since <= event.at <= until)
            older = bool(events) and events[-1].at < since
            if older or rows < PAGE_SIZE or (total is not None and seen >= total):
                return UsageEvents(tuple(found))
        return UsageEvents(tuple(found), complete=False)

    async def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a query. Raises GatewayError if signed out, unanswered or refused."""
        response = await self._call(path, msgspec.json.encode(body))
        if response.status != 200:
            raise fault_from_status(response.status, response.headers, response.body)
        if not response.headers.get("content-type", "").startswith(paths.JSON_TYPE):
            raise GatewayError(
                ErrorKind.UPSTREAM_PROTOCOL,
                f"Cursor: the answer to {path.rpartition('/')[2]} is not JSON",
                hint=HINTS[ErrorKind.UPSTREAM_PROTOCOL],
            )
        return read_object(response.body)


def _of(team: int | None) -> dict[str, int]:
    return {} if team is None else {"teamId": team}
