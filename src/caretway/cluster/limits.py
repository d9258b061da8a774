"""Rate limits of one gateway key over all replicas: a token bucket for requests a minute and leases for responses at
once, both in Redis, by its clock. Leases of a replica that died end by themselves. Redis away: each replica goes on
with its own limits.

One round trip for a request that has a key, none for others. Exact while Redis answers.
"""

import asyncio
from os import urandom
from typing import Final

from ..processes.tasks import spawn
from .calls import Calls, number
from .link import RedisAway
from .outbox import ClusterOutbox
from .seal import Seal

LEASE_S: Final = 15
"""How long a response of a replica that died takes a place."""
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
"""KEYS: bucket, leases. ARGV: responses at once, requests a minute, the lease, its seconds, those of the bucket.
0: come in; 1: too early, with the seconds to wait; 2: too many at once."""

RENEW: Final = """
local t = redis.call('TIME')
for at = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', t[1] + ARGV[1], ARGV[at]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1"""


class SharedLimits:
    def __init__(self, calls: Calls, seal: Seal, outbox: ClusterOutbox, *, concurrent: int, per_minute: int) -> None:
        self._calls = calls
        self._seal = seal
        self._outbox = outbox
        self._concurrent = concurrent
        self._per_minute = per_minute
        self._boot = urandom(6).hex()
        self._number = 0
        self._held: dict[str, set[bytes]] = {}
        """Caller -> its leases here."""
        self._renewing: asyncio.Task[None] | None = None

    async def enter(self, caller: str, *, turn: bool) -> tuple[str, float, bytes]:
        """(why not, or nothing; seconds to wait; the lease, to be given back). What is no turn takes a place as long as
        it is answered, and always finds one."""
        if self._calls.away:
            return "", 0.0, b""
        self._number += 1
        lease = f"{self._boot}.{self._number}".encode()
        asked = (self._concurrent if turn else MANY, self._per_minute, lease, LEASE_S, BUCKET_KEPT_S)
        try:
            ((verdict, wait),) = await self._calls.run([("EVAL", ENTER, 2, *self._places(caller), *asked)])
        except RedisAway:
            return "", 0.0, b""  # the limits of this replica are all there is
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
        return self._calls.key("bucket", name), self._calls.key("leases", name)
