"""Is the plan's usage spent? Asked when Cursor refuses a run without a reason: the two pools, when they reset; at most
3 s, one answer for 20 s. If the question fails, the refusal stays as it was.

The answer is read and judged by pure functions; `UsageCheck` asks. No turn waits longer or fails because of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ...core.errors import ErrorKind, GatewayError, bounded_wait
from ...cursor_transport.ports import UnaryResponse
from ...cursor_transport.refusals import is_own
from ...tasks import spawn

log = logging.getLogger(__name__)

ASK_USAGE: Final = b"{}"
PATIENCE_S: Final = 3.0
"""From the question to the answer; the client waits meanwhile."""
FRESH_S: Final = 20.0
"""How long an answer is good for, or that there was none."""
_ALL: Final = 100.0
_LATEST_S: Final = 4e9
"""Times after the year 2096 are none."""
_DASHBOARD: Final = "https://cursor.com/dashboard"
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class PlanUsage:
    """In percent of the plan: the two pools of the dashboard."""

    own: float = 0.0
    """Of Cursor's own models."""
    other: float = 0.0
    """Of all others."""
    more_paid: bool = False
    """What goes beyond the plan is paid for, and there is some of that left."""
    resets_at: float | None = None
    """Unix time."""


def read_usage(body: bytes) -> PlanUsage | None:
    """The body of GetCurrentPeriodUsage. None: it tells nothing, as for the seats of a team. Zeros are left out in it,
    and large numbers may be texts."""
    try:
        told = msgspec.json.decode(body)
    except _NOT_JSON:
        return None
    plan = _part(told, "planUsage")
    if not plan:
        return None
    shares = [_number(plan, name) for name in ("autoPercentUsed", "apiPercentUsed", "totalPercentUsed")]
    limit, left = _number(plan, "limit"), _number(plan, "remaining")
    if not any(shares) and limit > 0:
        shares[1] = _ALL * (limit - left) / limit
    beyond = _part(told, "spendLimitUsage")
    until = _number(told, "billingCycleEnd") / 1000
    return PlanUsage(
        own=shares[0],
        other=shares[1],
        more_paid=any(_number(beyond, name) > 0 for name in ("individualRemaining", "pooledRemaining")),
        resets_at=until if 0 < until < _LATEST_S else None,
    )


def spent_pool(usage: PlanUsage, model: str, now: float) -> GatewayError | None:
    """What to tell when the pool that this model is paid from is empty; None: it is not. `now`: unix time."""
    own = is_own(model)
    used, rest = (usage.own, usage.other) if own else (usage.other, usage.own)
    if used < _ALL or usage.more_paid:
        return None
    pool = '"Cursor Models"' if own else '"Other Models"'
    hints = []
    wait = None
    if usage.resets_at is not None and usage.resets_at > now:
        hints.append(f"It resets on {datetime.fromtimestamp(usage.resets_at, UTC):%Y-%m-%d}.")
        wait = bounded_wait(usage.resets_at - now)
    if rest < _ALL:
        others = "Models of other makers" if own else "Cursor's own models (`composer-2.5`)"
        hints.append(f"{others} have usage left.")
    hints.append(f"{_DASHBOARD} shows both.")
    return GatewayError(
        ErrorKind.QUOTA, f"Your Cursor usage of {pool} is spent ({used:.0f}%).", hint=" ".join(hints), retry_after=wait
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    account: str
    answer: "asyncio.Task[PlanUsage | None]"
    fresh_until: float


class UsageCheck:
    """Asks for one account at a time; another one starts anew."""

    def __init__(self, call: Callable[[], Awaitable[UnaryResponse]], clock: Callable[[], float]) -> None:
        """`clock`: unix time."""
        self._call = call
        self._clock = clock
        self._asked: _Asked | None = None

    async def spent(self, account: str, model: str) -> GatewayError | None:
        """What to tell instead of a refusal without a reason; None: usage is left, or nobody knows."""
        now, asked = asyncio.get_running_loop().time(), self._asked
        if asked is None or asked.account != account or now >= asked.fresh_until:
            asked = self._asked = _Asked(account, spawn(self._ask(), "agent-usage"), now + FRESH_S)
        usage = await asyncio.shield(asked.answer)  # it is for others, too
        return None if usage is None else spent_pool(usage, model, self._clock())

    async def _ask(self) -> PlanUsage | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                response = await self._call()
        except TimeoutError:
            log.info("the account's usage is not known: no answer within %g s", PATIENCE_S)
            return None
        except GatewayError as failure:
            log.info("the account's usage is not known: %s", failure)
            return None
        if response.status != 200:
            log.info("the account's usage is not known: HTTP %d", response.status)
            return None
        return read_usage(response.body)


def _part(told: Any, name: str) -> dict[str, Any]:
    part = told.get(name) if isinstance(told, dict) else None
    return part if isinstance(part, dict) else {}


def _number(told: dict[str, Any], name: str) -> float:
    """0 when it is left out, or is no number."""
    value = told.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 32:
        return 0.0
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return number if abs(number) < float("inf") else 0.0
