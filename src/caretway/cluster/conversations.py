"""Finished conversations for all replicas: each turn is published when it ends, and brought in by whoever is asked to
continue it; forgotten everywhere. The local store comes first, so Redis is asked only about what is not here.

In Redis a conversation is one hash with the pieces of all its turns, each once, and a row for each turn, found by the
fingerprint of its transcript. They expire together after `store_max_age` without use. A turn whose earlier pieces Redis
has lost is published again with all of them; one that is too large is not shared, and replayed by another replica.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from ..core.turn import Snapshot
from ..processes.tasks import spawn
from .calls import Calls, Command
from .link import RedisAway
from .news import Hear, News
from .outbox import ClusterOutbox
from .seal import Seal

log = logging.getLogger(__name__)

MAX_BYTES: Final = 8 * 2**20
"""Of a conversation that is shared."""
MAX_AT_ONCE: Final = 2**20
"""What is sealed in the event loop: a millisecond's work. More than that in a thread."""
MAX_KNOWN: Final = 100_000
"""Pieces of conversations that this replica knows the names of."""
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
"""KEYS: the conversation, the turn, the mark that it is forgotten. ARGV: a piece that must be there, seconds, the row
of the turn, then fields and values. 0: that piece is not there; 2: it is forgotten."""


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
    """What the backend calls it."""
    field: bytes
    """Where it is in the conversation's hash."""
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
        calls: Calls,
        seal: Seal,
        outbox: ClusterOutbox,
        news: News,
        *,
        max_age_s: float,
        hear: Hear = _nobody_hears,
    ) -> None:
        """`hear`: what else is to be done here when any gateway forgets a conversation."""
        self._local = local
        self._calls = calls
        self._seal = seal
        self._outbox = outbox
        self._news = news
        self._kept_s = max(1, int(max_age_s))
        self._known: OrderedDict[bytes, tuple[TurnPiece, ...]] = OrderedDict()
        """Turn -> all its pieces, which are in Redis as far as is known."""
        self._known_pieces = 0
        self._hear = hear
        news.on(FORGET, self._forgotten)

    # ---- as the local one

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
        """Raises GatewayError never: what Redis does not hear now it does not hear; the rows expire."""
        count = await self._local.forget(conversation)
        talk = self._talk(conversation)
        try:
            ((*fields,),) = await self._calls.run([("HKEYS", talk)])
            turns = [self._calls.key("turn", field[1:]) for field in fields if field[:1] == _TURN]
            mark = ("SET", self._mark(conversation), b"1", "EX", self._kept_s)
            await self._calls.run([mark, ("DEL", talk, *turns), self._news.telling(FORGET, conversation)])
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
            return  # not shared: other gateways replay it
        if new > MAX_AT_ONCE:
            spawn(self._publish_aside(key, snapshot, known), "share-a-conversation")
            return
        command, pieces = self._publishing(key, snapshot, known, snapshot.blobs)
        self._learn(key, pieces)  # if Redis does not take them, the next turn finds that out
        spawn(self._published(self._outbox.send([command], new), key, snapshot), "share-a-conversation")

    async def _publish_aside(self, key: bytes, snapshot: Snapshot, known: tuple[TurnPiece, ...]) -> None:
        command, pieces = await asyncio.to_thread(self._publishing, key, snapshot, known, snapshot.blobs)
        self._learn(key, pieces)
        sent = self._outbox.send([command], sum(map(len, snapshot.blobs.values())))
        await self._published(sent, key, snapshot)

    def _publishing(
        self, key: bytes, snapshot: Snapshot, known: tuple[TurnPiece, ...], new: Mapping[bytes, bytes]
    ) -> tuple[Command, tuple[TurnPiece, ...]]:
        """`known`: pieces that are in Redis already."""
        talk, turn_name = self._talk(snapshot.conversation), self._seal.name("turn", key)
        turn = self._calls.key("turn", turn_name)
        pieces = {piece.name: piece for piece in known}
        fields: list[bytes] = [_TURN + turn_name, b""]
        for name, data in new.items():
            field = _PIECE + self._seal.name("piece", talk, hashlib.sha256(data).digest())
            pieces.pop(name, None)  # the newest stand last
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
            return  # the outbox has said so, once

    async def _publish_whole(self, key: bytes, snapshot: Snapshot) -> None:
        """Redis has lost the earlier turns: with all their pieces, which are here."""
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
        if found is not None:  # from before a restart, or of a time without Redis
            pieces = await self._local.pieces(found.parent, MAX_BYTES) if found.parent is not None else None
            if pieces is not None and found.conversation:
                talk = self._talk(found.conversation)
                self._learn(key, await asyncio.to_thread(self._named, talk, pieces))
            return
        if self._calls.away:
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
        turn = self._calls.key("turn", self._seal.name("turn", key))
        reading = [("GETRANGE", turn, 0, 2 * MAX_BYTES), ("EXPIRE", turn, self._kept_s)]
        sealed, _ = await self._calls.run(reading)
        row = _read(self._seal.open(turn, sealed))
        if row is None:
            return None, {}
        if not row.pieces:
            return row, {}
        talk = self._talk(row.conversation)
        fields = [piece.field for piece in row.pieces]
        sealed_pieces, _ = await self._calls.run([("HMGET", talk, *fields), ("EXPIRE", talk, self._kept_s)])
        if sum(piece.size for piece in row.pieces) > MAX_AT_ONCE:
            opened = await asyncio.to_thread(self._opened, talk, fields, sealed_pieces)
        else:
            opened = self._opened(talk, fields, sealed_pieces)
        if opened is None:
            return None, {}  # with a hole in it: better told again from the client's history
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
        return self._calls.key("talk", self._seal.name("talk", conversation.encode()))

    def _mark(self, conversation: str) -> bytes:
        return self._calls.key("forgotten", self._seal.name("talk", conversation.encode()))


def _read(row: bytes | None) -> TurnRow | None:
    try:
        return None if row is None else msgspec.msgpack.decode(row, type=TurnRow)
    except msgspec.DecodeError:
        return None
