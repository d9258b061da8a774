"""Every kind of database: private, migrated, replaced when it is damaged, and left alone when it is another's."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from caretway.sessions.response_file import RESPONSES
from caretway.sessions.store import CONVERSATIONS
from caretway.storage.database import (
    DatabaseKind,
    DatabaseUnusable,
    open_database,
    open_or_memory,
    read_database,
    transaction,
)
from caretway.usage.spent_store import SPENT
from caretway.usage.writing import LEDGER

KINDS = [SPENT, LEDGER, RESPONSES, CONVERSATIONS]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.holds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "x.sqlite"


def tables(connection: sqlite3.Connection) -> list[tuple[str]]:
    return connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


def made(path: Path, statement: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_bytes(b"this is no database" * 100),
    "only a header": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000),
    "a first page that is lost": lambda path: path.write_bytes(path.read_bytes()[:100] + bytes(4096)),
}


@every_kind
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_replaced_once(
    kind: DatabaseKind, damage: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(open_database(path, kind)) as db:
        wanted = tables(db)
    DAMAGES[damage](path)
    damaged = path.read_bytes()
    for _ in range(3):
        with closing(open_database(path, kind)) as db:
            assert tables(db) == wanted
    assert path.with_name("x.sqlite.broken").read_bytes() == damaged
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["x.sqlite is broken"]


@every_kind
def test_reading_changes_nothing(kind: DatabaseKind, path: Path) -> None:
    assert read_database(path, kind) is None
    assert not path.parent.exists()
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        read_database(path, kind)
    assert [file.name for file in path.parent.iterdir()] == ["x.sqlite"]


@every_kind
@pytest.mark.parametrize(
    ("statement", "words"),
    [("PRAGMA user_version = 99", "version 99, this gateway knows"), ("CREATE TABLE theirs (x)", "something else")],
)
def test_a_newer_or_foreign_file_stays_as_it_is(
    kind: DatabaseKind, statement: str, words: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made(path, statement)
    before = path.read_bytes()
    for use in (open_database, read_database):
        with pytest.raises(DatabaseUnusable, match=words):
            use(path, kind)
    with closing(open_or_memory(path, kind)) as db:
        assert db.execute("PRAGMA database_list").fetchone()[2] == ""
    assert words in caplog.text
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["x.sqlite"]


@every_kind
@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_a_link_is_not_followed(kind: DatabaseKind, ending: str, path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    target = tmp_path / "target"
    target.write_bytes(b"theirs")
    Path(f"{path}{ending}").symlink_to(target)
    with pytest.raises(DatabaseUnusable, match="symbolic link: remove it"):
        open_database(path, kind)
    assert target.read_bytes() == b"theirs"
    target.unlink()
    for use in (open_database, read_database):
        with pytest.raises(DatabaseUnusable, match="symbolic link: remove it"):
            use(path, kind)


@every_kind
@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_a_pipe_is_not_waited_for(kind: DatabaseKind, ending: str, path: Path) -> None:
    open_database(path, kind).close()
    Path(f"{path}{ending}").unlink(missing_ok=True)
    os.mkfifo(f"{path}{ending}")
    for open_it in (open_database, read_database):
        with pytest.raises(DatabaseUnusable, match="not a regular file"):
            open_it(path, kind)


@every_kind
def test_it_is_the_owners_alone(kind: DatabaseKind, path: Path) -> None:
    before = os.umask(0o022)
    try:
        with closing(open_database(path, kind)) as db, transaction(db):
            db.execute("CREATE TABLE more (x)")
            files = list(path.parent.iterdir())
            assert len(files) == 3  # the database, its log and the log's index
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        path.chmod(0o644)
        open_database(path, kind).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_place_that_cannot_be_written_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnusable, match=r"[Nn]ot a directory|File exists"):
        open_database(tmp_path / "file" / "x.sqlite", SPENT)
