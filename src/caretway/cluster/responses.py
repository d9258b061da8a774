"""Stored responses of the Responses API for all replicas: written to Redis when they are kept, looked up there when
they are not here, deleted everywhere. Of the account and key that made them, as in the file behind each replica.

The archive is asked in a thread, where waiting for Redis holds up no stream; a thread never waits for a Redis that is
away. Rows expire after `store_max_age` without use.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakMethod

import msgspec

from ..core.stored_response import StoredResponse
from .calls import Calls
from .link import TOTAL_S, RedisAway
from .news import News
from .outbox import ClusterOutbox
from .seal import SMALL, Seal

log = logging.getLogger(__name__)

MAX_BYTES: Final = 8 * 2**20
"""Of a response that is shared."""
MAX_ITEMS: Final = 256
"""Of one response that can be found by their ids."""
DELETED: Final = "response"

Found = TypeVar("Found")

KEEP: Final = """
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[1])
for at = 2, #KEYS do redis.call('SET', KEYS[at], ARGV[at + 1], 'EX', ARGV[1]) end
return 1"""
"""KEYS: the response, then its items. ARGV: seconds, then their rows."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    id: str
    owner: str
    body: bytes
    input: bytes
    previous: str | None
    item_ids: tuple[str, ...]


class LocalArchive(Protocol):
    def put(self, response: StoredResponse) -> None: ...

    def get(self, response_id: str) -> StoredResponse | None: ...

    def holder(self, owner: str, item_id: str) -> StoredResponse | None: ...

    def remove(self, response_id: str) -> bool: ...


class SharedResponses:
    """Opens the shelf of an account."""

    def __init__(self, calls: Calls, seal: Seal, outbox: ClusterOutbox, news: News, *, max_age_s: float) -> None:
        self.calls = calls
        self.seal = seal
        self.outbox = outbox
        self.news = news
        self.kept_s = max(1, int(max_age_s))
        self.loop = asyncio.get_running_loop()
        self._watchers: dict[str, tuple[LocalArchive, Callable[[], Callable[[str], None] | None]]] = {}
        news.on(DELETED, self._deleted)

    def shelf(self, local: LocalArchive, scope: str) -> "SharedArchive":
        return SharedArchive(self, local, scope)

    def watch(self, scope: str, local: LocalArchive, gone: Callable[[str], None]) -> None:
        """As long as the one who watches lives. The newest of an account counts."""
        self._watchers[scope] = local, WeakMethod(gone)
        for dead in [name for name, (_, one) in self._watchers.items() if one() is None]:
            del self._watchers[dead]

    async def _deleted(self, told: str) -> None:
        scope, _, response_id = told.partition(" ")
        local, gone = self._watchers.get(scope, (None, None))
        if local is not None:
            await asyncio.to_thread(local.remove, response_id)
        if gone is not None and (tell := gone()) is not None:
            tell(response_id)


class SharedArchive:
    """A `ResponseArchive`: the responses of one account."""

    def __init__(self, shared: SharedResponses, local: LocalArchive, scope: str) -> None:
        self._shared = shared
        self._local = local
        self._scope = scope

    def watch(self, gone: Callable[[str], None]) -> None:
        self._shared.watch(self._scope, self._local, gone)

    def put(self, response: StoredResponse) -> None:
        self._local.put(response)
        if response.size > MAX_BYTES:
            return  # not shared
        if _in_loop(self._shared.loop):
            self._publish(response)
        else:
            self._shared.loop.call_soon_threadsafe(self._publish, response)

    def _publish(self, response: StoredResponse) -> None:
        shared = self._shared
        row = Row(
            response.id, response.owner, response.body, response.input, response.previous, tuple(response.item_ids)
        )
        place = self._place(response.id)
        items = [self._item(response.owner, item) for item in response.item_ids[-MAX_ITEMS:]]
        rows = [shared.seal.close(place, msgspec.msgpack.encode(row))]
        rows += [shared.seal.close(item, response.id.encode()) for item in items]
        command = ("EVAL", KEEP, 1 + len(items), place, *items, shared.kept_s, *rows)
        shared.outbox.put([command], response.size)

    def get(self, response_id: str) -> StoredResponse | None:
        return self._local.get(response_id) or self._wait(self._fetched(response_id))

    def holder(self, owner: str, item_id: str) -> StoredResponse | None:
        return self._local.holder(owner, item_id) or self._wait(self._found(owner, item_id))

    def remove(self, response_id: str) -> bool:
        return self._local.remove(response_id) and bool(self._wait(self._removed(response_id)))

    # ---- Redis

    async def _fetched(self, response_id: str) -> StoredResponse | None:
        shared, place = self._shared, self._place(response_id)
        reading = [("GETRANGE", place, 0, 2 * MAX_BYTES), ("EXPIRE", place, shared.kept_s)]
        sealed, _ = await shared.calls.run(reading)
        opened = shared.seal.open(place, sealed)
        if opened is None:
            return None
        try:
            row = msgspec.msgpack.decode(opened, type=Row)
        except msgspec.DecodeError:
            return None
        return StoredResponse(row.id, row.owner, row.body, row.input, row.previous, row.item_ids)

    async def _found(self, owner: str, item_id: str) -> StoredResponse | None:
        place = self._item(owner, item_id)
        (sealed,) = await self._shared.calls.run([("GETRANGE", place, 0, SMALL)])
        response_id = self._shared.seal.open(place, sealed)
        found = await self._fetched(response_id.decode()) if response_id is not None else None
        return found if found is not None and found.owner == owner else None

    async def _removed(self, response_id: str) -> bool:
        shared = self._shared
        told = shared.news.telling(DELETED, f"{self._scope} {response_id}")
        await shared.outbox.ask([("DEL", self._place(response_id)), told])  # after it was written, if that is due
        return True

    def _wait(self, work: Coroutine[Any, Any, Found | None]) -> Found | None:
        """In a thread: what Redis says, within the link's time. In the event loop nobody may wait."""
        shared = self._shared
        if shared.calls.away or _in_loop(shared.loop):
            work.close()
            return None
        asked = asyncio.run_coroutine_threadsafe(work, shared.loop)
        try:
            return asked.result(TOTAL_S + 1)
        except RedisAway as failure:
            log.info("a stored response was not asked for in Redis: %s", failure)
        except TimeoutError:
            asked.cancel()
        return None

    def _place(self, response_id: str) -> bytes:
        name = self._shared.seal.name("response", self._scope.encode(), response_id.encode())
        return self._shared.calls.key("response", name)

    def _item(self, owner: str, item_id: str) -> bytes:
        name = self._shared.seal.name("item", self._scope.encode(), owner.encode(), item_id.encode())
        return self._shared.calls.key("item", name)


def _in_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
