"""Opens SQLite databases: mode 0600, no symbolic links, WAL, a schema version with migrations. A damaged file is moved
aside and replaced by a new one; a foreign or newer file is never changed."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

log = logging.getLogger(__name__)

PATIENCE_S: Final = 5.0
"""How long a write waits for another process. Opening waits at least this long: no request depends on it yet."""
_IN_MEMORY: Final = ":memory:"
_WAL_LIMIT: Final = 4 * 2**20
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")
_NO_DATABASE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class DatabaseKind(Struct, frozen=True):
    holds: str
    """The content in the plural, for people: `conversations`."""
    migrations: tuple[tuple[str, ...], ...]
    """The statements that lead from each version to the next. Entries are only added, never changed."""
    late_column: tuple[str, str, str] | None = None
    """(table, column, statement that adds it): a column that older gateways on the same file ignore."""
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    """FULL: a commit is on disk when it returns."""
    cache_kib: int = 2000
    """Memory of one connection; larger sorts use a file."""


class DatabaseUnusable(sqlite3.Error):
    """The file must not be touched, or cannot be created. The message gives the reason."""


def is_broken(error: sqlite3.Error) -> bool:
    """True if the file is damaged, or has the right version but lacks a table, which no migration restores."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF in _NO_DATABASE or str(error).startswith("no such table"))


def open_database(path: Path, kind: DatabaseKind, patience_s: float = PATIENCE_S) -> sqlite3.Connection:
    """Open for reading and writing, by one thread at a time. Creates a missing file. Raises sqlite3.Error."""
    seen = _prepare(path)
    try:
        return _connect(str(path), kind, patience_s)
    except sqlite3.Error as error:
        if not is_broken(error):
            raise
        move_aside(path, seen, error)
    _prepare(path)
    return _connect(str(path), kind, patience_s)


def open_or_memory(path: Path | None, kind: DatabaseKind, patience_s: float = PATIENCE_S) -> sqlite3.Connection:
    """Like `open_database`, with a database in memory if `path` is None or cannot be used."""
    if path is not None:
        try:
            return open_database(path, kind, patience_s)
        except sqlite3.Error as error:
            log.warning("%s are kept in memory only, %s cannot be used: %s", kind.holds, path, error)
    return _connect(_IN_MEMORY, kind, patience_s)


def read_database(path: Path, kind: DatabaseKind) -> sqlite3.Connection | None:
    """Open for reading; None if nothing was written yet. Changes nothing, not even a damaged file. Raises
    sqlite3.Error."""
    _check_file(path)
    if not path.exists():
        return None
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S)
    try:
        if _version(connection, kind) == 0:
            connection.close()
            return None
        connection.execute(f"PRAGMA cache_size = -{kind.cache_kib}")
    except BaseException:
        connection.close()
        raise
    return connection


def move_aside(path: Path, seen: os.stat_result | None, error: Exception) -> None:
    """Rename `x` to `x.broken`. Does nothing if `x` is not the file that was `seen`: another process has replaced it.
    Raises DatabaseUnusable."""
    now = stat_of(path)
    if now is None or (seen is not None and not os.path.samestat(now, seen)):
        return
    aside = path.with_name(path.name + ".broken")
    try:
        for ending in (*_SIDE_FILES, ""):  # the database last: a new one must never meet the old log
            with suppress(FileNotFoundError):
                os.replace(f"{path}{ending}", f"{aside}{ending}")
    except OSError as failure:
        raise DatabaseUnusable(f"it is broken and cannot be moved aside: {failure.strerror}") from failure
    log.warning("%s is broken (%s): moved to %s, a new one is made", path.name, error, aside)


def stat_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit everything or nothing."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # some failures end the transaction
            connection.execute("ROLLBACK")


def _prepare(path: Path) -> os.stat_result:
    _check_file(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Created here, because SQLite would create it with the modes that the umask allows; its side files inherit this
        # mode. An existing file is not opened: closing it would drop this process's locks on it (POSIX), and another
        # process could then believe itself the last user and delete the write-ahead log.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if path.lstat().st_mode & 0o077:
                path.chmod(0o600)
        return path.lstat()
    except OSError as failure:
        raise DatabaseUnusable(failure.strerror or str(failure)) from failure


def _check_file(path: Path) -> None:
    for file in (path, *(Path(f"{path}{ending}") for ending in _SIDE_FILES)):
        if file.is_symlink():
            raise DatabaseUnusable(
                f"{file.name} is a symbolic link: remove it, or name the directory it leads to as data_dir"
            )
        if file.exists() and not file.is_file():  # opening a pipe would block
            raise DatabaseUnusable(f"{file.name} is not a regular file")


def _connect(name: str, kind: DatabaseKind, patience_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        name, timeout=max(patience_s, PATIENCE_S), isolation_level=None, check_same_thread=False
    )
    try:
        _migrate(connection, kind)
        with suppress(sqlite3.OperationalError):  # another process sets it at this moment, for the whole file
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {kind.synchronous}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        connection.execute(f"PRAGMA cache_size = -{kind.cache_kib}")
        connection.execute(f"PRAGMA busy_timeout = {round(patience_s * 1000)}")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, kind: DatabaseKind) -> None:
    version = _version(connection, kind)
    if version == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect only before the first table
    if version < len(kind.migrations):
        with transaction(connection):
            for step in kind.migrations[_version(connection, kind) :]:  # again: another process may have migrated
                for statement in step:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(kind.migrations)}")
    if kind.late_column is not None:
        table, column, add = kind.late_column
        query = "SELECT count(*) FROM pragma_table_info(?) WHERE name = ?"
        if not connection.execute(query, (table, column)).fetchone()[0]:
            with suppress(sqlite3.OperationalError):  # another process has added it
                connection.execute(add)


def _version(connection: sqlite3.Connection, kind: DatabaseKind) -> int:
    """The schema version; 0: new. Read-only, in one statement, so that no other process can create tables in
    between."""
    both = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    with closing(connection.execute(both)) as cursor:
        version, tables = cursor.fetchone()
    if not 0 <= version <= len(kind.migrations):
        raise DatabaseUnusable(f"it has version {version}, this gateway knows {len(kind.migrations)}: update it")
    if version == 0 and tables:
        raise DatabaseUnusable("it is a database of something else")
    return int(version)
