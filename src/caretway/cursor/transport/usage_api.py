"""Cursor's dashboard as a client: what the account has used, its plan, its teams, and what single runs cost.

Unofficial calls of the web site's own, in JSON. They change nothing. The caller (`UsageCall`) signs them,
and replaces a token that is refused. Pages of events are fetched one after the other, up to a limit.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...core.account_usage import AccountUsage, PeriodUsage, PlanInfo, TeamSeat, UsageEvent, UsageEvents
from ...core.errors import ErrorKind, GatewayError
from ..wire import paths
from .faults import HINTS, fault_from_status
from .ports import UnaryResponse
from .usage_reader import (
    read_events,
    read_object,
    read_on_demand_allowed,
    read_period,
    read_plan,
    read_teams,
    read_total,
)

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 250
"""Small pages mean many calls, and a page that is cut short looks like little usage."""
MAX_PAGES: Final = 40
MAX_SEATS: Final = 5
"""In how many teams a seat is looked for."""
UsageCall = Callable[[str, bytes], Awaitable[UnaryResponse]]
"""Posts JSON to a path, as the account that is asked about. Raises GatewayError."""


class UsageApi:
    def __init__(self, call: UsageCall) -> None:
        self._call = call

    async def account(self) -> AccountUsage:
        """Everything at once. Only the current period must be known; the rest may be missing."""
        period, teams = await self._period_and_teams()
        return AccountUsage(period, await self._plan_if_told(), teams)

    async def current(self) -> PeriodUsage:
        """The current billing period of the account, or else of its seat in a team."""
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
        """The current billing period; of a seat, when its team is named."""
        return read_period(await self._ask(paths.PERIOD_USAGE, _of(team)), team)

    async def teams(self) -> tuple[TeamSeat, ...]:
        return read_teams(await self._ask(paths.TEAMS, {}))

    async def plan(self) -> PlanInfo:
        plan = read_plan(await self._ask(paths.PLAN_INFO, {}))
        return replace(plan, on_demand_allowed=read_on_demand_allowed(await self._ask(paths.HARD_LIMIT, {})))

    async def _plan_if_told(self) -> PlanInfo:
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
        """What ran between two moments (unix seconds). The dates are checked here too: some saw them ignored."""
        asked = {"startDate": str(int(since * 1000)), "endDate": str(int(until * 1000)), "pageSize": PAGE_SIZE}
        found: dict[UsageEvent, None] = {}  # a run that ends meanwhile pushes others to the next page
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
        """Raises GatewayError: signed out, no answer, or a refusal in Cursor's words."""
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
