"""Stores responses of the Responses API in SQLite, by account and key, so that they survive a restart. Size and age are
limited; the least recently used are pruned. A thread writes them at once.
The file is opened on first use. A broken file loses its content, but fails no request: the responses of this process
are in memory, too. A deletion is confirmed only after the file has it.
"""

import json
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from ..core.stored_response import StoredResponse
from ..storage.database import DatabaseKind, is_broken, move_aside, open_or_memory, stat_of, transaction

log = logging.getLogger(__name__)

PATIENCE_S: Final = 0.5
MAX_WAITING_BYTES: Final = 64 * 2**20
"""Unwritten responses; with a slow disk, further responses are dropped."""
TOUCH_AFTER_S: Final = 60.0
"""A stored time of use is updated only if it is older than this."""
PRUNE_AT_ONCE: Final = 256

_SCHEMA: Final = (
    # Only its owner, of the same account (`scope`), finds a response.
    """CREATE TABLE responses (
        id TEXT PRIMARY KEY, scope TEXT NOT NULL, owner TEXT NOT NULL, used_at REAL NOT NULL, size INTEGER NOT NULL,
        body BLOB NOT NULL, input BLOB NOT NULL, previous TEXT, items TEXT NOT NULL)""",
    "CREATE INDEX responses_by_use ON responses (used_at, size)",
    # Clients choose the ids of items: of two responses with the same item, the newer counts.
    """CREATE TABLE items (
        scope TEXT NOT NULL, owner TEXT NOT NULL, item TEXT NOT NULL, response TEXT NOT NULL,
        PRIMARY KEY (scope, owner, item)
    ) WITHOUT ROWID""",
    "CREATE INDEX items_by_response ON items (response)",
)
RESPONSES: Final = DatabaseKind("responses", (_SCHEMA,))

_INSERT: Final = """INSERT OR REPLACE INTO responses (id, scope, owner, used_at, size, body, input, previous, items)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_HOLD: Final = "INSERT OR REPLACE INTO items (scope, owner, item, response) VALUES (?, ?, ?, ?)"
_FIND: Final = """SELECT id, owner, body, input, previous, items, used_at FROM responses
    WHERE id = ? AND scope = ?"""
_HOLDER: Final = """SELECT id, owner, body, input, previous, items, used_at FROM responses
    WHERE id = (SELECT response FROM items WHERE scope = ? AND owner = ? AND item = ?)"""
_OLDEST: Final = "SELECT id, used_at, size FROM responses ORDER BY used_at LIMIT ?"


class ResponseFile:
    def __init__(self, path: Path, *, max_bytes: int, max_age_s: float, clock: Callable[[], float]) -> None:
        """`clock`: unix seconds."""
        self._path = path
        self._max_bytes = max_bytes
        self._max_age = max_age_s
        self._clock = clock
        self._db: sqlite3.Connection | None = None
        self._using = Lock()
        """The lock for the database."""
        self._waiting: dict[str, tuple[str, StoredResponse]] = {}
        self._bytes = 0
        self._lock = Lock()
        """The lock for the waiting responses."""
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False
        self._warned = False

    # ---- for `AccountResponses`

    def put(self, scope: str, response: StoredResponse) -> None:
        with self._lock:
            if self._closed or response.size > self._max_bytes:
                return
            before = self._waiting.get(response.id)
            more = response.size - (before[1].size if before is not None else 0)
            if self._bytes + more > MAX_WAITING_BYTES:
                log.info("the response store cannot keep up: a response is not kept")
                return
            self._waiting[response.id] = scope, response
            self._bytes += more
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "responses")
            self._thread.submit(self._write)

    def get(self, scope: str, response_id: str) -> StoredResponse | None:
        with self._lock:
            waits = self._waiting.get(response_id)
        if waits is not None:
            return waits[1] if waits[0] == scope else None
        return self._read(_FIND, (response_id, scope))

    def holder(self, scope: str, owner: str, item_id: str) -> StoredResponse | None:
        return self._read(_HOLDER, (scope, owner, item_id))

    def remove(self, response_id: str) -> bool:
        with self._using:  # waits for a running write
            with self._lock:
                waits = self._waiting.pop(response_id, None)
                if waits is not None:
                    self._bytes -= waits[1].size
            return self._work("forget a response", lambda db: _drop(db, response_id))

    def close(self) -> None:
        """Write all waiting responses and close the file."""
        with self._lock:
            thread, self._thread, self._closed = self._thread, None, True
        if thread is not None:
            thread.shutdown()
        with self._using:
            if self._db is not None:
                self._db.close()
                self._db = None

    # ---- the file

    def _write(self) -> None:
        """Write all waiting responses; runs in the thread."""
        with self._using:
            with self._lock:
                batch = list(self._waiting.values())
            if batch:
                self._work("keep a response", lambda db: self._keep(db, batch))
            with self._lock:
                for _, response in batch:
                    if (waits := self._waiting.get(response.id)) is not None and waits[1] is response:
                        del self._waiting[response.id]
                        self._bytes -= response.size

    def _keep(self, db: sqlite3.Connection, batch: list[tuple[str, StoredResponse]]) -> None:
        now = self._clock()
        for scope, one in batch:
            items = json.dumps(one.item_ids)
            row = (one.id, scope, one.owner, now, one.size, one.body, one.input, one.previous, items)
            db.execute(_INSERT, row)
            db.executemany(_HOLD, [(scope, one.owner, item, one.id) for item in one.item_ids])
        self._prune(db, now)

    def _prune(self, db: sqlite3.Connection, now: float) -> None:
        """Delete the oldest responses over the limits, at most PRUNE_AT_ONCE per write."""
        (held,) = db.execute("SELECT total(size) FROM responses").fetchone()
        for name, used_at, size in db.execute(_OLDEST, (PRUNE_AT_ONCE,)).fetchall():
            if now - used_at <= self._max_age and held <= self._max_bytes:
                return
            held -= size
            _drop(db, name)

    def _read(self, query: str, values: tuple[str, ...]) -> StoredResponse | None:
        found: list[StoredResponse] = []

        def work(db: sqlite3.Connection) -> None:
            row = db.execute(query, values).fetchone()
            if row is None:
                return
            name, owner, body, given, previous, items, used_at = row
            now = self._clock()
            if now - used_at > self._max_age:
                return  # due to be pruned
            if now - used_at > TOUCH_AFTER_S:
                db.execute("UPDATE responses SET used_at = ? WHERE id = ?", (now, name))
            with suppress(ValueError):  # SQLite does not detect every corrupt byte
                found.append(StoredResponse(name, owner, body, given, previous, tuple(json.loads(items))))

        with self._using:
            if self._closed or (self._db is None and not self._path.exists()):
                return None
            self._work("look a response up", work, write=False)
        return found[0] if found else None

    def _work(self, what: str, work: Callable[[sqlite3.Connection], None], *, write: bool = True) -> bool:
        """Run `work` in one transaction; False if it failed. An error of the file is logged and fails no request."""
        seen = stat_of(self._path)
        try:
            if self._db is None:
                self._db = open_or_memory(self._path, RESPONSES, PATIENCE_S)
                seen = stat_of(self._path)
            with transaction(self._db, "BEGIN IMMEDIATE" if write else "BEGIN"):
                work(self._db)
        except sqlite3.Error as error:
            if is_broken(error):
                if self._db is not None:
                    self._db.close()
                    self._db = None
                with suppress(sqlite3.Error):
                    move_aside(self._path, seen, error)
            elif not self._warned:  # one line per outage, not per request
                self._warned = True
                log.warning("the response store could not %s: %s", what, error)
            return is_broken(error)  # a broken file is moved away
        self._warned = False
        return True


def _drop(db: sqlite3.Connection, response_id: str) -> None:
    db.execute("DELETE FROM items WHERE response = ?", (response_id,))
    db.execute("DELETE FROM responses WHERE id = ?", (response_id,))


class AccountResponses:
    """The responses of one account in the file."""

    def __init__(self, file: ResponseFile, scope: str) -> None:
        self._file = file
        self._scope = scope

    def put(self, response: StoredResponse) -> None:
        self._file.put(self._scope, response)

    def get(self, response_id: str) -> StoredResponse | None:
        return self._file.get(self._scope, response_id)

    def holder(self, owner: str, item_id: str) -> StoredResponse | None:
        return self._file.holder(self._scope, owner, item_id)

    def remove(self, response_id: str) -> bool:
        return self._file.remove(response_id)

    def watch(self, gone: Callable[[str], None]) -> None:
        """Not supported: other processes keep a deleted response in memory."""
