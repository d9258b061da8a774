"""The ledger of a gateway: queues records and writes them in batches in its own thread, at most a second later. The
queue is bounded; a full, locked or read-only disk costs rows and one warning, never a request. Rows beyond the age or
size limit are pruned. A deleted or replaced file is opened again.

The event loop only appends each record. The thread opens the file, writes and prunes. Rows of a failed write stay
queued for the next attempt; a crash loses the queue.
"""

import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from ..core.records import Observer, RefusedRequest
from ..storage.database import is_broken, move_aside, open_database, stat_of, transaction
from .writing import LEDGER, STAND_IN, LedgerRecord, write

log = logging.getLogger(__name__)

DELAY_S: Final = 0.4
"""The pause between the first record of a batch and its write."""
AGAIN_S: Final = 5.0
"""The pause between a failed write and the next attempt."""
MAX_WAITING: Final = 20_000
BATCH: Final = 2_000
"""The maximum number of rows in one transaction."""
PRUNE_EVERY_S: Final = 60.0
PRUNE_ROWS: Final = 5_000
"""The number of rows that one pruning step deletes from each table."""
PRUNE_STEPS: Final = 20
VACUUM_PAGES: Final = 1_000
_FORGET: Final = (
    "DELETE FROM responses WHERE id IN (SELECT id FROM responses WHERE at < ? ORDER BY at LIMIT ?)",
    "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE at < ? ORDER BY at LIMIT ?)",
)


class Ledger(Observer):
    def __init__(
        self,
        path: Path,
        *,
        max_age_s: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
        stand_ins: Collection[str] = (),
    ) -> None:
        """`clock`: unix seconds. `stand_ins`: backends whose address is not Cursor's own."""
        self._stand_ins = stand_ins
        self._path = path
        self._max_age = max_age_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._waiting: deque[LedgerRecord] = deque()
        self._lost = 0
        """The number of records dropped because the queue was full."""
        self._gone = 0
        """The number of records that left the queue."""
        self._progress = threading.Condition()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._db: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None
        """The identity of the open file."""
        self._trouble = ""
        self._prune_at = 0.0
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why the ledger cannot be written; empty if it can."""
        return self._trouble

    @property
    def written(self) -> int:
        """The number of records that left the queue; it changes when new rows can be read."""
        return self._gone

    # ---- in the event loop

    def request_refused(self, record: RefusedRequest) -> None:
        """Queues the record if the refused request was for a model's answer; ignores other refusals."""
        if record.turn:
            self.response_ended(record)

    def response_ended(self, record: LedgerRecord) -> None:
        """Queues a record of any kind."""
        waiting = self._waiting
        if len(waiting) >= MAX_WAITING:
            self._lost += 1
            return
        waiting.append(record)
        if len(waiting) == 1:
            self._wake.set()

    run_ended = response_ended

    def settle(self, patience: float) -> None:
        """Blocks until the records queued so far are written, at most `patience` seconds."""
        due = len(self._waiting) + self._gone
        with self._progress:
            self._progress.wait_for(lambda: self._gone >= due or not self._waiting, patience)

    def close(self) -> None:
        """Tries at least once more to write the queue, and ends the thread. Blocks."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    # ---- the thread

    def _work(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            self._stop.wait(DELAY_S)
            while self._waiting and not self._written():
                if self._stop.wait(AGAIN_S):
                    break
        self._written()
        if self._waiting:
            log.warning("the ledger could not be written: %d rows are lost", len(self._waiting))
        if self._db is not None:
            self._db.close()

    def _written(self) -> bool:
        """Returns False if rows are left that another attempt may write."""
        try:
            while self._waiting:
                self._write_batch(self._current())
            if self._db is not None and self._clock() >= self._prune_at:
                self._prune_at = self._clock() + PRUNE_EVERY_S
                self._prune(self._db)
        except (sqlite3.Error, OSError) as failure:
            self._failed(failure)
            return False
        if self._trouble:
            self._trouble = ""
            lost, self._lost = self._lost, 0
            log.warning("the ledger is written again; %d rows were lost", lost)
        return True

    def _current(self) -> sqlite3.Connection:
        """The connection to the current file: SQLite would go on writing to a deleted file."""
        now = stat_of(self._path)
        if self._db is not None and not (now and self._opened and os.path.samestat(now, self._opened)):
            log.warning("the ledger %s was deleted or replaced: it is opened anew", self._path)
            self._db.close()
            self._db = None
        if self._db is None:
            self._db = open_database(self._path, LEDGER)
            self._opened = stat_of(self._path)
        return self._db

    def _write_batch(self, db: sqlite3.Connection) -> None:
        count = min(len(self._waiting), BATCH)
        with transaction(db):
            # Indexing is safe: the event loop may append meanwhile.
            for odd in write(db, [self._marked(self._waiting[index]) for index in range(count)]):
                log.warning("a row of the ledger cannot be kept: %s", odd)
        for _ in range(count):  # only after the rows are committed
            self._waiting.popleft()
        with self._progress:
            self._gone += count
            self._progress.notify_all()

    def _marked(self, record: LedgerRecord) -> LedgerRecord:
        if isinstance(record, RefusedRequest) or record.backend not in self._stand_ins:
            return record
        return replace(record, backend=record.backend + STAND_IN)

    def _failed(self, failure: Exception) -> None:
        if self._db is not None:
            self._db.close()
        if isinstance(failure, sqlite3.Error) and is_broken(failure):
            with suppress(sqlite3.Error):  # the file cannot be opened either
                move_aside(self._path, self._opened, failure)
        elif not self._trouble:  # one line per period of trouble
            log.warning("the ledger %s cannot be written, usage is not kept: %s", self._path, failure)
        self._db = None
        self._trouble = str(failure)

    # ---- pruning

    def _prune(self, db: sqlite3.Connection) -> None:
        too_old = self._clock() - self._max_age
        for _ in range(PRUNE_STEPS):
            if not self._delete(db, too_old):
                break
        for _ in range(PRUNE_STEPS):
            if self._used_bytes(db) <= self._max_bytes or not self._delete(db, inf):
                break
        # As a script: the statement yields a row for each page, and `execute` stops at the first.
        db.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")

    @staticmethod
    def _delete(db: sqlite3.Connection, before: float) -> int:
        """Deletes the oldest rows in small steps, so that other writers get their turn."""
        with transaction(db):
            return sum(db.execute(statement, (before, PRUNE_ROWS)).rowcount for statement in _FORGET)

    @staticmethod
    def _used_bytes(db: sqlite3.Connection) -> int:
        """The size of the file without its free pages."""
        pages, free, size = (
            int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size
