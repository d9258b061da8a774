"""The named keys of a cluster: one sealed row in Redis, changed by compare-and-set, and a copy in each replica's data
directory, which is updated at every change and stays valid while Redis is away. Each change has a number. If the row
has a lower number than the copy, the copy's keys are written back: an old row does not revive a revoked key, and a
Redis that lost its data gets the keys again.

The copy is an ordinary file of named keys, so key lookups read it as such.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import urandom
from typing import Final

import msgspec

from ..accounts.account import Account
from ..accounts.tokens import AccountStore
from ..core.errors import ErrorKind, GatewayError
from ..usage.key_file import MAX_BYTES, KeyFile, Keys, dump, load
from .link import RedisAway, RedisLink
from .outbox import News
from .seal import OVERHEAD, Seal, decoded

log = logging.getLogger(__name__)

CHANGED: Final = "keys"
TRIES: Final = 20

CHANGE: Final = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1"""
"""KEYS: the row. ARGV: the row as it was read, the new row."""


class ClusterKeys:
    def __init__(self, link: RedisLink, seal: Seal, news: News, copy: KeyFile) -> None:
        """`copy`: the file of the cluster's keys in this data directory."""
        self._link = link
        self._seal = seal
        self._news = news
        self._copy = copy
        self._place = link.key("keys")

    async def read(self) -> Keys | None:
        """The keys; None if the cluster never had any. Raises GatewayError if Redis is away."""
        return (await self.numbered())[1]

    async def numbered(self) -> tuple[int, Keys | None]:
        """The number of the last change, and the keys."""
        _, serial, keys = await self._current()
        return serial, keys

    async def change(self, work: Callable[[Keys], Keys]) -> Keys:
        """Replace the keys by `work(keys)`. Raises GatewayError, and whatever `work` raises."""
        for _ in range(TRIES):
            row, serial, known = await self._current()
            keys = work(known or ())
            if await self._write(row, serial + 1, keys):
                return keys
        raise _unknown("changed", "others change them all the time")

    async def _current(self) -> tuple[bytes, int, Keys | None]:
        """The row, its number and its keys."""
        for _ in range(TRIES):
            row, serial, keys = await self._read()
            newest, known = await asyncio.to_thread(self._copy.numbered)
            if not newest or serial > newest or (serial == newest and keys == known):
                return row, serial, keys
            place = self._place.decode()
            log.warning("the row %s in Redis is older than the keys known here: these are put back", place)
            await self._write(row, newest + 1, known)
        raise _unknown("read", "others change them all the time")

    async def _write(self, row: bytes, serial: int, keys: Keys) -> bool:
        """Replace `row` in Redis. False if another gateway has changed the row. The keys are also written to the copy
        in this data directory, if there is one: an attacker with access to Redis could hold back the notice."""
        sealed = self._seal.close(self._place, dump(keys, serial))
        try:
            (done,) = await self._link.run([("EVAL", CHANGE, 1, self._place, row, sealed)])
            if done:
                try:
                    await self._link.run([self._news.telling(CHANGED)])
                finally:
                    if self._copy.stamp() is not None:
                        await asyncio.to_thread(self._copy.keep, serial, keys)
        except RedisAway as away:
            raise _unknown("changed", str(away)) from None
        return bool(done)

    async def _read(self) -> tuple[bytes, int, Keys | None]:
        try:
            (row,) = await self._link.run([("GETRANGE", self._place, 0, MAX_BYTES + OVERHEAD)])
        except RedisAway as away:
            raise _unknown("read", str(away)) from None
        if not row:
            return b"", 0, None
        opened = self._seal.open(self._place, row)
        if opened is None:
            raise _unknown("read", "they were written with another cluster key, or by another version")
        try:
            found = load(opened)
        except ValueError as problem:
            raise _unknown("read", str(problem)) from None
        return row, found.serial, found.keys


class KeyCopy:
    """One replica's copy of the cluster's keys."""

    def __init__(self, keys: ClusterKeys, copy: KeyFile, own: KeyFile, news: News) -> None:
        """`own`: the keys that this gateway had before it joined."""
        self._keys = keys
        self._copy = copy
        self._own = own
        news.on(CHANGED, self._changed)

    async def start(self) -> None:
        """Update the copy before the first request; while Redis is away the copy is used as it is. Raises GatewayError
        if there is no copy either: then it is unknown whether clients need a key."""
        try:
            await self._renew()
        except GatewayError as problem:
            if self._copy.stamp() is None:
                raise
            log.warning("the keys of the cluster that were known go on working: %s", problem.message)

    async def _changed(self, _: str) -> None:
        try:
            await self._renew()
        except GatewayError as problem:
            log.warning("the keys that were known go on working: %s", problem.message)

    async def _renew(self) -> None:
        serial, keys = await self._keys.numbered()
        if keys is None and (own := await asyncio.to_thread(self._own.read)):
            await self._keys.change(lambda known: known or own)
            serial, keys = await self._keys.numbered()
            log.info("the %d keys of this gateway are the cluster's from now on", len(own))
        if keys is not None and (serial, keys) != await asyncio.to_thread(self._copy.numbered):
            await asyncio.to_thread(self._copy.keep, serial, keys)
            if (serial, keys) != await asyncio.to_thread(self._copy.numbered):
                log.warning("the row of keys in Redis has a key that was revoked: it is taken out")
                serial, keys = await self._keys.numbered()
                await asyncio.to_thread(self._copy.keep, serial, keys or ())
        elif keys is None and self._copy.stamp() is None:
            await asyncio.to_thread(self._copy.keep, 0, ())


def _unknown(what: str, why: str) -> GatewayError:
    return GatewayError(
        ErrorKind.OVERLOADED,
        f"The keys of the cluster could not be {what}: {why}.",
        hint="Look at Redis, and at --cluster and --cluster-key; then try again.",
    )


# ---- sign in

# Renews an account's tokens once for all replicas: a lock in Redis in addition to the local lock, and the new tokens,
# sealed, for the other replicas. While Redis is away each replica renews for itself, as a single gateway does.

LOCK_S: Final = 60
"""Seconds until the lock of a dead gateway expires: longer than any renewal takes."""
PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.05
MAX_SIGN_IN_BYTES: Final = 65_536
"""Bytes that are read of an account."""
KEPT_S: Final = 90 * 86_400

RELEASE: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class SharedSignIn:
    """An `AccountStore` whose account is shared with other replicas."""

    def __init__(self, local: AccountStore, link: RedisLink, seal: Seal, url: str) -> None:
        """`url`: the address of the Cursor service."""
        self._local = local
        self._link = link
        self._seal = seal
        self._url = url

    def stamp(self) -> object:
        return self._local.stamp()

    async def original(self, account: Account, now: float) -> Account | None:
        return await self._local.original(account, now)

    async def read(self) -> Account | None:
        """The newer of the local and the shared tokens of one sign-in."""
        ours = await self._local.read()
        if ours is None or self._link.away:
            return ours
        place = self._place(ours)
        try:
            (row,) = await self._link.run([("GETRANGE", place, 0, MAX_SIGN_IN_BYTES)])
        except RedisAway as away:
            log.warning("the tokens of the other gateways are not known: %s", away)
            return ours
        theirs = decoded(self._seal.open(place, row), Account, msgspec.json.decode)
        if theirs is None or max(theirs.received_at, theirs.refused_at) <= max(ours.received_at, ours.refused_at):
            return ours
        await self._local.write(theirs)
        return theirs

    async def write(self, account: Account) -> None:
        place = self._place(account)
        try:
            await self._link.run([("SET", place, self._seal.close(place, msgspec.json.encode(account)), "EX", KEPT_S)])
        except RedisAway as away:
            log.warning("the other gateways do not know the renewed tokens: %s", away)
        await self._local.write(account)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        async with self._local.locked():
            ours = await self._local.read()
            place = None if ours is None else self._link.key("lock", self._name(ours))
            token = urandom(12).hex().encode()
            held = place is not None and await self._take(place, token)
            try:
                yield
            finally:
                if held:
                    await self._release(place, token)

    async def _take(self, place: bytes, token: bytes) -> bool:
        """Wait for the lock of a renewal. False if Redis is away: then each replica renews for itself."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                (taken,) = await self._link.run([("SET", place, token, "NX", "EX", LOCK_S)])
            except RedisAway as away:
                log.warning("a token is renewed without a look at the other gateways: %s", away)
                return False
            if taken is not None:
                return True
            if time.monotonic() >= give_up:
                raise GatewayError(
                    ErrorKind.TIMEOUT,
                    f"Another gateway of the cluster has been renewing the sign-in for {PATIENCE_S:g} s.",
                    hint="Try again soon; `caretway status --cluster` shows the gateways.",
                )
            await asyncio.sleep(LOOK_S)

    async def _release(self, place: bytes | None, token: bytes) -> None:
        try:
            await self._link.run([("EVAL", RELEASE, 1, place, token)])
        except RedisAway:
            return  # the lock expires

    def _place(self, account: Account) -> bytes:
        return self._link.key("account", self._name(account))

    def _name(self, account: Account) -> bytes:
        """The name of the account's row: from the account or the API key, because tokens change."""
        known = account.name or account.api_key or hashlib.sha256(account.refresh_token.encode()).hexdigest()
        return self._seal.name("account", self._url.encode(), known.encode())
