"""Writes to Redis in the order of the link. Commands that arrive during a batch form the next batch, so one round trip
serves many. Counts are exact and wait while Redis is away: batches have numbers, so a batch whose reply was lost is
repeated without counting twice. Rows are dropped while Redis is away; they can be made again.

The queue is bounded. `written` reports that all earlier commands are written, or that the wait is over; a response
sends its last bytes then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from os import urandom
from typing import Any, Final

from ..processes.tasks import spawn
from .link import Command, RedisAway, RedisLink
from .seal import Seal

log = logging.getLogger(__name__)

HOLD_S: Final = 0.1
"""Longest wait, at the end of a response, for its stored copy."""
AGAIN_S: Final = 1.0
"""Seconds between two attempts to write counts while Redis is away."""
LAST_S: Final = 2.0
"""Longest wait when the outbox closes."""
COUNT_DELAY_S: Final = 0.2
"""Delay that lets counts share a batch when nothing waits for them."""
MAX_ROWS: Final = 4_096
MAX_ROW_BYTES: Final = 64 * 2**20
"""Limit of waiting rows: if Redis cannot keep up, further rows are dropped."""
MAX_COUNTS: Final = 50_000
"""Limit of different counts that wait."""
BATCH_COUNTS: Final = 1_000
BATCH_ROWS: Final = 256
BATCH_BYTES: Final = 8 * 2**20
NUMBER_KEPT_S: Final = 86_400
"""Seconds that Redis remembers the number of this process's last batch."""

COUNT: Final = """
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
for k = 2, #KEYS do
  local at = 3 * (k - 1)
  redis.call('HINCRBYFLOAT', KEYS[k], ARGV[at], ARGV[at + 1])
  if ARGV[at + 2] ~= '0' then redis.call('EXPIRE', KEYS[k], ARGV[at + 2]) end
end
return 1"""
"""KEYS: the number of the last batch, then the hash of each count. ARGV: this batch's number and its seconds, then
(field, amount, seconds of the hash) for each count."""

Counts = dict[tuple[bytes, bytes], tuple[float, int]]
"""(hash, field) -> (amount, seconds of the hash; 0: no expiry)"""


@dataclass(slots=True)
class _Row:
    commands: Sequence[Command]
    size: int
    done: "asyncio.Future[list[Any]] | None"


class ClusterOutbox:
    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._number_key = link.key("batch", urandom(12).hex().encode())
        self._number = 0
        self._rows: deque[_Row] = deque()
        self._row_bytes = 0
        self._counts: Counts = {}
        self._unsure: Counts = {}
        """The batch with the current number, which Redis may have counted already."""
        self._work: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._put = self._done = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._warned = False
        self._closed = False

    # ---- the queue

    def put(self, commands: Sequence[Command], size: int = 0) -> None:
        """Write soon. Failures are dropped: rows can be made again."""
        self._take(_Row(commands, size, None))

    def send(self, commands: Sequence[Command], size: int = 0) -> "asyncio.Future[list[Any]]":
        """Like `put`; the future gets the results or RedisAway, and must be awaited."""
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._take(_Row(commands, size, done))
        return done

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands after all earlier ones. Raises RedisAway."""
        return await self.send(commands)

    def count(self, place: bytes, amounts: Mapping[bytes, float], kept_s: int = 0) -> None:
        """Add amounts exactly once, despite retries, and before later commands. Drops a new count if MAX_COUNTS
        wait."""
        counts = self._counts
        for field, amount in amounts.items():
            known, _ = counts.get((place, field), (0.0, 0))
            if not amount or (len(counts) >= MAX_COUNTS and (place, field) not in counts):
                continue
            counts[place, field] = (known + amount, kept_s)
        if counts and self._timer is None and self._work is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(COUNT_DELAY_S, self._begin)

    def written(self) -> "asyncio.Future[None] | None":
        """A future that is done when all rows so far are written, or after `HOLD_S`. None if nothing is pending."""
        if self._done == self._put or self._link.away:
            return None
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiters.append((self._put, waiting))
        late = loop.call_later(HOLD_S, _resolve, waiting)
        waiting.add_done_callback(lambda _: late.cancel())
        return waiting

    async def aclose(self) -> None:
        self._closed = True
        self._begin()
        if self._work is not None:
            await asyncio.wait([self._work], timeout=LAST_S)
        if self._counts or self._unsure:
            log.warning("the cluster's counts lack %d of this gateway", len(self._counts) + len(self._unsure))

    # ---- one batch at a time

    def _take(self, row: _Row) -> None:
        full = len(self._rows) >= MAX_ROWS or self._row_bytes + row.size > MAX_ROW_BYTES
        if full or (self._closed and self._work is None):
            reason = RedisAway("more waits to be written to Redis than is allowed" if full else "the gateway stops")
            if row.done is not None:
                row.done.set_exception(reason)
            return
        self._rows.append(row)
        self._row_bytes += row.size
        self._put += 1
        self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._work is None and (self._rows or self._counts or self._unsure):
            self._work = spawn(self._all(), "write-to-redis")

    async def _all(self) -> None:
        try:
            while self._rows or self._counts or self._unsure:
                if not await self._batch() and not self._rows:
                    return
        finally:
            self._work = None
            if (self._counts or self._unsure) and not self._closed:
                self._timer = asyncio.get_running_loop().call_later(AGAIN_S, self._begin)

    async def _batch(self) -> bool:
        """Write the next batch to Redis. False if Redis is away."""
        rows, size = list[_Row](), 0
        while self._rows and len(rows) < BATCH_ROWS and size < BATCH_BYTES:
            rows.append(self._rows.popleft())
            size += rows[-1].size
        self._row_bytes -= size
        counting = self._counting()
        try:
            found = await self._link.run_each([*counting, *(command for row in rows for command in row.commands)])
        except RedisAway as away:
            for row in rows:
                self._settle(row, away)
            self._warn(str(away))
            return False
        fine = True
        if counting:
            fine = not isinstance(found[0], RedisAway)
            if fine:
                self._unsure = {}
            else:
                self._warn(str(found[0]))
        at = len(counting)
        for row in rows:
            results = found[at : at + len(row.commands)]
            at += len(row.commands)
            self._settle(row, next((one for one in results if isinstance(one, RedisAway)), results))
        if fine:
            self._warned = False
        return fine

    def _counting(self) -> list[Command]:
        if not self._unsure:
            if not self._counts:
                return []
            self._number += 1
            for place in list(self._counts)[:BATCH_COUNTS]:
                self._unsure[place] = self._counts.pop(place)
        amounts = [
            piece
            for (_, field), (amount, kept) in self._unsure.items()
            for piece in (field, repr(amount) if amount % 1 else str(int(amount)), str(kept))
        ]
        places = [place for place, _ in self._unsure]
        return [("EVAL", COUNT, len(places) + 1, self._number_key, *places, self._number, NUMBER_KEPT_S, *amounts)]

    def _settle(self, row: _Row, outcome: "list[Any] | RedisAway") -> None:
        self._done += 1
        if isinstance(outcome, RedisAway):
            if row.done is None:
                self._warn(str(outcome))
            elif not row.done.done():
                row.done.set_exception(outcome)
        elif row.done is not None and not row.done.done():
            row.done.set_result(outcome)
        while self._waiters and self._waiters[0][0] <= self._done:
            _resolve(self._waiters.pop(0)[1])

    def _warn(self, why: str) -> None:
        if not self._warned:  # one line for each outage, not for each request
            self._warned = True
            log.warning("the cluster does not learn what this gateway does: %s", why)


def _resolve(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


# ---- news

# Notices between replicas: a conversation or a response was forgotten, or keys changed. Each replica reads a Redis
# stream from its last position, so it misses nothing while Redis or the replica itself is away.

BLOCK_MS: Final = 800
"""How long a read waits for notices: less than the link's reply timeout."""
NEWS_AGAIN_S: Final = 0.5
KEPT: Final = 10_000
AT_ONCE: Final = 500
FROM_THE_BEGINNING: Final = b"0-0"

Hear = Callable[[str], Awaitable[None]]


class News:
    def __init__(self, link: RedisLink, seal: Seal, outbox: ClusterOutbox) -> None:
        self._link = link
        self._seal = seal
        self._outbox = outbox
        self._place = link.key("news1")
        self._last = FROM_THE_BEGINNING
        self._hearers: dict[str, Hear] = {}
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    def on(self, kind: str, hear: Hear) -> None:
        self._hearers[kind] = hear

    def telling(self, kind: str, what: str = "") -> tuple[Any, ...]:
        """The command that sends a notice to all replicas, this one included."""
        sealed = self._seal.close(self._place, f"{kind} {what}".encode())
        return ("XADD", self._place, "MAXLEN", "~", KEPT, "*", b"s", sealed)

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
                command = ("XREAD", "COUNT", AT_ONCE, "BLOCK", BLOCK_MS, "STREAMS", self._place, self._last)
                (found,) = await self._link.run([command])
            except RedisAway:
                await asyncio.sleep(NEWS_AGAIN_S)  # the link has logged it once
                continue
            for _, rows in found.items() if isinstance(found, dict) else found or ():
                for at, row in rows:
                    self._last = at
                    await self._hear(row)

    async def _hear(self, row: Any) -> None:
        sealed = self._seal.open(self._place, row.get(b"s"))
        if sealed is None:
            return  # from another version or another key
        kind, _, what = sealed.decode("utf-8", "replace").partition(" ")
        hear = self._hearers.get(kind)
        if hear is not None:
            try:
                await hear(what)
            except Exception:  # one unusable notice must not stop the rest
                log.exception("news of the cluster could not be used: %s", kind)
