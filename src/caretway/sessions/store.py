"""Stores finished conversations in SQLite, so that they can be continued, also after a restart.
A cache, not an archive: a missing conversation is replayed from the client's own history, so a failed write or a broken
file is a warning and never fails a request. Old and least recently used conversations are pruned. Several processes may
share the file; every write is one short transaction. Snapshots are opaque here. A store belongs to the thread that
created it.

A continued conversation needs the pieces of all its earlier turns, so the turns of one conversation share them in a
line: a turn adds pieces and sees the pieces of earlier turns. A branch continues from an older turn: its pieces are
copied into a new line.
"""

import hashlib
import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from ..core.turn import Snapshot
from ..storage.database import DatabaseKind, is_broken, move_aside, open_or_memory, stat_of, transaction

# ---- The store of finished conversations, as the session engine uses it: the gateway's own file, or a shared store.


class ConversationStore(Protocol):
    """Finished conversations by the fingerprint of their transcript."""

    def recall(self, key: bytes) -> Snapshot | None: ...

    def remember(self, key: bytes, snapshot: Snapshot) -> None: ...

    @property
    def settled(self) -> bool:
        """Whether all writes are done, so that remembered conversations can be recalled."""
        ...

    async def settle(self) -> None: ...

    @property
    def shared(self) -> bool:
        """Whether other gateways use this store too. If so, call `bring` before `recall`."""
        ...

    async def bring(self, key: bytes) -> None:
        """Fetch the conversation, so that `recall` finds it if any gateway has stored it."""
        ...


class StoredConversations(ConversationStore, Protocol):
    """The store for the gateway that owns it: also deletes conversations and closes."""

    async def forget(self, conversation: str) -> int:
        """Delete the conversation's snapshots. Returns how many there were."""
        ...

    async def aclose(self) -> None: ...


log = logging.getLogger(__name__)

TOUCH_AFTER_S: Final = 60.0
"""A stored time of use is updated only if it is older than this."""
MAX_TOUCHED: Final = 256
"""New times of use that may wait for the next write."""
TOGETHER: Final = 32
"""Conversations of one statement. Each statement takes the interpreter's lock, which the event loop needs, too."""
PRUNE_WORK: Final = 4096
"""Rows that one pruning removes at most; the next write removes more."""
VACUUM_PAGES: Final = 256
"""Free pages that one vacuum returns to the file system."""

_SCHEMA: Final = (
    # A line is a conversation, turn by turn. `id` is random, because a snapshot names its parent by `id`, and the file
    # may have been replaced since.
    """CREATE TABLE conversations (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, line INTEGER NOT NULL, turn INTEGER NOT NULL,
        used_at REAL NOT NULL, backend TEXT NOT NULL, state BLOB NOT NULL)""",
    "CREATE INDEX conversations_by_use ON conversations (used_at)",
    "CREATE INDEX conversations_by_line ON conversations (line, turn)",
    # Each content once, for any number of conversations and names.
    "CREATE TABLE blobs (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL)",
    # The blob of a name in a line, from a turn on. Names are local to a line: they cannot reach the pieces of another
    # conversation.
    """CREATE TABLE refs (
        line INTEGER NOT NULL, name BLOB NOT NULL, turn INTEGER NOT NULL, blob INTEGER NOT NULL,
        PRIMARY KEY (line, name, turn)
    ) WITHOUT ROWID""",
    "CREATE INDEX refs_by_blob ON refs (blob)",
    "CREATE INDEX refs_by_turn ON refs (line, turn)",
)
_ADD_NAME: Final = "ALTER TABLE conversations ADD COLUMN conversation TEXT NOT NULL DEFAULT ''"
"""The gateway's own id of a conversation. The schema version stays the same: older gateways that share the file ignore
the column."""
CONVERSATIONS: Final = DatabaseKind("conversations", (_SCHEMA,), ("conversations", "conversation", _ADD_NAME))

_FIND: Final = "SELECT id, line, turn, backend, state, used_at, conversation FROM conversations WHERE key = ?"
_FETCH: Final = """SELECT data FROM refs JOIN blobs ON blobs.id = refs.blob
    WHERE line = ? AND name = ? AND turn <= ? ORDER BY turn DESC LIMIT 1"""
_PIECES: Final = """SELECT name, data FROM refs JOIN blobs ON blobs.id = refs.blob
    WHERE line = ? AND turn <= ? ORDER BY turn, name"""
_OLDEST: Final = "SELECT id, used_at FROM conversations WHERE id != ? ORDER BY used_at, id LIMIT 1"
_NEWEST_TURN: Final = "SELECT max(turn) FROM conversations WHERE line = ?"
_LINES: Final = "SELECT line FROM conversations WHERE key IN ({})"
_INSERT: Final = """INSERT OR REPLACE INTO conversations (id, key, line, turn, used_at, backend, state, conversation)
    VALUES {}"""
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?)"
_COPY: Final = """INSERT INTO refs (line, name, turn, blob)
    SELECT ?, name, turn, blob FROM refs WHERE line = ? AND turn <= ?"""
_KEEP: Final = "INSERT OR IGNORE INTO blobs (digest, data) VALUES (?, ?)"
_REFER: Final = """INSERT OR REPLACE INTO refs (line, name, turn, blob)
    SELECT ?, ?, ?, id FROM blobs WHERE digest = ?"""
_DROP_ORPHAN: Final = "DELETE FROM blobs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM refs WHERE refs.blob = blobs.id)"


class SqliteStore:
    def __init__(
        self,
        path: Path | None,
        *,
        max_bytes: int,
        max_age_s: float,
        clock: Callable[[], float],
        patience_s: float = 0.5,
    ) -> None:
        """`path` None: in memory. `clock`: unix seconds. `patience_s`: how long a write waits for another process."""
        self._path = path
        self._max_bytes = max_bytes
        self._max_age = max_age_s
        self._clock = clock
        self._patience = patience_s
        self._touched: dict[int, float] = {}
        self._closed = False
        self._warned = False
        self._open()
        self._write("prune the conversations", partial(self._prune, keep=0))
        self._vacuum()

    def _open(self) -> None:
        self._db = open_or_memory(self._path, CONVERSATIONS, self._patience)
        self._seen = stat_of(self._path) if self._path is not None else None
        self._page_size = self._number("PRAGMA page_size")
        self.in_memory = not self._db.execute("PRAGMA database_list").fetchone()[2]
        """Whether the conversations are in memory only: there is no path, or the file could not be opened."""

    def _follow(self) -> None:
        """Open the new file if another process has replaced a broken one."""
        if self.in_memory or self._path is None or self._closed:
            return
        now = stat_of(self._path)
        if now is not None and self._seen is not None and not os.path.samestat(now, self._seen):
            self._db.close()
            self._open()

    def recall(self, key: bytes) -> Snapshot | None:
        self._follow()
        row = self._row("look a conversation up", _FIND, (key,))
        if row is None:
            return None
        conversation, line, turn, backend, state, used_at, name = row
        now = self._clock()
        used_at = self._touched.get(conversation, used_at)
        if now - used_at > self._max_age:
            return None  # due to be pruned
        if now - used_at > TOUCH_AFTER_S:
            self._touched[conversation] = now  # written with the next conversation, to keep `recall` cheap
            if len(self._touched) >= MAX_TOUCHED:
                self._write_touched()
        fetch = partial(self._fetch, line, turn)
        return Snapshot(backend, state, fetch=fetch, parent=conversation.to_bytes(8, "big"), conversation=name)

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        """Store the snapshot and its new pieces. Nothing is stored if the parent is gone or the snapshot is larger than
        the whole store may be."""
        self.remember_all([(key, snapshot)])

    def take_touched(self) -> dict[int, float]:
        touched, self._touched = self._touched, {}
        return touched

    def remember_all(
        self, conversations: Sequence[tuple[bytes, Snapshot]], touched: Mapping[int, float] | None = None
    ) -> None:
        """Store several conversations and the times of use of others in one transaction."""
        self._follow()
        self._touched |= touched or {}
        kept = [(key, snapshot) for key, snapshot in conversations if self._fits(snapshot)]
        if kept:
            self._write("keep a conversation", partial(self._keep_all, kept))
            self._vacuum()

    def _fits(self, snapshot: Snapshot) -> bool:
        fits = len(snapshot.state) + sum(map(len, snapshot.blobs.values())) <= self._max_bytes
        if not fits:
            log.info("a conversation is larger than the whole store may be, and is not kept")
        return fits

    def forget(self, name: str) -> int:
        """Delete all snapshots of a conversation by the gateway's own id. Returns how many there were."""
        self._follow()
        found: list[int] = []

        def work() -> None:
            rows = self._db.execute("SELECT id FROM conversations WHERE conversation = ?", (name,)).fetchall()
            for (conversation,) in rows:
                self._drop(conversation)
                found.append(conversation)

        self._write("forget a conversation", work)
        return len(found)

    def pieces(self, parent: bytes, max_bytes: int) -> dict[bytes, bytes] | None:
        """All pieces of a conversation, by the `parent` of a recalled snapshot. None if the conversation is gone or its
        pieces exceed `max_bytes`."""
        self._follow()
        query = "SELECT line, turn FROM conversations WHERE id = ?"
        found = self._row("look a conversation up", query, (int.from_bytes(parent, "big"),))
        if found is None:
            return None
        pieces, size = dict[bytes, bytes](), 0
        try:
            for name, data in self._db.execute(_PIECES, found):
                pieces[name] = data
                size += len(data)
                if size > max_bytes:
                    return None
        except sqlite3.Error as error:
            self._trouble("read a conversation", error)
            return None
        return pieces

    def close(self) -> None:
        if self._closed:
            return
        if self._touched:
            self._write_touched()
        self._closed = True
        self._db.close()

    # ---- reading

    def _fetch(self, line: int, turn: int, name: bytes) -> bytes | None:
        row = self._row("fetch a piece of a conversation", _FETCH, (line, name, turn))
        return row[0] if row is not None else None

    def _row(self, what: str, query: str, values: tuple[object, ...]) -> Any:
        try:
            return self._db.execute(query, values).fetchone()
        except sqlite3.Error as error:
            self._trouble(what, error)
            return None

    def _number(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0])

    # ---- writing, inside a transaction

    def _keep_all(self, conversations: Sequence[tuple[bytes, Snapshot]]) -> None:
        self._touch()
        newest = 0
        fresh = [(key, snapshot) for key, snapshot in conversations if snapshot.parent is None]
        for at in range(0, len(fresh), TOGETHER):
            placed = [(secrets.randbits(62) + 1, key, snapshot) for key, snapshot in fresh[at : at + TOGETHER]]
            self._insert([(conversation, key, conversation, 0, snapshot) for conversation, key, snapshot in placed])
            newest = placed[-1][0]
        for key, snapshot in conversations:
            if snapshot.parent is not None:
                newest = self._go_on(key, snapshot, snapshot.parent) or newest
        self._prune(keep=newest)

    def _go_on(self, key: bytes, snapshot: Snapshot, parent: bytes) -> int | None:
        """Store a conversation after its parent. Returns its row, or None if the parent is gone."""
        conversation = secrets.randbits(62) + 1
        place = self._after(parent, conversation)
        if place is None:
            # The parent was pruned during the turn. Without its pieces a continuation would fail at Cursor: the
            # client's history is sent again instead.
            return None
        self._insert([(conversation, key, *place, snapshot)])
        return conversation

    def _insert(self, placed: Sequence[tuple[int, bytes, int, int, Snapshot]]) -> None:
        """Store conversations: (row, key, line, turn, snapshot)."""
        now, rows = self._clock(), list[object]()
        for conversation, key, line, turn, snapshot in placed:
            if snapshot.blobs:
                self._refer(line, turn, snapshot.blobs)
            rows += (conversation, key, line, turn, now, snapshot.backend, snapshot.state, snapshot.conversation)
        keys = [key for _, key, _, _, _ in placed]
        replaced = self._db.execute(_LINES.format(", ".join("?" * len(keys))), keys).fetchall()
        self._db.execute(_INSERT.format(", ".join([_ROW] * len(placed))), rows)
        for (line,) in replaced:
            self._trim(line)  # last: pieces that both rows share are not written again

    def _after(self, parent: bytes, conversation: int) -> tuple[int, int] | None:
        """(line, turn) for a conversation that continues this parent; None if the parent is gone."""
        query = "SELECT line, turn FROM conversations WHERE id = ?"
        found = self._db.execute(query, (int.from_bytes(parent, "big"),)).fetchone()
        if found is None:
            return None
        line, turn = found
        if self._db.execute(_NEWEST_TURN, (line,)).fetchone()[0] == turn:
            return line, turn + 1
        self._db.execute(_COPY, (conversation, line, turn))
        return conversation, turn + 1

    def _refer(self, line: int, turn: int, blobs: Mapping[bytes, bytes]) -> None:
        """Store the new pieces by their SHA-256, because upstream's names are not verified digests."""
        pieces = [(name, hashlib.sha256(data).digest(), data) for name, data in blobs.items()]
        self._db.executemany(_KEEP, [(digest, data) for _, digest, data in pieces])
        self._db.executemany(_REFER, [(line, name, turn, digest) for name, digest, _ in pieces])

    def _drop(self, conversation: int) -> int:
        """Delete a conversation. Returns the number of deleted rows."""
        line = self._db.execute("SELECT line FROM conversations WHERE id = ?", (conversation,)).fetchone()[0]
        self._db.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
        return 1 + self._trim(line)

    def _trim(self, line: int) -> int:
        """Delete the pieces that were added after the newest stored turn of a line. Returns their number."""
        newest = self._db.execute(_NEWEST_TURN, (line,)).fetchone()[0]
        beyond = (line, -1 if newest is None else newest)
        blobs = self._db.execute("SELECT blob FROM refs WHERE line = ? AND turn > ?", beyond).fetchall()
        if blobs:
            self._db.execute("DELETE FROM refs WHERE line = ? AND turn > ?", beyond)
            self._db.executemany(_DROP_ORPHAN, blobs)
        return len(blobs)

    def _prune(self, *, keep: int) -> None:
        """Delete the oldest conversations until age and size are within limits, or PRUNE_WORK rows are deleted."""
        too_old = self._clock() - self._max_age
        work = 0
        while work < PRUNE_WORK:
            row = self._db.execute(_OLDEST, (keep,)).fetchone()
            if row is None or (row[1] >= too_old and self._used_bytes() <= self._max_bytes):
                return
            work += self._drop(row[0])

    def _used_bytes(self) -> int:
        """The size of the file without free pages. Both numbers are in SQLite's header: no scan."""
        return (self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")) * self._page_size

    def _touch(self) -> None:
        touched = [(now, conversation) for conversation, now in self._touched.items()]
        self._db.executemany("UPDATE conversations SET used_at = ? WHERE id = ?", touched)
        self._touched.clear()

    # ---- the edge

    def _write_touched(self) -> None:
        self._write("note the use of conversations", self._touch)
        self._touched.clear()  # also after a failed write: a time of use is a hint

    def _vacuum(self) -> None:
        """Return some free pages to the file system if there are more than the next writes need."""
        try:
            free = self._number("PRAGMA freelist_count")
            if free > max(VACUUM_PAGES, self._number("PRAGMA page_count") // 4):
                # As a script, because the pragma yields a row for each page and `execute` stops at the first.
                self._db.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
        except sqlite3.Error as error:
            self._trouble("give space back", error)

    def _write(self, what: str, work: Callable[[], None]) -> None:
        """Run `work` in one transaction. An error of the file is logged and does not fail the request."""
        try:
            with transaction(self._db):
                work()
        except sqlite3.Error as error:
            self._trouble(what, error)
        else:
            self._warned = False

    def _trouble(self, what: str, error: sqlite3.Error) -> None:
        if self._closed:
            return  # a turn that outlived the store at shutdown
        if is_broken(error):
            self._db.close()
            if self._path is not None:
                with suppress(sqlite3.Error):  # if this fails, `_open` fails too and uses memory
                    move_aside(self._path, self._seen, error)
            self._open()
        elif not self._warned:  # one line per outage, not per request
            self._warned = True
            log.warning("the conversation store could not %s: %s", what, error)
