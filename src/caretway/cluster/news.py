"""What replicas send each other at once: that a conversation or a response is forgotten, that keys have changed. A
stream in Redis, read from where this replica stopped, so nothing is missed while Redis was away or the replica was not
there.

The stream is bounded by length. News is sealed and may arrive twice; receivers must tolerate that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from redis.asyncio import Redis

from ..processes.tasks import spawn
from .calls import Calls, ClusterLink
from .link import RedisAway
from .outbox import ClusterOutbox
from .seal import Seal

log = logging.getLogger(__name__)

BLOCK_MS: Final = 800
"""Shorter than the link waits for an answer."""
AGAIN_S: Final = 0.5
KEPT: Final = 10_000
AT_ONCE: Final = 500
FROM_THE_BEGINNING: Final = b"0-0"

Hear = Callable[[str], Awaitable[None]]


class News:
    def __init__(self, link: ClusterLink, calls: Calls, seal: Seal, outbox: ClusterOutbox) -> None:
        self._link = link
        self._seal = seal
        self._outbox = outbox
        self._place = calls.key("news1")
        self._last = FROM_THE_BEGINNING
        self._hearers: dict[str, Hear] = {}
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    def on(self, kind: str, hear: Hear) -> None:
        self._hearers[kind] = hear

    def telling(self, kind: str, what: str = "") -> tuple[Any, ...]:
        """The command that tells all replicas, this one included."""
        told = self._seal.close(self._place, f"{kind} {what}".encode())
        return ("XADD", self._place, "MAXLEN", "~", KEPT, "*", b"s", told)

    def tell(self, kind: str, what: str = "") -> None:
        self._outbox.put([self.telling(kind, what)])

    def start(self) -> None:
        self._listening = spawn(self._listen(), "news of the cluster")

    async def aclose(self) -> None:
        self._closed = True
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening], timeout=1)

    async def _listen(self) -> None:
        while not self._closed:
            try:
                found = await self._link.do(self._read)
            except RedisAway:
                await asyncio.sleep(AGAIN_S)  # the link has said so, once
                continue
            for _, rows in found:
                for at, row in rows:
                    self._last = at
                    await self._hear(row)

    async def _read(self, redis: "Redis") -> list[Any]:
        command = ("XREAD", "COUNT", AT_ONCE, "BLOCK", BLOCK_MS, "STREAMS", self._place, self._last)
        client: Any = redis
        found = await client.execute_command(*command)
        return list(found.items() if isinstance(found, dict) else found or ())

    async def _hear(self, row: Any) -> None:
        told = self._seal.open(self._place, row.get(b"s"))
        if told is None:
            return  # of another version or key
        kind, _, what = told.decode("utf-8", "replace").partition(" ")
        hear = self._hearers.get(kind)
        if hear is not None:
            try:
                await hear(what)
            except Exception:  # one piece of news that cannot be used must not end all of them
                log.exception("news of the cluster could not be used: %s", kind)
