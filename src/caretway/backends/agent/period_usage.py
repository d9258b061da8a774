"""Checks whether the plan's usage is spent, after Cursor refused a run for its quota or without a reason: reads the two
pools and their reset. A check takes at most 3 s and holds for 20 s. If it fails, the refusal stays unchanged.

`cursor/transport/usage_api.py` asks Cursor; pure functions judge the answer. A failed check never fails a turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from ...core.account_usage import SPENT_PERCENT, PeriodUsage
from ...core.errors import ErrorKind, GatewayError, bounded_wait
from ...cursor.transport.refusals import is_own
from ...processes.tasks import spawn

log = logging.getLogger(__name__)

PATIENCE_S: Final = 3.0
"""Seconds for the answer, while the client waits."""
FRESH_S: Final = 20.0
"""Seconds for which an answer, or a failure, is kept."""
_DASHBOARD: Final = "https://cursor.com/dashboard"


class Pools(Struct, frozen=True):
    """The two pools of the dashboard, in percent of the plan."""

    own: float = 0.0
    """The used percentage for Cursor's own models."""
    other: float = 0.0
    """The used percentage for all other models."""
    more_paid: bool = False
    """The limit for on-demand usage is not reached."""
    resets_at: float | None = None
    """Unix time."""


def pools_of(usage: PeriodUsage) -> Pools | None:
    """The pools of an answer; None if it has no plan. Without a percentage for other models, money estimates it."""
    plan = usage.plan
    if plan is None:
        return None
    other = plan.other_models_percent
    if other is None and plan.limit:
        other = SPENT_PERCENT * (plan.limit - plan.remaining) / plan.limit
    return Pools(
        own=plan.cursor_models_percent or 0.0,
        other=other or 0.0,
        more_paid=usage.on_demand is not None and usage.on_demand.some_left,
        resets_at=usage.ends_at,
    )


def spent_pool(usage: Pools, model: str, now: float) -> GatewayError | None:
    """The error if the pool that pays for this model is spent; otherwise None. `now` is Unix time."""
    own = is_own(model)
    used, rest = (usage.own, usage.other) if own else (usage.other, usage.own)
    if used < SPENT_PERCENT:
        return None
    pool = '"Cursor Models"' if own else '"Other Models"'
    hints = []
    wait = None
    if usage.resets_at is not None and usage.resets_at > now:
        hints.append(f"It resets on {datetime.fromtimestamp(usage.resets_at, UTC):%Y-%m-%d}.")
        wait = bounded_wait(usage.resets_at - now)
    if rest < SPENT_PERCENT:
        others = "Models of other makers" if own else "Cursor's own models (`composer-2.5`)"
        hints.append(f"{others} have usage left.")
    if usage.more_paid:  # the limit alone does not show whether on-demand usage is on
        hints.append("Its limit for on-demand usage has some left: is that switched on?")
    hints.append(f"{_DASHBOARD} shows both.")
    return GatewayError(
        ErrorKind.QUOTA, f"Your Cursor usage of {pool} is spent ({used:.0f}%).", hint=" ".join(hints), retry_after=wait
    )


def dated(refusal: GatewayError, usage: Pools, now: float) -> GatewayError | None:
    """The refusal with the day of the reset; None if that is unknown."""
    if usage.resets_at is None or usage.resets_at <= now:
        return None
    day = datetime.fromtimestamp(usage.resets_at, UTC)
    return GatewayError(
        refusal.kind,
        refusal.message,
        hint=f"Your usage resets on {day:%Y-%m-%d}; {_DASHBOARD} shows it.",
        code=refusal.code,
        retry_after=bounded_wait(usage.resets_at - now),
        repeatable=False,
    )


class _Asked(Struct, frozen=True):
    account: str
    answer: "asyncio.Task[Pools | None]"
    fresh_until: float


class UsageCheck:
    """Asks about one account at a time, and keeps the answer for `FRESH_S`."""

    def __init__(self, call: Callable[[], Awaitable[PeriodUsage]], clock: Callable[[], float]) -> None:
        """`clock` returns Unix time."""
        self._call = call
        self._clock = clock
        self._asked: _Asked | None = None

    async def spent(self, account: str, model: str, refusal: GatewayError | None = None) -> GatewayError | None:
        """The error that replaces a refusal; None if usage is left or unknown. A refusal that names the quota gets the
        day of the reset."""
        now, asked = asyncio.get_running_loop().time(), self._asked
        if asked is None or asked.account != account or now >= asked.fresh_until:
            asked = self._asked = _Asked(account, spawn(self._ask(), "agent-usage"), now + FRESH_S)
        usage = await asyncio.shield(asked.answer)  # other turns may wait for it, too
        if usage is None:
            return None
        now = self._clock()
        named = refusal is not None and refusal.kind is ErrorKind.QUOTA
        return spent_pool(usage, model, now) or (dated(refusal, usage, now) if refusal is not None and named else None)

    async def _ask(self) -> Pools | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return pools_of(await self._call())
        except TimeoutError:
            log.info("the account's usage is not known: no answer within %g s", PATIENCE_S)
        except GatewayError as failure:
            log.info("the account's usage is not known: %s", failure)
        return None
