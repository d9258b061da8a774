"""One renewal of an account's tokens for all replicas: a lock in Redis beside the local one, and the renewed tokens,
sealed, for the others to take. Redis away: each replica renews for itself, as single gateways do.

A refresh token may work once. So the holder of the lock looks for the others' tokens before it asks Cursor. The lock
ends by itself when its holder dies.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import urandom
from typing import Final, Protocol

import msgspec

from ..accounts.account import Account
from ..core.errors import ErrorKind, GatewayError
from .calls import Calls
from .link import RedisAway
from .seal import Seal

log = logging.getLogger(__name__)

LOCK_S: Final = 60
"""Longer than a renewal can take."""
PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.05
MAX_BYTES: Final = 65_536
"""Of an account that is read."""
KEPT_S: Final = 90 * 86_400

RELEASE: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class LocalSignIn(Protocol):
    def stamp(self) -> object: ...

    async def read(self) -> Account | None: ...

    async def write(self, account: Account) -> None: ...

    async def original(self, account: Account, now: float) -> Account | None: ...

    def locked(self) -> AbstractAsyncContextManager[None]: ...


class SharedSignIn:
    """A `Shelf` whose account other replicas have too."""

    def __init__(self, local: LocalSignIn, calls: Calls, seal: Seal, url: str) -> None:
        """`url`: the address that the sign-in is for."""
        self._local = local
        self._calls = calls
        self._seal = seal
        self._url = url

    def stamp(self) -> object:
        return self._local.stamp()

    async def original(self, account: Account, now: float) -> Account | None:
        return await self._local.original(account, now)

    async def read(self) -> Account | None:
        """The newer one of what is here and what the others have of the same sign-in."""
        ours = await self._local.read()
        if ours is None or self._calls.away:
            return ours
        place = self._place(ours)
        try:
            (row,) = await self._calls.run([("GETRANGE", place, 0, MAX_BYTES)])
        except RedisAway as away:
            log.warning("the tokens of the other gateways are not known: %s", away)
            return ours
        theirs = _read(self._seal.open(place, row))
        if theirs is None or max(theirs.received_at, theirs.refused_at) <= max(ours.received_at, ours.refused_at):
            return ours
        await self._local.write(theirs)
        return theirs

    async def write(self, account: Account) -> None:
        place = self._place(account)
        try:
            await self._calls.run([("SET", place, self._seal.close(place, msgspec.json.encode(account)), "EX", KEPT_S)])
        except RedisAway as away:
            log.warning("the other gateways do not know the renewed tokens: %s", away)
        await self._local.write(account)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        async with self._local.locked():
            ours = await self._local.read()
            place = None if ours is None else self._calls.key("lock", self._name(ours))
            token = urandom(12).hex().encode()
            held = place is not None and await self._take(place, token)
            try:
                yield
            finally:
                if held:
                    await self._release(place, token)

    async def _take(self, place: bytes, token: bytes) -> bool:
        """False: Redis is away, and everybody is alone."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                (taken,) = await self._calls.run([("SET", place, token, "NX", "EX", LOCK_S)])
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
            await self._calls.run([("EVAL", RELEASE, 1, place, token)])
        except RedisAway:
            return  # it ends by itself

    def _place(self, account: Account) -> bytes:
        return self._calls.key("account", self._name(account))

    def _name(self, account: Account) -> bytes:
        """The name of the account's row: of the person or the key, because tokens change."""
        known = account.name or account.api_key or hashlib.sha256(account.refresh_token.encode()).hexdigest()
        return self._seal.name("account", self._url.encode(), known.encode())


def _read(row: bytes | None) -> Account | None:
    try:
        return None if row is None else msgspec.json.decode(row, type=Account)
    except (msgspec.DecodeError, ValueError):
        return None
