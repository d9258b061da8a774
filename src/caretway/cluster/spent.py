"""Counts the spending of all replicas in Redis: a claim is checked and counted in one script, so runs are exact however
many gateways ask at once. Redis away: a run that has a budget is refused, or let through and counted later
(`cluster_budgets`).

One hash for each scope, named by its HMAC: a field for each day and measure, and one for all days. What is settled goes
through the outbox: exact, and kept while Redis is away. A claim whose answer was lost may have been counted, or be
counted later, by a Redis that was only slow: it is declared void, and taken back if it was counted. Days that no period
reaches any more are taken out.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from datetime import date, timedelta
from os import urandom
from typing import Final, Literal

import msgspec

from ..core.errors import ErrorKind, GatewayError
from ..processes.tasks import spawn
from ..usage.budgets.budget import EVER, BillingCycle, Measure, Spent
from ..usage.budgets.spent_file import CONVERSATION_PREFIX
from ..usage.budgets.spent_store import Claim, ClaimOutcome
from .calls import Calls, Command, number
from .link import RedisAway
from .outbox import AGAIN_S, ClusterOutbox
from .seal import SMALL, Seal

log = logging.getLogger(__name__)

WhenAway = Literal["refuse", "allow"]
CONVERSATIONS_KEPT_S: Final = 90 * 86_400
MARKS_KEPT_S: Final = 450 * 86_400
MAX_VOID: Final = 4_096
"""Claims to be taken back."""
LONGEST_WINDOW: Final = 400
"""Days that are added up at most: a period is a billing cycle, or ever."""
MAX_TIDIED: Final = 10_000
"""Hashes that this process knows to be without old days."""
ALL_DAYS: Final = "all"
KIND: Final = "spent1"
"""With its version: counts cannot be made again, so replicas that count in another way count apart."""
UNSURE_CODE: Final = "budget_unknown"

RESERVE: Final = """
if redis.call('EXISTS', KEYS[#KEYS]) == 1 then return {2, {}} end
local asked = cjson.decode(ARGV[1])
local spent, allowed = {}, 1
for i, limit in ipairs(asked.limits) do
  local sum = 0
  for _, found in ipairs(redis.call('HMGET', KEYS[limit.scope], unpack(limit.fields))) do
    if found then sum = sum + tonumber(found) end
  end
  spent[i] = sum
  if sum >= limit.most then allowed = 0 end
end
if allowed == 1 then
  for k, kept in ipairs(asked.kept) do
    for field, amount in pairs(asked.amounts) do redis.call('HINCRBYFLOAT', KEYS[k], field, amount) end
    if kept > 0 then redis.call('EXPIRE', KEYS[k], kept) end
  end
  redis.call('SET', KEYS[#KEYS], 'counted', 'EX', 120)
end
local told = {}
for i, sum in ipairs(spent) do told[i] = string.format('%.17g', sum) end
return {allowed, told}"""
"""KEYS: the hash of each scope that is counted, then of those that are only looked at, then the claim itself. ARGV[1]:
what is claimed, as JSON. {2}: the claim is void."""

TAKE_BACK: Final = """
if redis.call('SET', KEYS[#KEYS], 'void', 'EX', 120, 'GET') ~= 'counted' then return 0 end
local asked = cjson.decode(ARGV[1])
for k, _ in ipairs(asked.kept) do
  for field, amount in pairs(asked.amounts) do redis.call('HINCRBYFLOAT', KEYS[k], field, '-' .. amount) end
end
return 1"""
"""The same words for a claim that is void from now on."""

TIDY: Final = """
local old = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.match(field, '^%d') and field < ARGV[1] then old[#old + 1] = field end
end
for at = 1, #old, 1000 do redis.call('HDEL', KEYS[1], unpack(old, at, math.min(at + 999, #old))) end
return #old"""
"""KEYS: the hash of a scope. ARGV: the first day that is kept."""


class RedisSpent:
    """A `SpentStore` for all replicas."""

    def __init__(self, calls: Calls, seal: Seal, outbox: ClusterOutbox, when_away: WhenAway) -> None:
        self._calls = calls
        self._seal = seal
        self._outbox = outbox
        self._when_away = when_away
        self._told_open = False
        self._void: deque[Command] = deque(maxlen=MAX_VOID)
        self._taking_back: asyncio.Task[None] | None = None
        self._tidied: set[tuple[str, bytes]] = set()

    async def reserve(self, claim: Claim) -> ClaimOutcome:
        words = self._words(claim)
        try:
            (found,) = await self._outbox.ask([("EVAL", RESERVE, *words)])
        except RedisAway as away:
            self._take_back(("EVAL", TAKE_BACK, *words))
            return self._without_redis(claim, away)
        self._told_open = False
        allowed, told = found
        spent = [number(one) for one in told]
        if allowed:
            added = (claim.amount.of(limit.measure) if limit.scope in claim.scopes else 0.0 for limit in claim.limits)
            spent = [now + more for now, more in zip(spent, added, strict=True)]
        return ClaimOutcome(bool(allowed), tuple(spent))

    def _take_back(self, command: Command) -> None:
        """As soon as Redis is there again."""
        self._void.append(command)
        if self._taking_back is None:
            self._taking_back = spawn(self._take_all_back(), "take-claims-back")

    async def _take_all_back(self) -> None:
        while self._void:
            batch = list(self._void)
            try:
                await self._outbox.ask(batch)
            except RedisAway:
                await asyncio.sleep(AGAIN_S)
                continue
            for _ in batch:
                self._void.popleft()
        self._taking_back = None

    def _words(self, claim: Claim) -> Command:
        places = list(dict.fromkeys([*claim.scopes, *(limit.scope for limit in claim.limits)]))
        asked = {
            "limits": [
                {
                    "scope": places.index(limit.scope) + 1,
                    "most": limit.most,
                    "fields": _fields(limit.since, claim.day, limit.measure),
                }
                for limit in claim.limits
            ],
            "kept": [_kept(scope) for scope in claim.scopes],
            "amounts": {field.decode(): _number(amount) for field, amount in _amounts(claim.day, claim.amount).items()},
        }
        names = [*map(self._place, places), self._calls.key("claim1", urandom(12).hex().encode())]
        return (len(names), *names, msgspec.json.encode(asked))

    def _without_redis(self, claim: Claim, away: RedisAway) -> ClaimOutcome:
        if self._when_away == "refuse":
            raise GatewayError(
                ErrorKind.OVERLOADED,
                f"The gateway cannot look at its budgets: {away}.",
                hint="Try again soon. For the administrator: `caretway status --cluster` shows Redis; "
                "`--cluster-budgets allow` lets runs through while it is away.",
                code=UNSURE_CODE,
                retry_after=2.0,
            )
        if not self._told_open:
            self._told_open = True
            log.warning("runs are let through without a look at their budgets: %s", away)
        self.settle(claim.scopes, claim.day, claim.amount, claim.at)
        return ClaimOutcome(True, tuple(0.0 for _ in claim.limits))

    def settle(self, scopes: tuple[str, ...], day: str, amount: Spent, at: float) -> None:
        amounts = _amounts(day, amount)
        for scope in scopes:
            place = self._place(scope)
            self._outbox.count(place, amounts, _kept(scope))
            if not _kept(scope) and (day, place) not in self._tidied:
                self._tidy(day, place)

    def _tidy(self, day: str, place: bytes) -> None:
        """Once a day."""
        if len(self._tidied) >= MAX_TIDIED:
            self._tidied.clear()
        self._tidied.add((day, place))
        first = date.fromisoformat(day) - timedelta(days=LONGEST_WINDOW)
        self._outbox.put([("EVAL", TIDY, 1, place, first.isoformat())])

    async def spent(self, scope: str, since: str) -> Spent:
        """What cannot be read is taken as nothing: this is for people, and decides nothing."""
        place = self._place(scope)
        try:
            if since == EVER:
                fields = [_field(ALL_DAYS, measure) for measure in Measure]
                (found,) = await self._outbox.ask([("HMGET", place, *fields)])
                return _spent(dict(zip(fields, found, strict=True)), [ALL_DAYS])
            (pairs,) = await self._outbox.ask([("HGETALL", place)])
        except RedisAway as away:
            log.warning("what was spent is not known: %s", away)
            return Spent()
        known = pairs if isinstance(pairs, dict) else dict(zip(pairs[::2], pairs[1::2], strict=True))
        days = {field.partition(b" ")[0].decode("utf-8", "replace") for field in known}
        return _spent(known, sorted(day for day in days if day != ALL_DAYS and day >= since))

    async def first(self, mark: str, at: float) -> bool:
        """Redis away: reported by every replica, rather than by none."""
        place = self._calls.key("mark1", self._seal.name("mark", mark.encode()))
        try:
            (new,) = await self._outbox.ask([("SET", place, b"1", "NX", "EX", MARKS_KEPT_S)])
        except RedisAway:
            return True
        return new is not None

    async def cycle(self) -> BillingCycle | None:
        place = self._cycle_place()
        try:
            (row,) = await self._outbox.ask([("GETRANGE", place, 0, SMALL)])
        except RedisAway:
            return None
        kept = self._seal.open(place, row)
        return msgspec.json.decode(kept, type=BillingCycle) if kept is not None else None

    def keep_cycle(self, cycle: BillingCycle) -> None:
        place = self._cycle_place()
        self._outbox.put([("SET", place, self._seal.close(place, msgspec.json.encode(cycle)), "EX", MARKS_KEPT_S)])

    async def aclose(self) -> None:
        """The outbox is not ours."""
        if self._taking_back is not None:
            self._taking_back.cancel()
            await asyncio.wait([self._taking_back], timeout=1)

    def _place(self, scope: str) -> bytes:
        return self._calls.key(KIND, self._seal.name("scope", scope.encode()))

    def _cycle_place(self) -> bytes:
        return self._calls.key("cycle1")


def _fields(since: str, today: str, measure: Measure) -> list[str]:
    """What has to be added up."""
    if since == EVER:
        return [_field(ALL_DAYS, measure).decode()]
    last, days = date.fromisoformat(today), list[str]()
    while last.isoformat() >= since and len(days) < LONGEST_WINDOW:
        days.append(last.isoformat())
        last -= timedelta(days=1)
    return [_field(day, measure).decode() for day in days] or [_field(today, measure).decode()]


def _amounts(day: str, amount: Spent) -> dict[bytes, float]:
    return {
        _field(one, measure): amount.of(measure) for measure in Measure if amount.of(measure) for one in (day, ALL_DAYS)
    }


def _spent(known: dict[bytes, bytes | None], days: Sequence[str]) -> Spent:
    def total(measure: Measure) -> float:
        return sum(number(known.get(_field(day, measure))) for day in days)

    return Spent(
        round(total(Measure.RUNS)), round(total(Measure.TOKENS)), round(total(Measure.UNCACHED)), total(Measure.CENTS)
    )


def _field(day: str, measure: Measure) -> bytes:
    return f"{day} {measure.value}".encode()


def _kept(scope: str) -> int:
    return CONVERSATIONS_KEPT_S if scope.startswith(CONVERSATION_PREFIX) else 0


def _number(amount: float) -> str:
    return repr(amount) if amount % 1 else str(int(amount))
