"""The named keys of a cluster for `caretway key`: reads and changes them in Redis, for all gateways, with their usage.

Blocks like the file of a single gateway: each call opens its own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

from ..config import Settings

if TYPE_CHECKING:
    from ..cluster.keys import ClusterKeys
    from ..cluster.spent import RedisSpent
    from ..usage.key_file import Keys, NamedKey
    from .key import KeyRow

Found = TypeVar("Found")


class ClusterKeyFile:
    """Has the interface of `KeyFile`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(self) -> Keys:
        async def work(cluster: ClusterKeys, _: RedisSpent) -> Keys:
            return await cluster.read() or ()

        return self._run(work)

    def change(self, work: Callable[[Keys], Keys]) -> Keys:
        return self._run(lambda cluster, _: cluster.change(work))

    def rows(self, keys: Sequence[NamedKey], now: float) -> list[KeyRow]:
        """The keys with the usage counted by all gateways."""
        from .key import shared_rows

        return self._run(lambda _, spent: shared_rows(keys, spent, now))

    def _run(self, work: Callable[[ClusterKeys, RedisSpent], Awaitable[Found]]) -> Found:
        async def run() -> Found:
            from ..cluster.membership import open_keys

            async with AsyncExitStack() as stack:
                return await work(*open_keys(self._settings, stack))

        return asyncio.run(run())
