"""The named keys of a cluster: one sealed row in Redis, changed by compare-and-set, and a copy of it in the data
directory of each replica, which is renewed at once when they change and goes on while Redis is away.

The copy is a file of named keys like any other, so whatever looks keys up does it there. Knows nothing of who asks with
a key.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ..core.errors import ErrorKind, GatewayError
from ..keys.key_file import KeyFile
from ..keys.named_key import Keys, dump, load
from .calls import Calls
from .link import RedisAway
from .news import News
from .seal import Seal

log = logging.getLogger(__name__)

CHANGED: Final = "keys"
TRIES: Final = 20

CHANGE: Final = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1"""
"""KEYS: the row. ARGV: the row as it was read, the row as it shall be."""


class ClusterKeys:
    def __init__(self, calls: Calls, seal: Seal, news: News) -> None:
        self._calls = calls
        self._seal = seal
        self._news = news
        self._place = calls.key("keys")

    async def read(self) -> Keys | None:
        """None: there never was one. Raises GatewayError when nobody can tell."""
        _, keys = await self._read()
        return keys

    async def change(self, work: Callable[[Keys], Keys]) -> Keys:
        """What `work` makes of them. Raises GatewayError, also what `work` raises."""
        for _ in range(TRIES):
            row, known = await self._read()
            keys = work(known or ())
            sealed = self._seal.close(self._place, dump(keys))
            try:
                (done,) = await self._calls.run([("EVAL", CHANGE, 1, self._place, row, sealed)])
                if done:
                    await self._calls.run([self._news.telling(CHANGED)])
                    return keys
            except RedisAway as away:
                raise _unknown("changed", str(away)) from None
        raise _unknown("changed", "others change them all the time")

    async def _read(self) -> tuple[bytes, Keys | None]:
        try:
            (row,) = await self._calls.run([("GET", self._place)])
        except RedisAway as away:
            raise _unknown("read", str(away)) from None
        if row is None:
            return b"", None
        opened = self._seal.open(self._place, row)
        if opened is None:
            raise _unknown("read", "they were written with another cluster key, or by another version")
        try:
            return row, load(opened)
        except ValueError as problem:
            raise _unknown("read", str(problem)) from None


class KeyCopy:
    """The copy that one replica has."""

    def __init__(self, keys: ClusterKeys, copy: KeyFile, own: KeyFile, news: News) -> None:
        """`own`: the keys that this gateway had before it joined."""
        self._keys = keys
        self._copy = copy
        self._own = own
        news.on(CHANGED, self._changed)

    async def start(self) -> None:
        """Before the first request. Redis away: those that were known. Raises GatewayError when there is no copy
        either, because then nobody knows whether clients need a key."""
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
        keys = await self._keys.read()
        if keys is None and (own := await asyncio.to_thread(self._own.read)):
            keys = await self._keys.change(lambda known: known or own)
            log.info("the %d keys of this gateway are the cluster's from now on", len(own))
        if keys is not None and keys != await asyncio.to_thread(self._copy.read):
            await asyncio.to_thread(self._copy.change, lambda _: keys)
        elif keys is None and self._copy.stamp() is None:
            await asyncio.to_thread(self._copy.change, lambda _: ())


def _unknown(what: str, why: str) -> GatewayError:
    return GatewayError(
        ErrorKind.OVERLOADED,
        f"The keys of the cluster could not be {what}: {why}.",
        hint="Look at Redis, and at --cluster and --cluster-key; then try again.",
    )
