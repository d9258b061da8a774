"""Counts the spending of all replicas in Redis. One script checks and counts a claim, so run counts are exact however
many gateways ask at once. While Redis is away, a run with a budget is refused, or allowed and counted later
(`cluster_budgets`).

Each scope has one hash, named by its HMAC, with a field for each day and measure and one for all days. Settled amounts
go through the outbox: exact, and kept while Redis is away. If the reply to a claim is lost, the claim may have been
counted, or a slow Redis may count it later: the claim is declared void, and its amount taken back if it was counted.
Days that no period reaches are deleted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from os import urandom
from typing import Final, Literal

import msgspec

from ..core.errors import ErrorKind, GatewayError
from ..core.records import Observer, RefusedRequest, RunRecord, TurnRecord
from ..processes.tasks import spawn
from ..usage.budget import EVER, BillingCycle, Measure, Spent
from ..usage.spent_store import CONVERSATION_PREFIX, Claim, ClaimOutcome
from .link import Command, RedisAway, RedisLink, number
from .outbox import AGAIN_S, ClusterOutbox
from .seal import SMALL, Seal, decoded

log = logging.getLogger(__name__)

WhenAway = Literal["refuse", "allow"]
CONVERSATIONS_KEPT_S: Final = 90 * 86_400
MARKS_KEPT_S: Final = 450 * 86_400
MAX_VOID: Final = 4_096
"""Void claims whose amounts are still to be taken back."""
LONGEST_WINDOW: Final = 400
"""How many days are added up at most: a period is a billing cycle, or all time."""
MAX_TIDIED: Final = 10_000
"""Hashes whose old days this process has deleted."""
ALL_DAYS: Final = "all"
KIND: Final = "spent1"
"""Includes a version: counts cannot be recomputed, so replicas that count differently use separate hashes."""
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
"""KEYS: the hashes of the scopes that are counted, then of the scopes that are only read, then the claim itself.
ARGV[1]: the claim as JSON. Returns {2} if the claim is void."""

TAKE_BACK: Final = """
if redis.call('SET', KEYS[#KEYS], 'void', 'EX', 120, 'GET') ~= 'counted' then return 0 end
local asked = cjson.decode(ARGV[1])
for k, _ in ipairs(asked.kept) do
  for field, amount in pairs(asked.amounts) do redis.call('HINCRBYFLOAT', KEYS[k], field, '-' .. amount) end
end
return 1"""
"""Same KEYS and ARGV as RESERVE. Makes the claim void."""

TIDY: Final = """
local old = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.match(field, '^%d') and field < ARGV[1] then old[#old + 1] = field end
end
for at = 1, #old, 1000 do redis.call('HDEL', KEYS[1], unpack(old, at, math.min(at + 999, #old))) end
return #old"""
"""KEYS: the hash of a scope. ARGV: the first day to keep."""


class RedisSpent:
    """A `SpentStore` for all replicas."""

    def __init__(self, link: RedisLink, seal: Seal, outbox: ClusterOutbox, when_away: WhenAway) -> None:
        self._link = link
        self._seal = seal
        self._outbox = outbox
        self._when_away = when_away
        self._warned = False
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
        self._warned = False
        allowed, sums = found
        spent = [number(one) for one in sums]
        if allowed:
            added = (claim.amount.of(limit.measure) if limit.scope in claim.scopes else 0.0 for limit in claim.limits)
            spent = [now + more for now, more in zip(spent, added, strict=True)]
        return ClaimOutcome(bool(allowed), tuple(spent))

    def _take_back(self, command: Command) -> None:
        """Make a claim void as soon as Redis is back."""
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
        names = [*map(self._place, places), self._link.key("claim1", urandom(12).hex().encode())]
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
        if not self._warned:
            self._warned = True
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
        """Delete old days, once a day."""
        if len(self._tidied) >= MAX_TIDIED:
            self._tidied.clear()
        self._tidied.add((day, place))
        first = date.fromisoformat(day) - timedelta(days=LONGEST_WINDOW)
        self._outbox.put([("EVAL", TIDY, 1, place, first.isoformat())])

    async def spent(self, scope: str, since: str) -> Spent:
        """Spending for display; it decides nothing. While Redis is away it is zero."""
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
        """True for the first replica that sets this mark, and for every replica while Redis is away."""
        place = self._link.key("mark1", self._seal.name("mark", mark.encode()))
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
        return decoded(self._seal.open(place, row), BillingCycle, msgspec.json.decode)

    def keep_cycle(self, cycle: BillingCycle) -> None:
        place = self._cycle_place()
        self._outbox.put([("SET", place, self._seal.close(place, msgspec.json.encode(cycle)), "EX", MARKS_KEPT_S)])

    async def aclose(self) -> None:
        """The outbox stays open: its owner closes it."""
        if self._taking_back is not None:
            self._taking_back.cancel()
            await asyncio.wait([self._taking_back], timeout=1)

    def _place(self, scope: str) -> bytes:
        return self._link.key(KIND, self._seal.name("scope", scope.encode()))

    def _cycle_place(self) -> bytes:
        return self._link.key("cycle1")


def _fields(since: str, today: str, measure: Measure) -> list[str]:
    """The fields that add up to the spending since a day."""
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


# ---- limits

# Rate limits of one gateway key over all replicas: a token bucket for requests a minute and leases for concurrent
# responses, both in Redis, by its clock. Leases of a dead replica expire. While Redis is away each replica applies its
# own limits.

LEASE_S: Final = 15
"""Seconds until a lease of a dead replica expires."""
RENEW_S: Final = 5.0
BUCKET_KEPT_S: Final = 120
MANY: Final = 1_000_000
MAX_WAIT_S: Final = 60.0

ENTER: Final = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local most, full, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local had = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(had[1] or full)
tokens = math.min(full, tokens + math.max(0, now - tonumber(had[2] or now)) * full / 60)
if tokens < 1 then return {1, tostring((1 - tokens) * 60 / full)} end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if redis.call('ZCARD', KEYS[2]) >= most then return {2, '1'} end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens - 1), 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[2], now + ARGV[4], lease)
redis.call('EXPIRE', KEYS[2], ARGV[4])
return {0, '0'}"""
"""KEYS: bucket, leases. ARGV: concurrent responses, requests a minute, the lease, its seconds, the bucket's seconds.
Returns 0: admitted; 1: too early, with the seconds to wait; 2: too many at once."""

RENEW: Final = """
local t = redis.call('TIME')
for at = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', t[1] + ARGV[1], ARGV[at]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1"""


class SharedLimits:
    def __init__(self, link: RedisLink, seal: Seal, outbox: ClusterOutbox, *, concurrent: int, per_minute: int) -> None:
        self._link = link
        self._seal = seal
        self._outbox = outbox
        self._concurrent = concurrent
        self._per_minute = per_minute
        self._boot = urandom(6).hex()
        self._number = 0
        self._held: dict[str, set[bytes]] = {}
        """Caller -> the leases that it holds here."""
        self._renewing: asyncio.Task[None] | None = None

    async def enter(self, caller: str, *, turn: bool) -> tuple[str, float, bytes]:
        """Returns (`early`, `many` or empty; seconds to wait; the lease to give back). A request that is no turn takes
        a lease while it is answered, and is never refused as too many."""
        if self._link.away:
            return "", 0.0, b""
        self._number += 1
        lease = f"{self._boot}.{self._number}".encode()
        asked = (self._concurrent if turn else MANY, self._per_minute, lease, LEASE_S, BUCKET_KEPT_S)
        try:
            ((verdict, wait),) = await self._link.run([("EVAL", ENTER, 2, *self._places(caller), *asked)])
        except RedisAway:
            return "", 0.0, b""  # only this replica's own limits apply
        if verdict:
            return ("early" if verdict == 1 else "many"), min(number(wait), MAX_WAIT_S), b""
        self._held.setdefault(caller, set()).add(lease)
        if self._renewing is None:
            self._renewing = spawn(self._renew(), "renew-leases")
        return "", 0.0, lease

    def leave(self, caller: str, lease: bytes) -> None:
        leases = self._held.get(caller)
        if leases is None or lease not in leases:
            return
        leases.discard(lease)
        if not leases:
            del self._held[caller]
        self._outbox.put([("ZREM", self._places(caller)[1], lease)])

    async def aclose(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing], timeout=1)
        for caller, leases in list(self._held.items()):
            for lease in list(leases):
                self.leave(caller, lease)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            for caller, leases in self._held.items():
                self._outbox.put([("EVAL", RENEW, 1, self._places(caller)[1], LEASE_S, *leases)])

    def _places(self, caller: str) -> tuple[bytes, bytes]:
        name = self._seal.name("caller", caller.encode())
        return self._link.key("bucket", name), self._link.key("leases", name)


# ---- totals

# The usage of all replicas by day, model and key: counts in Redis, next to each replica's own ledger. Days are UTC
# days, so that replicas in several time zones agree.

KEPT_S: Final = 400 * 86_400
MAX_DAYS: Final = 400
MAX_NAMED: Final = 10_000
"""Labels that this process knows to be in Redis."""
_LABEL: Final = b"label"
_MEASURES: Final = ("runs", "responses", "refused", "input", "output", "cached", "cents")


class TotalRow(msgspec.Struct, frozen=True):
    """One key's usage of one model on one day."""

    day: str
    model: str
    key: str
    """The key's name; empty if the gateway requires no key."""
    runs: int = 0
    responses: int = 0
    refused: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    cents: float = 0.0


class Label(msgspec.Struct, frozen=True, array_like=True):
    model: str
    key: str


class ClusterTotals(Observer):
    def __init__(self, link: RedisLink, seal: Seal, outbox: ClusterOutbox, clock: Callable[[], float]) -> None:
        self._link = link
        self._seal = seal
        self._outbox = outbox
        self._clock = clock
        self._named: set[tuple[str, Label]] = set()

    # ---- observer

    def response_ended(self, record: TurnRecord) -> None:
        self._count(Label(record.model, record.caller.key), {"responses": 1})

    def request_refused(self, record: RefusedRequest) -> None:
        if record.turn:
            self._count(Label(record.model, record.caller.key), {"refused": 1})

    def run_ended(self, record: RunRecord) -> None:
        used = record.usage
        amounts: dict[str, float] = {} if record.again else {"runs": 1}
        if used is not None:
            amounts |= {
                "input": used.input_tokens or 0,
                "output": used.output_tokens or 0,
                "cached": used.cache_read_tokens or 0,
                "cents": used.cents or 0.0,
            }
        self._count(Label(record.model, record.origin.caller.key), amounts)

    def _count(self, label: Label, amounts: dict[str, float]) -> None:
        day = datetime.fromtimestamp(self._clock(), UTC).date().isoformat()
        place = _place(self._link, day)
        name = self._seal.name("total", day.encode(), label.model.encode(), label.key.encode())
        if (day, label) not in self._named:
            if len(self._named) >= MAX_NAMED:
                self._named.clear()
            self._named.add((day, label))
            sealed = self._seal.close(place + name, msgspec.msgpack.encode(label))
            self._outbox.put([("HSET", place, name + b" " + _LABEL, sealed), ("EXPIRE", place, KEPT_S)])
        self._outbox.count(place, {name + b" " + one.encode(): more for one, more in amounts.items()}, KEPT_S)


async def read_totals(link: RedisLink, seal: Seal, since: date, until: date) -> list[TotalRow]:
    """Usage from `since` to `until`, both days included, sorted by day, model and key. Raises RedisAway."""
    days = [since + timedelta(days=at) for at in range(min(MAX_DAYS, (until - since).days + 1))]
    if not days:
        return []
    places = [_place(link, day.isoformat()) for day in days]
    found = await link.run([("HGETALL", place) for place in places])
    rows = []
    for day, place, pairs in zip(days, places, found, strict=True):
        known = pairs if isinstance(pairs, dict) else dict(zip(pairs[::2], pairs[1::2], strict=True))
        for field, sealed in known.items():
            name, _, what = field.partition(b" ")
            label = decoded(seal.open(place + name, sealed) if what == _LABEL else None, Label)
            if label is None:
                continue
            numbers = {one: number(known.get(name + b" " + one.encode())) for one in _MEASURES}
            whole = {one: round(count) for one, count in numbers.items() if one != "cents"}
            rows.append(TotalRow(day.isoformat(), label.model, label.key, cents=numbers["cents"], **whole))
    return sorted(rows, key=lambda row: (row.day, row.model, row.key))


def _place(link: RedisLink, day: str) -> bytes:
    return link.key("totals1", day.encode())
