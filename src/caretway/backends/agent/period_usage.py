"""Is the plan's usage spent? Asked when Cursor refuses a run for that, or without a reason: the two pools, when they
reset; at most 3 s, one answer for 20 s. If the question fails, the refusal stays as it was.

`cursor/transport/usage_api.py` asks; pure functions judge its answer. No turn waits longer or fails because of it.
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
"""From the question to the answer; the client waits meanwhile."""
FRESH_S: Final = 20.0
"""How long an answer is good for, or that there was none."""
_DASHBOARD: Final = "https://cursor.com/dashboard"


class Pools(Struct, frozen=True):
    """In percent of the plan: the two pools of the dashboard."""

    own: float = 0.0
    """Of Cursor's own models."""
    other: float = 0.0
    """Of all others."""
    more_paid: bool = False
    """The limit for what goes beyond the plan has some left."""
    resets_at: float | None = None
    """Unix time."""


def pools_of(usage: PeriodUsage) -> Pools | None:
    """None: Cursor reports nothing. Where nobody counts shares, money tells of the other makers' pool."""
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
    """What to tell when the pool that this model is paid from is empty; None: it is not. `now`: unix time."""
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
    if usage.more_paid:  # a limit that nobody may use: on-demand usage can be off all the same
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
    """Asks for one account at a time; another one starts anew."""

    def __init__(self, call: Callable[[], Awaitable[PeriodUsage]], clock: Callable[[], float]) -> None:
        """`clock`: unix time."""
        self._call = call
        self._clock = clock
        self._asked: _Asked | None = None

    async def spent(self, account: str, model: str, refusal: GatewayError | None = None) -> GatewayError | None:
        """What to tell instead of a refusal; None: usage is left, or nobody knows. One that names the quota is told
        with the day on which that comes back."""
        now, asked = asyncio.get_running_loop().time(), self._asked
        if asked is None or asked.account != account or now >= asked.fresh_until:
            asked = self._asked = _Asked(account, spawn(self._ask(), "agent-usage"), now + FRESH_S)
        usage = await asyncio.shield(asked.answer)  # it is for others, too
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
