"""The store's file: private, and in nobody's way when it is broken, locked, foreign, or cannot be written."""

import os
import resource
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from caretway.sessions.store import SqliteStore

from .storing import DAY, MB, Clock, Open, key, piece, recalled, snapshot, warnings

# ---- private


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_can_read_it(opened: Open, path: Path) -> None:
    with umask(0o022):
        store = opened()
        store.remember(key("chat"), snapshot("chat"))
        assert mode(path.parent) == 0o700
        files = list(path.parent.iterdir())
        assert len(files) == 3  # the database, its log and the log's index
        assert [mode(file) for file in files] == [0o600] * 3


def test_a_file_that_others_could_read_is_closed_to_them(opened: Open, path: Path) -> None:
    opened().close()
    path.chmod(0o644)
    opened()
    assert mode(path) == 0o600


def test_an_existing_directory_keeps_its_mode(opened: Open, path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    path.parent.chmod(0o755)
    opened()
    assert mode(path.parent) == 0o755


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_symbolic_link_is_not_followed(
    opened: Open, path: Path, tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    target = tmp_path / "somebody's file"
    target.write_bytes(b"not a database")
    target.chmod(0o644)
    Path(f"{path}{ending}").symlink_to(target)
    store = opened()
    store.remember(key("chat"), snapshot("chat"))
    assert (mode(target), target.read_bytes()) == (0o644, b"not a database")
    assert "symbolic link: remove it" in caplog.text
    assert Path(f"{path}{ending}").is_symlink()


# ---- in nobody's way


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_broken_file_is_moved_aside(
    opened: Open, path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    store = opened()
    store.remember(key("chat"), snapshot("chat"))
    store.close()
    recalled(opened(), "chat")
    assert path.with_name(path.name + ".broken").read_bytes() == content
    assert len(warnings(caplog)) == 1
    assert "is broken" in warnings(caplog)[0]


def test_a_file_that_breaks_while_it_is_used_is_moved_aside(
    opened: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    for n in range(50):
        store.remember(key(n), snapshot(str(n), piece(f"{n}", 10_000)))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    store = opened()
    for n in range(50):
        store.recall(key(n))
    store.remember(key("new"), snapshot("new", piece("new")))
    store.remember(key("newer"), snapshot("newer", piece("newer")))
    assert recalled(store, "newer").fetch(piece("newer")[0]) == b"newer"
    assert path.with_name(path.name + ".broken").exists()
    assert any("is broken" in line for line in warnings(caplog))
    store.close()
    recalled(opened(), "newer")


def test_a_parent_from_a_file_that_was_replaced_is_no_parent(opened: Open, path: Path) -> None:
    store = opened()
    store.remember(key(1), snapshot("1", piece("one")))
    parent = recalled(store, 1).parent
    store.close()
    path.write_bytes(b"broken" * 1000)
    store = opened()
    store.remember(key("other"), snapshot("other", piece("other")))
    store.remember(key(2), snapshot("2", piece("two"), parent=parent))
    assert store.recall(key(2)) is None


def test_a_newer_version_is_left_alone(opened: Open, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened().close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    store = opened()
    store.remember(key("chat"), snapshot("chat", piece("a")))
    assert recalled(store, "chat").fetch(piece("a")[0]) == b"a"
    store.close()
    assert path.read_bytes() == before
    assert ["version 99" in line for line in warnings(caplog)] == [True]


def test_a_database_of_something_else_is_left_alone(opened: Open, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (name)")
    store = opened()
    store.remember(key("chat"), snapshot("chat"))
    recalled(store, "chat")
    assert ["something else" in line for line in warnings(caplog)] == [True]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write everywhere; be nobody for a while, if we are root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_directory(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o555)
        try:
            with without_privileges():
                store = SqliteStore(directory / "sub" / "file", max_bytes=MB, max_age_s=DAY, clock=clock)
                store.remember(key("chat"), snapshot("chat"))
                recalled(store, "chat")
                store.close()
        finally:
            directory.chmod(0o755)
        assert list(directory.iterdir()) == []
    assert ["in memory only" in line for line in warnings(caplog)] == [True]


def test_a_path_that_cannot_be(opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    for where in (tmp_path / "file" / "store", tmp_path):
        store = opened(where)
        store.remember(key("chat"), snapshot("chat"))
        recalled(store, "chat")
    assert ["in memory only" in line for line in warnings(caplog)] == [True, True]


def test_a_file_that_stays_locked_costs_the_conversation_only(
    opened: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(patience_s=0.05)
    store.remember(key("before"), snapshot("before", piece("a")))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for n in range(3):
            store.remember(key(n), snapshot(str(n)))
        assert recalled(store, "before").fetch(piece("a")[0]) == b"a"
        assert store.recall(key(0)) is None
        other.execute("ROLLBACK")
    assert ["locked" in line for line in warnings(caplog)] == [True]
    store.remember(key("after"), snapshot("after"))
    recalled(store, "after")


def test_a_write_waits_for_another_process(opened: Open, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(patience_s=20)
    locked = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            locked.set()
            time.sleep(0.1)  # the other process works
            other.execute("COMMIT")

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait()
    store.remember(key("chat"), snapshot("chat"))
    holder.join()
    recalled(store, "chat")
    assert warnings(caplog) == []


def test_a_full_disk_costs_the_conversation_only(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    """A limit on the size of files stands in for the disk's."""
    store = opened()
    store.remember(key("before"), snapshot("before", piece("a")))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MB, limits[1]))
    try:
        for n in range(3):
            store.remember(key(n), snapshot(str(n), piece(f"{n}", 20 * MB)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert recalled(store, "before").fetch(piece("a")[0]) == b"a"
    assert store.recall(key(0)) is None
    assert len(warnings(caplog)) == 1
    store.remember(key("after"), snapshot("after", piece("b", 20 * MB)))
    assert recalled(store, "after").fetch(piece("b", 20 * MB)[0]) == piece("b", 20 * MB)[1]


def test_after_the_end_nothing_happens(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    store = opened()
    store.remember(key("chat"), snapshot("chat", piece("a")))
    found = recalled(store, "chat")
    store.close()
    store.close()
    assert found.fetch(piece("a")[0]) is None
    assert store.recall(key("chat")) is None
    store.remember(key("late"), snapshot("late"))
    assert warnings(caplog) == []
    assert opened().recall(key("late")) is None


def test_a_file_of_an_earlier_gateway_learns_the_names_of_conversations(opened: Open, path: Path) -> None:
    """And the earlier gateway may go on with it: the column has a default, and the version stays."""
    store = opened()
    store.remember(key("old"), snapshot("old"))
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE conversations DROP COLUMN conversation")
        db.commit()
    store = opened()
    old = store.recall(key("old"))
    assert old is not None and old.conversation == ""
    store.remember(key("new"), replace(snapshot("new"), conversation="c1"))
    new = store.recall(key("new"))
    assert new is not None and new.conversation == "c1"
