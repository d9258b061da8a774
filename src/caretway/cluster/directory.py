"""The members of the cluster: each replica's id (claimed in Redis, not reused while a ticket with it may live),
address, heartbeat and state, and how long the list is trusted without Redis.

Rows are sealed: a row without the cluster's key, or under another name, is ignored. The list is read with the
heartbeat, so a request asks Redis only about an unknown replica.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from ..processes.tasks import spawn
from .link import RedisAway, RedisLink
from .seal import SMALL, Seal, decoded

log = logging.getLogger(__name__)

SCHEMA: Final = 2
"""Version of rows and hops. A replica with another version gets no requests; its turns are replayed. Version 1 had no
sealed rows: such a replica is not seen."""
BEAT_S: Final = 2.0
ALIVE_S: Final = 8
"""Seconds a replica stays listed after its last heartbeat."""
BELIEVED_S: Final = 60.0
"""Seconds the last list stays valid while Redis is away."""
ROWS_PER_S: Final = 25
"""A large directory is read less often: about this many rows a second at most."""
LAST_S: Final = 1.0
"""Longest wait, when leaving, for a heartbeat in progress."""
TRIES: Final = 64
"""Ids to try before the start fails."""
MAX_LISTED: Final = 4096
"""Members of the list that are read."""
_LIST: Final = "replicas"

_ALL: Final = """
local found = {}
for _, id in ipairs(redis.call('SRANDMEMBER', KEYS[1], ARGV[2])) do
  local row = #id <= 16 and redis.pcall('GETRANGE', ARGV[1] .. id, 0, ARGV[3])
  if type(row) == 'string' and row ~= '' then
    found[#found + 1] = id
    found[#found + 1] = row
  elseif ARGV[4] == '1' then
    redis.call('SREM', KEYS[1], id)
  end
end
return found"""
"""KEYS: the list. ARGV: the prefix of row names, the most members and bytes of a row to read, 1 to remove members
without a row from the list. Returns ids and rows in turn."""


class Replica(msgspec.Struct, frozen=True):
    """A row of the directory."""

    id: str
    address: str
    version: str
    started: float
    """Unix seconds."""
    schema: int = SCHEMA
    draining: bool = False
    parked: int = 0
    """Turns that wait there for tool results, at the last heartbeat."""

    def state(self, schema: int = SCHEMA) -> str:
        """`ready`, `draining`, or `other schema` if a replica with `schema` cannot send requests to this replica."""
        if self.schema != schema:
            return "other schema"
        return "draining" if self.draining else "ready"


@dataclass(frozen=True, slots=True)
class Me:
    """This replica's own data for the directory, without the id."""

    address: str
    version: str
    ticket_life: float
    """Seconds a ticket may live after its last use."""
    schema: int = SCHEMA


def new_id() -> str:
    return secrets.token_hex(2)


class Directory:
    def __init__(
        self,
        link: RedisLink,
        seal: Seal,
        me: Me,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        make_id: Callable[[], str] = new_id,
    ) -> None:
        self._link = link
        self._seal = seal
        self._me = me
        self._clock = clock
        self._make_id = make_id
        self.own = Replica(make_id(), me.address, me.version, wall_clock(), me.schema)
        """This replica. The id changes if another gateway has it."""
        self.parked: Callable[[], int] = int
        """Counts the turns that wait here."""
        self._claimed = False
        self._known: dict[str, Replica] = {}
        self._read_at = -BELIEVED_S
        self._next_list = 0.0
        self._beating: asyncio.Task[None] | None = None
        self._leaving = False
        self._gone: dict[str, float] = {}
        self._incomplete_until = 0.0
        """Redis has lost its rows; the other replicas write theirs again with their next heartbeats."""

    # ---- for requests

    @property
    def id(self) -> str:
        return self.own.id

    def alive(self) -> list[Replica]:
        """The live replicas as far as known, this one included, by start time."""
        others = self._known.values() if self._believed() else ()
        return sorted((self.own, *others), key=lambda replica: (replica.started, replica.id))

    def find(self, replica_id: str) -> Replica | None:
        """Another live replica, as far as known here. No I/O."""
        return self._known.get(replica_id) if self._believed() else None

    async def ask(self, replica_id: str) -> Replica | None:
        """Like `find`, but asks Redis about an unknown replica. Not found if Redis is away."""
        found = self.find(replica_id)
        if found is not None or self._clock() < self._gone.get(replica_id, 0.0):
            return found
        place = self._link.key("replica", replica_id.encode())
        try:
            (row,) = await self._link.run([("GETRANGE", place, 0, SMALL)])
        except RedisAway:
            return None
        found = decoded(self._seal.open(place, row), Replica, msgspec.json.decode)
        if found is not None:
            self._known[replica_id] = found
        return found

    def not_there(self, replica_id: str) -> None:
        """Avoid a replica for `ALIVE_S`: it did not answer, or another replica answered at its address."""
        self._known.pop(replica_id, None)
        if len(self._gone) > 1000:
            self._gone.clear()
        self._gone[replica_id] = self._clock() + ALIVE_S

    def _believed(self) -> bool:
        return self._clock() - self._read_at < BELIEVED_S

    # ---- its own life

    async def join(self) -> None:
        """Claim an id and start the heartbeat. While Redis is away the heartbeat tries again."""
        try:
            await self._beat()
        except RedisAway as away:
            log.warning("this gateway is alone until Redis is there: %s", away)
        self._beating = spawn(self._live(), "heartbeat of the cluster")

    async def drain(self) -> None:
        """Ask the other gateways to start no new turns here. Turns that wait here stay until this gateway leaves."""
        self.own = msgspec.structs.replace(self.own, draining=True)
        try:
            await self._beat()
        except RedisAway as away:
            log.info("the others do not know that this gateway stops: %s", away)

    async def leave(self) -> None:
        self._leaving = True
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating], timeout=LAST_S)
        try:
            own = self.own.id.encode()
            await self._link.run([("DEL", self._link.key("replica", own)), ("SREM", self._link.key(_LIST), own)])
        except RedisAway:
            return  # the row expires

    async def _live(self) -> None:
        while not self._leaving:
            await asyncio.sleep(BEAT_S)
            try:
                await self._beat()
            except RedisAway:
                continue  # the link has logged it once
            except Exception:  # whatever Redis holds, the next heartbeat must follow
                log.exception("a heartbeat of the cluster failed")

    async def _beat(self) -> None:
        if not self._claimed:
            await self._claim()
        await self._say()
        if self._clock() >= self._next_list:
            self._learn(await read_replicas(self._link, self._seal, tidy=True))

    async def _claim(self) -> None:
        """Claim a unique id. Heartbeats renew the claim, which then lasts for `ticket_life` and `ALIVE_S` together."""
        for _ in range(TRIES):
            (taken,) = await self._link.run([("SET", *self._taken_id(), "NX")])
            if taken:
                self._claimed = True
                return
            self.own = msgspec.structs.replace(self.own, id=self._make_id())
        raise RedisAway(f"{TRIES} ids of replicas are taken")

    def _taken_id(self) -> tuple[bytes, bytes, str, int]:
        """Name, content and lifetime of the row that reserves the id."""
        place = self._link.key("id", self.own.id.encode())
        content = self._seal.close(place, self.own.address.encode())
        return place, content, "EX", int(self._me.ticket_life) + ALIVE_S

    async def _say(self) -> None:
        own = self.own = msgspec.structs.replace(self.own, parked=self.parked())
        place = self._link.key("replica", own.id.encode())
        row = self._seal.close(place, msgspec.json.encode(own))
        listed = ("SADD", self._link.key(_LIST), own.id)
        commands = [("SET", place, row, "EX", ALIVE_S), listed, ("SET", *self._taken_id())]
        _, was_missing, _ = await self._link.run(commands)
        if was_missing:
            self._incomplete_until = self._clock() + ALIVE_S

    def _learn(self, replicas: Iterable[Replica]) -> None:
        now = self._clock()
        before = self._known if now < self._incomplete_until else {}
        self._known = before | {replica.id: replica for replica in replicas if replica.id != self.own.id}
        self._gone = {one: until for one, until in self._gone.items() if until > now}
        for one in self._gone:
            self._known.pop(one, None)
        self._read_at = now
        self._next_list = now + max(BEAT_S, len(self._known) / ROWS_PER_S) - BEAT_S / 2


async def read_replicas(link: RedisLink, seal: Seal, *, tidy: bool = False) -> list[Replica]:
    """The live replicas, in no order. `tidy`: remove dead ones from the list. Raises RedisAway."""
    begin = link.key("replica") + b":"
    (found,) = await link.run([("EVAL", _ALL, 1, link.key(_LIST), begin, MAX_LISTED, SMALL, int(tidy))])
    rows = [(begin + name, row) for name, row in zip(found[::2], found[1::2], strict=True)]
    known = (decoded(seal.open(place, row), Replica, msgspec.json.decode) for place, row in rows)
    return [replica for replica in known if replica is not None]
