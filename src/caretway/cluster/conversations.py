"""Finished conversations for all replicas: a turn is published when it ends, fetched by any replica that continues it,
and forgotten by all. The local store comes first: Redis is asked only for turns that are not here.

A conversation is one Redis hash with the pieces of all its turns, each once, and a row for each turn, found by the
fingerprint of its transcript. They expire together after `store_max_age` without use. If Redis has lost the earlier
pieces of a turn, the turn is published again with all of them. A conversation that is too large is not shared; other
replicas replay it.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakMethod

import msgspec
from msgspec.structs import replace

from ..core.stored_response import StoredResponse
from ..core.turn import Snapshot
from ..processes.tasks import spawn
from .link import TOTAL_S, Command, RedisAway, RedisLink
from .outbox import ClusterOutbox, Hear, News
from .seal import SMALL, Seal, decoded

log = logging.getLogger(__name__)

MAX_BYTES: Final = 8 * 2**20
"""Size limit of a shared conversation."""
MAX_AT_ONCE: Final = 2**20
"""Bytes that are sealed in the event loop, about a millisecond of work. More is sealed in a thread."""
MAX_KNOWN: Final = 100_000
"""Pieces whose names this replica remembers."""
FORGET: Final = "forget"
_TURN: Final = b"t"
_PIECE: Final = b"p"

PUBLISH: Final = """
if redis.call('EXISTS', KEYS[3]) == 1 then return 2 end
if ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
for at = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[2])
return 1"""
"""KEYS: the conversation, the turn, the mark of a forgotten conversation. ARGV: a piece that must exist, seconds, the
row of the turn, then fields and values. Returns 0: that piece is missing; 2: the conversation is forgotten."""


class LocalStore(Protocol):
    """The store of this replica."""

    @property
    def settled(self) -> bool: ...

    async def settle(self) -> None: ...

    def recall(self, key: bytes) -> Snapshot | None: ...

    def remember(self, key: bytes, snapshot: Snapshot) -> None: ...

    async def pieces(self, parent: bytes, max_bytes: int) -> dict[bytes, bytes] | None: ...

    async def forget(self, conversation: str) -> int: ...

    async def aclose(self) -> None: ...


class TurnPiece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: bytes
    """The backend's name of the piece."""
    field: bytes
    """Its field in the conversation's hash."""
    size: int


class TurnRow(msgspec.Struct, frozen=True, array_like=True):
    backend: str
    conversation: str
    state: bytes
    pieces: tuple[TurnPiece, ...]


async def _nobody_hears(_conversation: str) -> None:
    pass


class SharedConversations:
    """A `ConversationStore` in front of the local one."""

    shared = True

    def __init__(
        self,
        local: LocalStore,
        link: RedisLink,
        seal: Seal,
        outbox: ClusterOutbox,
        news: News,
        *,
        max_age_s: float,
        hear: Hear = _nobody_hears,
    ) -> None:
        """`hear`: called on this gateway when any gateway forgets a conversation."""
        self._local = local
        self._link = link
        self._seal = seal
        self._outbox = outbox
        self._news = news
        self._kept_s = max(1, int(max_age_s))
        self._known: OrderedDict[bytes, tuple[TurnPiece, ...]] = OrderedDict()
        """Turn -> all its pieces, which Redis had when last seen."""
        self._known_pieces = 0
        self._hear = hear
        news.on(FORGET, self._forgotten)

    # ---- the interface of the local store

    @property
    def settled(self) -> bool:
        return self._local.settled

    async def settle(self) -> None:
        await self._local.settle()

    def recall(self, key: bytes) -> Snapshot | None:
        found = self._local.recall(key)
        return None if found is None else replace(found, parent=key + (found.parent or b""))

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        before, parent = None, snapshot.parent
        if parent is not None:
            before, parent = parent[: len(key)], parent[len(key) :]
        snapshot = replace(snapshot, parent=parent)
        self._local.remember(key, snapshot)
        if snapshot.conversation:
            self._publish(key, snapshot, before)

    async def forget(self, conversation: str) -> int:
        """Never raises GatewayError: while Redis is away only the local copy is deleted; the rows in Redis expire."""
        count = await self._local.forget(conversation)
        talk = self._talk(conversation)
        try:
            ((*fields,),) = await self._link.run([("HKEYS", talk)])
            turns = [self._link.key("turn", field[1:]) for field in fields if field[:1] == _TURN]
            mark = ("SET", self._mark(conversation), b"1", "EX", self._kept_s)
            await self._link.run([mark, ("DEL", talk, *turns), self._news.telling(FORGET, conversation)])
        except RedisAway as away:
            log.warning("a conversation is forgotten here only: %s", away)
            return count
        return max(count, len(turns))

    async def aclose(self) -> None:
        await self._local.aclose()

    async def _forgotten(self, conversation: str) -> None:
        await self._hear(conversation)
        await self._local.forget(conversation)

    # ---- out

    def _publish(self, key: bytes, snapshot: Snapshot, before: bytes | None) -> None:
        known = self._known.get(before) if before is not None else ()
        new = sum(map(len, snapshot.blobs.values())) + len(snapshot.state)
        if known is None or new + sum(piece.size for piece in known) > MAX_BYTES:
            return  # too large to share: other gateways replay it
        if new > MAX_AT_ONCE:
            spawn(self._publish_aside(key, snapshot, known), "share-a-conversation")
            return
        command, pieces = self._publishing(key, snapshot, known, snapshot.blobs)
        self._learn(key, pieces)  # if Redis does not take them, the next turn detects it
        spawn(self._published(self._outbox.send([command], new), key, snapshot), "share-a-conversation")

    async def _publish_aside(self, key: bytes, snapshot: Snapshot, known: tuple[TurnPiece, ...]) -> None:
        command, pieces = await asyncio.to_thread(self._publishing, key, snapshot, known, snapshot.blobs)
        self._learn(key, pieces)
        sent = self._outbox.send([command], sum(map(len, snapshot.blobs.values())))
        await self._published(sent, key, snapshot)

    def _publishing(
        self, key: bytes, snapshot: Snapshot, known: tuple[TurnPiece, ...], new: Mapping[bytes, bytes]
    ) -> tuple[Command, tuple[TurnPiece, ...]]:
        """The command that publishes a turn, and all its pieces. `known`: pieces that Redis already has."""
        talk, turn_name = self._talk(snapshot.conversation), self._seal.name("turn", key)
        turn = self._link.key("turn", turn_name)
        pieces = {piece.name: piece for piece in known}
        fields: list[bytes] = [_TURN + turn_name, b""]
        for name, data in new.items():
            field = _PIECE + self._seal.name("piece", talk, hashlib.sha256(data).digest())
            pieces.pop(name, None)  # the newest come last
            pieces[name] = TurnPiece(name, field, len(data))
            fields += (field, self._seal.close(talk + field, data))
        row = TurnRow(snapshot.backend, snapshot.conversation, snapshot.state, tuple(pieces.values()))
        sealed = self._seal.close(turn, msgspec.msgpack.encode(row))
        needed = known[-1].field if known else b""
        mark = self._mark(snapshot.conversation)
        return ("EVAL", PUBLISH, 3, talk, turn, mark, needed, self._kept_s, sealed, *fields), row.pieces

    async def _published(self, sent: "asyncio.Future[list[Any]]", key: bytes, snapshot: Snapshot) -> None:
        try:
            (outcome,) = await sent
            if outcome == 0:
                await self._publish_whole(key, snapshot)
        except RedisAway:
            return  # the outbox has logged it once

    async def _publish_whole(self, key: bytes, snapshot: Snapshot) -> None:
        """Redis has lost the earlier turns: publish the turn with all their pieces from the local store."""
        await self._local.settle()
        found = self._local.recall(key)
        pieces = await self._local.pieces(found.parent, MAX_BYTES) if found is not None and found.parent else None
        if pieces is not None:
            command, _ = await asyncio.to_thread(self._publishing, key, snapshot, (), pieces)
            await self._outbox.send([command], sum(map(len, pieces.values())))

    # ---- in

    async def bring(self, key: bytes) -> None:
        found = self._local.recall(key)
        if found is not None and key in self._known:
            self._known.move_to_end(key)
            return
        if found is not None:  # from before a restart, or from a time without Redis
            pieces = await self._local.pieces(found.parent, MAX_BYTES) if found.parent is not None else None
            if pieces is not None and found.conversation:
                talk = self._talk(found.conversation)
                self._learn(key, await asyncio.to_thread(self._named, talk, pieces))
            return
        if self._link.away:
            return
        try:
            row, blobs = await self._fetched(key)
        except RedisAway as away:
            log.info("a conversation is replayed, if another gateway has it: %s", away)
            return
        if row is None:
            return
        self._local.remember(key, Snapshot(row.backend, row.state, blobs=blobs, conversation=row.conversation))
        await self._local.settle()
        self._learn(key, row.pieces)

    async def _fetched(self, key: bytes) -> tuple[TurnRow | None, dict[bytes, bytes]]:
        turn = self._link.key("turn", self._seal.name("turn", key))
        reading = [("GETRANGE", turn, 0, 2 * MAX_BYTES), ("EXPIRE", turn, self._kept_s)]
        sealed, _ = await self._link.run(reading)
        row = decoded(self._seal.open(turn, sealed), TurnRow)
        if row is None:
            return None, {}
        if not row.pieces:
            return row, {}
        talk = self._talk(row.conversation)
        fields = [piece.field for piece in row.pieces]
        sealed_pieces, _ = await self._link.run([("HMGET", talk, *fields), ("EXPIRE", talk, self._kept_s)])
        if sum(piece.size for piece in row.pieces) > MAX_AT_ONCE:
            opened = await asyncio.to_thread(self._opened, talk, fields, sealed_pieces)
        else:
            opened = self._opened(talk, fields, sealed_pieces)
        if opened is None:
            return None, {}  # a piece is missing: replaying the client's history is safer
        return row, {piece.name: data for piece, data in zip(row.pieces, opened, strict=True)}

    def _opened(self, talk: bytes, fields: list[bytes], sealed: list[bytes | None]) -> list[bytes] | None:
        opened = []
        for field, one in zip(fields, sealed, strict=True):
            data = self._seal.open(talk + field, one)
            if data is None:
                return None
            opened.append(data)
        return opened

    def _named(self, talk: bytes, pieces: Mapping[bytes, bytes]) -> tuple[TurnPiece, ...]:
        def field(data: bytes) -> bytes:
            return _PIECE + self._seal.name("piece", talk, hashlib.sha256(data).digest())

        return tuple([TurnPiece(name, field(data), len(data)) for name, data in pieces.items()])

    def _learn(self, key: bytes, pieces: tuple[TurnPiece, ...]) -> None:
        before = self._known.pop(key, None)
        self._known[key] = pieces
        self._known_pieces += len(pieces) + 1 - (0 if before is None else len(before) + 1)
        while self._known_pieces > MAX_KNOWN and len(self._known) > 1:
            _, gone = self._known.popitem(last=False)
            self._known_pieces -= len(gone) + 1

    def _talk(self, conversation: str) -> bytes:
        return self._link.key("talk", self._seal.name("talk", conversation.encode()))

    def _mark(self, conversation: str) -> bytes:
        return self._link.key("forgotten", self._seal.name("talk", conversation.encode()))


# ---- responses

# Stored responses of the Responses API for all replicas: written to Redis when they are stored, looked up there when
# they are not here, deleted everywhere. Each belongs to the account and key that made it, as in each replica's file.

MAX_RESPONSE_BYTES: Final = 8 * 2**20
"""Size limit of a shared response."""
MAX_ITEMS: Final = 256
"""Items of one response that can be looked up by id."""
DELETED: Final = "response"

Found = TypeVar("Found")

KEEP: Final = """
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[1])
for at = 2, #KEYS do redis.call('SET', KEYS[at], ARGV[at + 1], 'EX', ARGV[1]) end
return 1"""
"""KEYS: the response, then its items. ARGV: seconds, then the rows of the KEYS."""


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
    """The responses in Redis: makes the archive of each account, and reports deletions of other gateways."""

    def __init__(self, link: RedisLink, seal: Seal, outbox: ClusterOutbox, news: News, *, max_age_s: float) -> None:
        self.link = link
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
        """Call the method `gone` for each response of the account that any gateway deletes, until the method's object
        is freed. A new watcher of an account replaces the old."""
        self._watchers[scope] = local, WeakMethod(gone)
        for dead in [name for name, (_, one) in self._watchers.items() if one() is None]:
            del self._watchers[dead]

    async def _deleted(self, message: str) -> None:
        scope, _, response_id = message.partition(" ")
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
        if response.size > MAX_RESPONSE_BYTES:
            return  # too large to share
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
        reading = [("GETRANGE", place, 0, 2 * MAX_RESPONSE_BYTES), ("EXPIRE", place, shared.kept_s)]
        sealed, _ = await shared.link.run(reading)
        row = decoded(shared.seal.open(place, sealed), Row)
        if row is None:
            return None
        return StoredResponse(row.id, row.owner, row.body, row.input, row.previous, row.item_ids)

    async def _found(self, owner: str, item_id: str) -> StoredResponse | None:
        place = self._item(owner, item_id)
        (sealed,) = await self._shared.link.run([("GETRANGE", place, 0, SMALL)])
        response_id = self._shared.seal.open(place, sealed)
        found = await self._fetched(response_id.decode()) if response_id is not None else None
        return found if found is not None and found.owner == owner else None

    async def _removed(self, response_id: str) -> bool:
        shared = self._shared
        notice = shared.news.telling(DELETED, f"{self._scope} {response_id}")
        await shared.outbox.ask([("DEL", self._place(response_id)), notice])  # after its pending write
        return True

    def _wait(self, work: Coroutine[Any, Any, Found | None]) -> Found | None:
        """Wait, from a thread, for Redis, within the link's time. In the event loop it returns None: the loop must not
        block."""
        shared = self._shared
        if shared.link.away or _in_loop(shared.loop):
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
        return self._shared.link.key("response", name)

    def _item(self, owner: str, item_id: str) -> bytes:
        name = self._shared.seal.name("item", self._scope.encode(), owner.encode(), item_id.encode())
        return self._shared.link.key("item", name)


def _in_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
