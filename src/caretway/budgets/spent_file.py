"""Opens the SQLite file of what was spent: mode 0600, no symbolic link, WAL, every commit on the disk before it counts
(`synchronous = FULL`), its schema version. A file that cannot be used is left alone, and memory is used instead.
"""

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from .budget import Spent
from .periods import BillingCycle

log = logging.getLogger(__name__)

FILE: Final = "budgets.sqlite"
VERSION: Final = 1
CONVERSATION_PREFIX: Final = "conversation:"
PATIENCE_S: Final = 5.0
"""How long a write waits for that of another process."""
SUM: Final = """SELECT coalesce(sum(runs), 0), coalesce(sum(tokens), 0), coalesce(sum(uncached), 0),
    coalesce(sum(cents), 0.0) FROM spent WHERE scope = ? AND day >= ?"""
_SCHEMA: Final = (
    # `scope` is a key's id, `everybody` or a conversation. A period is a sum of days.
    """CREATE TABLE spent (
        scope TEXT NOT NULL, day TEXT NOT NULL, runs INTEGER NOT NULL, tokens INTEGER NOT NULL,
        uncached INTEGER NOT NULL, cents REAL NOT NULL, used_at REAL NOT NULL, PRIMARY KEY (scope, day)
    ) WITHOUT ROWID""",
    "CREATE INDEX spent_by_use ON spent (used_at)",
    "CREATE TABLE marks (mark TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE cycle (one INTEGER PRIMARY KEY, starts_at REAL NOT NULL, ends_at REAL NOT NULL)",
    f"PRAGMA user_version = {VERSION}",
)


class UnusableSpentFile(Exception):
    """A file that this version must not touch."""


def open_spent(path: Path | None, patience_s: float = PATIENCE_S) -> sqlite3.Connection:
    """A connection with the schema in place: to the file if that can be, to memory if not."""
    if path is not None:
        try:
            return _connect(_prepared(path), patience_s)
        except (OSError, sqlite3.Error, UnusableSpentFile) as error:
            log.warning("budgets are counted in memory only, %s cannot be used: %s", path, error)
    return _connect(":memory:", patience_s)


def _prepared(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink():
        raise UnusableSpentFile("it is a symbolic link: remove it, or name the directory it leads to as data_dir")
    # Made here and not by SQLite, whose files are as open as the umask lets them; its side files inherit this mode.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if os.name == "posix" and path.lstat().st_mode & 0o077:
            path.chmod(0o600)
    return str(path)


def _connect(name: str, patience_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(name, timeout=patience_s, isolation_level=None)
    try:
        _check(connection)  # only looks: what is not ours stays as it is, to the byte
        with suppress(sqlite3.OperationalError):  # somebody else is just doing it: then it is done for us too
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _check(connection):  # again: another process may have been faster
                for statement in _SCHEMA:
                    connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> bool:
    """True when it is new. Raises when it is not ours."""
    # In one statement, so that another process cannot make its tables between the two looks.
    both = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    version, tables = connection.execute(both).fetchone()
    if version not in (0, VERSION):
        raise UnusableSpentFile(f"it has version {version}, this gateway knows {VERSION}")
    if version == 0 and tables:
        raise UnusableSpentFile("it is a database of something else")
    return bool(version == 0)


def last_uses(path: Path) -> dict[str, float]:
    """Scope -> when it was counted last. For the commands, which only read; nothing is made where nothing is."""
    with closing(_reading(path)) as connection:
        return dict(connection.execute("SELECT scope, max(used_at) FROM spent GROUP BY scope"))


def spent_since(path: Path, scope: str, since: str) -> Spent:
    """The same for what was spent."""
    with closing(_reading(path)) as connection:
        return Spent(*connection.execute(SUM, (scope, since)).fetchone())


def kept_cycle(path: Path) -> BillingCycle | None:
    with closing(_reading(path)) as connection:
        row = connection.execute("SELECT starts_at, ends_at FROM cycle").fetchone()
    return BillingCycle(*row) if row is not None else None


def _reading(path: Path) -> sqlite3.Connection:
    """The file as it is, or an empty one in memory. Raises sqlite3.Error and UnusableSpentFile."""
    if not path.exists():
        return _connect(":memory:", PATIENCE_S)
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    try:
        if _check(connection):
            raise UnusableSpentFile("it is empty")
    except BaseException:
        connection.close()
        raise
    return connection
