"""Opens a store's SQLite file (conversations, responses): mode 0600, no symbolic links, WAL, its schema version; a
corrupt file is moved aside, a newer or foreign one is left alone and memory is used instead.

A file that cannot be used costs the conversations, never the gateway: what is no database is moved aside, and what
cannot be opened or was written by a newer version is left alone, with a store in memory instead.
"""

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

log = logging.getLogger(__name__)

VERSION: Final = 1
IN_MEMORY: Final = ":memory:"

_SCHEMA: Final = (
    # A line is a conversation and what it was continued from, turn by turn. `id` is random: a snapshot names its parent
    # by it, also when the file was replaced in between.
    """CREATE TABLE conversations (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, line INTEGER NOT NULL, turn INTEGER NOT NULL,
        used_at REAL NOT NULL, backend TEXT NOT NULL, state BLOB NOT NULL)""",
    "CREATE INDEX conversations_by_use ON conversations (used_at)",
    "CREATE INDEX conversations_by_line ON conversations (line, turn)",
    # Each content once, however many conversations and names refer to it.
    "CREATE TABLE blobs (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL)",
    # What a name means in a line, from a turn on. Names are the line's own: whoever chose them, the pieces of another
    # conversation cannot be reached by them.
    """CREATE TABLE refs (
        line INTEGER NOT NULL, name BLOB NOT NULL, turn INTEGER NOT NULL, blob INTEGER NOT NULL,
        PRIMARY KEY (line, name, turn)
    ) WITHOUT ROWID""",
    "CREATE INDEX refs_by_blob ON refs (blob)",
    "CREATE INDEX refs_by_turn ON refs (line, turn)",
    f"PRAGMA user_version = {VERSION}",
)
_RESPONSES: Final = (
    # Nobody finds a response but its owner, of the same account (`scope`).
    """CREATE TABLE responses (
        id TEXT PRIMARY KEY, scope TEXT NOT NULL, owner TEXT NOT NULL, used_at REAL NOT NULL, size INTEGER NOT NULL,
        body BLOB NOT NULL, input BLOB NOT NULL, previous TEXT, items TEXT NOT NULL)""",
    "CREATE INDEX responses_by_use ON responses (used_at, size)",
    # Ids of items are chosen by clients: of two responses with the same one, the newer counts.
    """CREATE TABLE items (
        scope TEXT NOT NULL, owner TEXT NOT NULL, item TEXT NOT NULL, response TEXT NOT NULL,
        PRIMARY KEY (scope, owner, item)
    ) WITHOUT ROWID""",
    "CREATE INDEX items_by_response ON items (response)",
    f"PRAGMA user_version = {VERSION}",
)
_ADD_NAME: Final = "ALTER TABLE conversations ADD COLUMN conversation TEXT NOT NULL DEFAULT ''"
"""Our own id of a conversation. Older gateways may share the file: they leave the column alone, so it is the same
version."""

_NO_DATABASE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_WAL_LIMIT: Final = 4 * 2**20
_OPEN_PATIENCE_S: Final = 5.0
"""Longer than that of a write: nobody waits for an answer yet, and the file is lost to this process if it fails."""
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")


class FileKind(Struct, frozen=True):
    holds: str
    """For people."""
    table: str
    schema: tuple[str, ...]
    later: str = ""
    """A column of the table that came later, and how it is added."""
    add: str = ""


CONVERSATIONS: Final = FileKind("conversations", "conversations", (*_SCHEMA, _ADD_NAME), "conversation", _ADD_NAME)
RESPONSES: Final = FileKind("responses", "responses", _RESPONSES)


class NotOurs(Exception):
    """A sound database that this version must not touch."""


def is_broken(error: sqlite3.Error) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _NO_DATABASE


def open_file(path: Path | None, patience_s: float, kind: FileKind = CONVERSATIONS) -> sqlite3.Connection:
    """A connection with the schema in place: to the file if that can be, to memory if not."""
    if path is None:
        return _connect(IN_MEMORY, patience_s, kind)
    try:
        try:
            return _open(path, patience_s, kind)
        except sqlite3.DatabaseError as error:
            if not is_broken(error):
                raise
        return _open(path, patience_s, kind)  # it was moved aside
    except (OSError, sqlite3.Error, NotOurs) as error:
        log.warning("%s are kept in memory only, %s cannot be used: %s", kind.holds, path, error)
        return _connect(IN_MEMORY, patience_s, kind)


def _open(path: Path, patience_s: float, kind: FileKind) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in (path, *(Path(f"{path}{ending}") for ending in _SIDE_FILES)):
        if file.is_symlink():
            raise NotOurs(f"{file.name} is a symbolic link: remove it, or name the directory it leads to as data_dir")
    # Made here and not by SQLite, whose files are as open as the umask lets them; its side files inherit this mode.
    # A file that is there is not opened: closing it would drop the locks that this process holds on it (POSIX), and
    # another process would then take itself for the last one and delete the write-ahead log.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if os.name == "posix" and path.lstat().st_mode & 0o077:
            path.chmod(0o600)
    opened = path.lstat()
    try:
        return _connect(str(path), patience_s, kind)
    except sqlite3.DatabaseError as error:
        if is_broken(error):
            move_aside(path, opened, error)
        raise


def _connect(name: str, patience_s: float, kind: FileKind) -> sqlite3.Connection:
    """For one thread at a time: its user sees to that."""
    connection = sqlite3.connect(
        name, timeout=max(patience_s, _OPEN_PATIENCE_S), isolation_level=None, check_same_thread=False
    )
    try:
        _ensure_schema(connection, kind)
        with suppress(sqlite3.OperationalError):  # somebody else is just doing it: then it is done for us too
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        connection.execute(f"PRAGMA busy_timeout = {round(patience_s * 1000)}")
    except BaseException:
        connection.close()
        raise
    return connection


def _ensure_schema(connection: sqlite3.Connection, kind: FileKind) -> None:
    if not _is_new(connection):
        if kind.later and not _has_column(connection, kind.table, kind.later):
            with suppress(sqlite3.OperationalError):  # another process was faster
                connection.execute(kind.add)
        return
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts only as long as there is no table
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_new(connection):  # again: another process may have been faster
            for statement in kind.schema:
                connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_new(connection: sqlite3.Connection) -> bool:
    """Only looks: what is not ours stays as it is, to the byte."""
    # In one statement, so that another process cannot make its tables between the two looks.
    both = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    with closing(connection.execute(both)) as cursor:
        version, tables = cursor.fetchone()
    if version not in (0, VERSION):
        raise NotOurs(f"it has version {version}, this gateway knows {VERSION}")
    if version == 0 and tables:
        raise NotOurs("it is a database of something else")
    return bool(version == 0)


def _has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    query = "SELECT count(*) FROM pragma_table_info(?) WHERE name = ?"
    return bool(connection.execute(query, (table, column)).fetchone()[0])


def stat_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def move_aside(path: Path, seen: os.stat_result | None, error: Exception) -> None:
    """`x` becomes `x.broken`. Nothing is done when `x` is another file than the one that was `seen`: then another
    process has replaced it already."""
    now = stat_of(path)
    if now is None or (seen is not None and not os.path.samestat(now, seen)):
        return
    aside = path.with_name(path.name + ".broken")
    for ending in (*_SIDE_FILES, ""):  # the database last: a new one must never meet the old one's log
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")
    log.warning("the store %s is broken (%s): moved to %s, a new one is made", path.name, error, aside)
