"""Counts spending in SQLite. A thread checks and counts many claims in one transaction (group commit). A crash loses no
opened run.

Several processes may share the file. The queue is bounded by the number of waiting requests. If the file cannot be
written, counting continues in memory and is written later, because a full disk must not end a budget. A damaged file is
moved aside, and a new file starts from zero. While a file cannot be opened, its counts are unknown: runs with a budget
are refused or counted in memory, as the setting says.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError
from ..storage.database import PATIENCE_S, is_broken, move_aside, open_database, open_or_memory, stat_of, transaction
from .budget import NOTHING_SPENT, BillingCycle, Measure, Spent
from .spent_store import CONVERSATION_PREFIX, SPENT, SUM, Claim, ClaimOutcome

log = logging.getLogger(__name__)

DELAY_S: Final = 0.2
"""How long settled amounts may wait for a shared write."""
UNSURE_CODE: Final = "budget_unknown"
PRUNE_EVERY: Final = 500
CONVERSATIONS_KEPT_S: Final = 90 * 86_400.0
MAX_CONVERSATION_ROWS: Final = 200_000

_ADD: Final = """INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, day) DO UPDATE SET
    runs = runs + excluded.runs, tokens = tokens + excluded.tokens, uncached = uncached + excluded.uncached,
    cents = cents + excluded.cents, used_at = max(used_at, excluded.used_at)"""
_OLD: Final = "DELETE FROM spent WHERE scope LIKE ? AND used_at < ?"
_MANY: Final = """DELETE FROM spent WHERE (scope, day) IN (
    SELECT scope, day FROM spent WHERE scope LIKE ? ORDER BY used_at DESC LIMIT -1 OFFSET ?)"""


class _Work(Struct, frozen=True):
    do: Callable[["_WriterThread"], object]
    done: asyncio.Future[Any] | None = None


class SqliteSpent:
    """The store's interface for the event loop."""

    def __init__(self, path: Path | None, patience_s: float = PATIENCE_S, *, refuse: bool = True) -> None:
        """`path` None counts in memory only. `patience_s`: the wait for writes of other processes. `refuse`: whether
        claims are refused while the file cannot be opened."""
        self._books = _WriterThread(path, patience_s, refuse)
        self._thread = ThreadPoolExecutor(1, "budgets")
        self._waiting: list[_Work] = []
        self._writing = False
        self._closed = False
        self._timer: asyncio.Handle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def reserve(self, claim: Claim) -> ClaimOutcome:
        outcome: ClaimOutcome | GatewayError = await self._now(methodcaller("reserve", claim))
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome

    def settle(self, scopes: tuple[str, ...], day: str, amount: Spent, at: float) -> None:
        self._later(methodcaller("settle", scopes, day, amount, at))

    async def spent(self, scope: str, since: str) -> Spent:
        spent: Spent = await self._now(methodcaller("spent", scope, since))
        return spent

    async def first(self, mark: str, at: float) -> bool:
        first: bool = await self._now(methodcaller("first", mark, at))
        return first

    async def cycle(self) -> BillingCycle | None:
        cycle: BillingCycle | None = await self._now(methodcaller("cycle"))
        return cycle

    def keep_cycle(self, cycle: BillingCycle) -> None:
        self._later(methodcaller("keep_cycle", cycle))

    async def aclose(self) -> None:
        self._closed = True
        while self._waiting or self._writing:
            self._flush()
            await self._idle.wait()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._books.close)
        self._thread.shutdown(wait=False)

    # ---- one batch at a time

    def _now(self, do: Callable[["_WriterThread"], object]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(_Work(do, done))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_soon(self._flush)  # the next loop iteration: calls of the same moment share the write
        return done

    def _later(self, do: Callable[["_WriterThread"], object]) -> None:
        if self._closed:
            return  # a turn may outlive the store at shutdown
        self._waiting.append(_Work(do))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing or not self._waiting:
            return
        batch, self._waiting = self._waiting, []
        self._writing = True
        self._idle.clear()
        work = [one.do for one in batch]
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._books.together, work)
        written.add_done_callback(partial(self._written, batch))

    def _written(self, batch: list[_Work], written: asyncio.Future[list[object]]) -> None:
        self._writing = False
        failure = written.exception()
        if failure is not None:
            log.error("budgets could not be counted: %s", failure, exc_info=failure)
        for at, work in enumerate(batch):
            if work.done is None or work.done.done():  # the caller does not wait, or no longer waits
                continue
            if failure is not None:
                work.done.set_exception(failure)
            else:
                work.done.set_result(written.result()[at])
        if self._waiting:
            self._flush()
        else:
            self._idle.set()


class _WriterThread:
    """The store's worker: all its methods run in the thread."""

    def __init__(self, path: Path | None, patience_s: float, refuse: bool) -> None:
        self._path = path
        self._patience = patience_s
        self._refuse = refuse
        self._db: sqlite3.Connection | None = None
        self._seen: os.stat_result | None = None
        """The identity of the open file."""
        self._unwritten: dict[tuple[str, str], tuple[Spent, float]] = {}
        """Amounts that could not be written yet."""
        self._marks: set[str] = set()
        self._warned = False
        self._batches = 0

    def together(self, work: list[Callable[["_WriterThread"], object]]) -> list[object]:
        """Does all work in one transaction. If the transaction fails, its amounts are counted in memory."""
        before = dict(self._unwritten)
        try:
            try:
                results = self._write(work)
            except sqlite3.Error as error:
                self._unwritten = dict(before)
                if self._db is None or self._path is None or not is_broken(error):
                    raise
                self._db.close()
                self._db = None
                move_aside(self._path, self._seen, error)
                results = self._write(work)
        except sqlite3.Error as error:
            self._unwritten = before
            refusal = _refusal() if self._db is None and self._refuse else None
            if not self._warned:  # one line per period of trouble, not one per request
                self._warned = True
                if refusal is not None:
                    log.error("runs that have a budget are refused, %s cannot be used: %s", self._path, error)
                else:
                    log.warning("budgets are counted in memory, they cannot be written to %s: %s", self._path, error)
            aside = _Aside(self._db, self._unwritten, self._marks, refusal)
            return [do(aside) for do in work]
        if self._warned:
            self._warned = False
            log.info("budgets are written to %s again", self._path)
        return results

    def _write(self, work: list[Callable[["_WriterThread"], object]]) -> list[object]:
        if self._db is None and self._path is not None:
            self._db = open_database(self._path, SPENT, self._patience)
            self._seen = stat_of(self._path)
        elif self._db is None:
            self._db = open_or_memory(None, SPENT)
        with transaction(self._db):
            unwritten, self._unwritten = self._unwritten, {}
            for (scope, day), (amount, at) in unwritten.items():
                self._add(scope, day, amount, at)
            results = [do(self) for do in work]
            self._prune()
        return results

    def close(self) -> None:
        if self._unwritten:
            self.together([])
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()

    # ---- the work

    def reserve(self, claim: Claim) -> ClaimOutcome | GatewayError:
        spent = [self.spent(limit.scope, limit.since).of(limit.measure) for limit in claim.limits]
        if any(now >= limit.most for now, limit in zip(spent, claim.limits, strict=True)):
            return ClaimOutcome(False, tuple(spent))
        self.settle(claim.scopes, claim.day, claim.amount, claim.at)
        added = (_added(claim, limit.scope, limit.measure) for limit in claim.limits)
        return ClaimOutcome(True, tuple(now + more for now, more in zip(spent, added, strict=True)))

    def settle(self, scopes: tuple[str, ...], day: str, amount: Spent, at: float) -> None:
        for scope in scopes:
            self._add(scope, day, amount, at)

    def spent(self, scope: str, since: str) -> Spent:
        return self._sum(scope, since)

    def first(self, mark: str, at: float) -> bool:
        assert self._db is not None
        return self._db.execute("INSERT OR IGNORE INTO marks VALUES (?, ?)", (mark, at)).rowcount > 0

    def cycle(self) -> BillingCycle | None:
        assert self._db is not None
        row = self._db.execute("SELECT starts_at, ends_at FROM cycle").fetchone()
        return BillingCycle(*row) if row is not None else None

    def keep_cycle(self, cycle: BillingCycle) -> None:
        assert self._db is not None
        self._db.execute("INSERT OR REPLACE INTO cycle VALUES (1, ?, ?)", (cycle.starts_at, cycle.ends_at))

    def _add(self, scope: str, day: str, amount: Spent, at: float) -> None:
        assert self._db is not None
        self._db.execute(_ADD, (scope, day, amount.runs, amount.tokens, amount.uncached, amount.cents, at))

    def _sum(self, scope: str, since: str) -> Spent:
        assert self._db is not None
        return Spent(*self._db.execute(SUM, (scope, since)).fetchone())

    def _prune(self) -> None:
        """Deletes the counts of conversations that were not used for long, and of the oldest if there are too many,
        because a conversation has no known end."""
        self._batches += 1
        if self._batches % PRUNE_EVERY != 1:
            return
        assert self._db is not None
        newest = self._db.execute("SELECT max(used_at) FROM spent").fetchone()[0] or 0.0
        pattern = f"{CONVERSATION_PREFIX}%"
        self._db.execute(_OLD, (pattern, newest - CONVERSATIONS_KEPT_S))
        self._db.execute(_MANY, (pattern, MAX_CONVERSATION_ROWS))
        self._db.execute("DELETE FROM marks WHERE at < ?", (newest - 5 * CONVERSATIONS_KEPT_S,))


class _Aside(_WriterThread):
    """Counts in memory, on top of the file's counts, while the file cannot be written."""

    def __init__(
        self,
        db: sqlite3.Connection | None,
        unwritten: dict[tuple[str, str], tuple[Spent, float]],
        marks: set[str],
        refusal: GatewayError | None,
    ) -> None:
        """`db`: None if the file could not be opened. `refusal`: the outcome of every claim."""
        self._db = db
        self._unwritten = unwritten
        self._marks = marks
        self._refused = refusal

    def reserve(self, claim: Claim) -> ClaimOutcome | GatewayError:
        return self._refused or super().reserve(claim)

    def first(self, mark: str, at: float) -> bool:
        new = mark not in self._marks
        self._marks.add(mark)
        return new

    def keep_cycle(self, cycle: BillingCycle) -> None:
        pass  # Cursor is asked again

    def cycle(self) -> BillingCycle | None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                return super().cycle()
        return None

    def _add(self, scope: str, day: str, amount: Spent, at: float) -> None:
        known, _ = self._unwritten.get((scope, day), (NOTHING_SPENT, at))
        self._unwritten[scope, day] = (known + amount, at)
        if len(self._unwritten) > MAX_CONVERSATION_ROWS:
            oldest = next((key for key in self._unwritten if key[0].startswith(CONVERSATION_PREFIX)), None)
            self._unwritten.pop(oldest or next(iter(self._unwritten)))

    def _sum(self, scope: str, since: str) -> Spent:
        total = NOTHING_SPENT
        if self._db is not None:
            with suppress(sqlite3.Error):
                total = super()._sum(scope, since)
        for (whose, day), (amount, _) in self._unwritten.items():
            if whose == scope and day >= since:
                total += amount
        return total


def _added(claim: Claim, scope: str, measure: Measure) -> float:
    return claim.amount.of(measure) if scope in claim.scopes else 0.0


def _refusal() -> GatewayError:
    return GatewayError(
        ErrorKind.OVERLOADED,
        "The gateway cannot look at its budgets.",
        hint="The gateway's log names the file and the reason. With `--cluster-budgets allow` runs are counted in "
        "memory meanwhile.",
        code=UNSURE_CODE,
        repeatable=False,
    )
