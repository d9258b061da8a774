"""Opens the ledger's SQLite file: mode 0600, no symbolic links, WAL, its schema version and the migrations up to it; a
broken file is moved aside, a newer or foreign one is left alone.

Whoever cannot open it is told by LedgerUnusable, whose words are for people.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

FILE_NAME: Final = "ledger.sqlite"
PATIENCE_S: Final = 5.0
"""How long a write waits for another process."""
CACHE_KIB: Final = 8192
"""Of memory, for one connection; larger sorts use a file."""
_WAL_LIMIT: Final = 4 * 2**20
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")
_NO_DATABASE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_CALLED = """key TEXT NOT NULL, client TEXT NOT NULL, dialect TEXT NOT NULL, backend TEXT NOT NULL,
    asked TEXT NOT NULL, model TEXT NOT NULL, variant TEXT NOT NULL, conversation TEXT NOT NULL"""
_TOKENS = "input INTEGER, cache_read INTEGER, cache_write INTEGER, output INTEGER, reasoning INTEGER"
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        f"""CREATE TABLE responses (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, {_CALLED}, run TEXT NOT NULL, request_id TEXT NOT NULL,
            session TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL, error TEXT NOT NULL,
            stream INTEGER NOT NULL, calls INTEGER NOT NULL, {_TOKENS}, estimated INTEGER NOT NULL,
            held INTEGER, first_ms REAL, total_ms REAL NOT NULL)""",
        "CREATE INDEX responses_by_time ON responses (at)",
        "CREATE INDEX responses_by_conversation ON responses (conversation, id)",
        f"""CREATE TABLE runs (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, at REAL NOT NULL, started_at REAL NOT NULL, {_CALLED},
            upstream TEXT NOT NULL, session TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL,
            error TEXT NOT NULL, responses INTEGER NOT NULL, reported INTEGER NOT NULL, complete INTEGER NOT NULL,
            steps INTEGER NOT NULL, {_TOKENS}, cents REAL, charged_cents REAL, cents_from TEXT NOT NULL)""",
        "CREATE INDEX runs_by_time ON runs (at)",
        "CREATE INDEX runs_by_conversation ON runs (conversation, id)",
        "CREATE INDEX runs_by_upstream ON runs (upstream) WHERE upstream != ''",
    ),
    (
        "ALTER TABLE responses ADD COLUMN called TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE responses ADD COLUMN recoveries TEXT NOT NULL DEFAULT ''",
    ),
)
"""What makes each version out of the one before it. A row here is never changed, only added to."""
VERSION: Final = len(MIGRATIONS)


class LedgerUnusable(Exception):
    """The file is there and must not be touched, or it cannot be opened."""


def is_broken(error: sqlite3.Error) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _NO_DATABASE


def open_ledger(path: Path) -> sqlite3.Connection:
    """To write. Raises LedgerUnusable or sqlite3.Error; makes what is missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_links(path)
        # Made here and not by SQLite, whose files are as open as the umask lets them; its side files inherit this mode.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if os.name == "posix" and path.lstat().st_mode & 0o077:
                path.chmod(0o600)
    except OSError as failure:
        raise LedgerUnusable(failure.strerror or str(failure)) from failure
    try:
        return _connected(path)
    except sqlite3.DatabaseError as error:
        if not is_broken(error):
            raise
    move_aside(path)
    return _connected(path)


def read_ledger(path: Path) -> sqlite3.Connection | None:
    """To ask only; None when there is none yet. Raises LedgerUnusable or sqlite3.Error."""
    if not path.exists():
        return None
    _check_links(path)
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S)
    try:
        if _version(connection) == 0:
            connection.close()
            return None
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except BaseException:
        connection.close()
        raise
    return connection


def empty_ledger() -> sqlite3.Connection:
    """One that nothing was written to."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _migrate(connection)
    return connection


def forget(path: Path) -> tuple[int, int]:
    """Delete every row, also from the file's free space; (responses, runs). Raises as `open_ledger` does."""
    with closing(open_ledger(path)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        with transaction(connection):
            responses = connection.execute("DELETE FROM responses").rowcount
            runs = connection.execute("DELETE FROM runs").rowcount
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return responses, runs


def move_aside(path: Path) -> Path:
    """`x` becomes `x.broken`; the database last: a new one must never meet the old one's log."""
    aside = path.with_name(path.name + ".broken")
    for ending in (*_SIDE_FILES, ""):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")
    return aside


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # some failures have ended it already
            connection.execute("ROLLBACK")


def _check_links(path: Path) -> None:
    for file in (path, *(Path(f"{path}{ending}") for ending in _SIDE_FILES)):
        if file.is_symlink():
            raise LedgerUnusable(f"{file.name} is a symbolic link: remove it")


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    try:
        _migrate(connection)
        with suppress(sqlite3.OperationalError):  # somebody else is just doing it: then it is done for us too
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    version = _version(connection)
    if version == VERSION:
        return
    if version == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts only as long as there is no table
    with transaction(connection):
        for step in MIGRATIONS[_version(connection) :]:  # again: another process may have been faster
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    """Only looks: what is not ours stays as it is."""
    both = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    with closing(connection.execute(both)) as cursor:
        version, tables = cursor.fetchone()
    if version > VERSION:
        raise LedgerUnusable(f"it has version {version}, this gateway knows {VERSION}: update it")
    if version == 0 and tables:
        raise LedgerUnusable("it is a database of something else")
    return int(version)
