"""The conversation store on real files: what is kept, what is shared, and how it stays within its bounds."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from caretway.sessions import store as store_module

from .storing import DAY, MB, Clock, Open, count, key, piece, recalled, snapshot

# ---- kept


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_is_remembered_is_recalled(opened: Open, path: Path, in_memory: bool) -> None:
    store = opened(None if in_memory else path)
    a, empty = piece("a"), piece("")
    store.remember(key("chat"), snapshot("chat", a, empty))
    found = recalled(store, "chat")
    assert (found.backend, found.state) == ("agent", b"state of chat")
    assert found.fetch(a[0]) == b"a"
    assert found.fetch(empty[0]) == b""
    assert found.fetch(key("unknown")) is None
    assert store.recall(key("another")) is None
    assert path.exists() is not in_memory


def test_a_restart_costs_nothing(opened: Open) -> None:
    a = piece("a", MB)
    before = opened()
    before.remember(key("chat"), snapshot("chat", a))
    before.close()
    assert recalled(opened(), "chat").fetch(a[0]) == a[1]


def test_a_crash_costs_nothing(opened: Open, path: Path) -> None:
    """The process ends without closing the store."""
    child = (
        "import os, sys; from pathlib import Path; from caretway.core.turn import Snapshot;"
        "from caretway.sessions.store import SqliteStore;"
        "store = SqliteStore(Path(sys.argv[1]), max_bytes=2**24, max_age_s=9e9, clock=lambda: 1e6);"
        "store.remember(bytes.fromhex(sys.argv[2]), Snapshot('agent', b's', {b'n': b'data'}));"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", child, str(path), key("chat").hex()], check=True, timeout=60)
    assert recalled(opened(), "chat").fetch(b"n") == b"data"


def test_the_third_turn_still_has_the_pieces_of_the_first(opened: Open) -> None:
    one, two, three = piece("one"), piece("two"), piece("three")
    opened().remember(key(1), snapshot("1", one))
    second = opened()
    second.remember(key(2), snapshot("2", two, parent=recalled(second, 1).parent))
    third = opened()
    third.remember(key(3), snapshot("3", three, parent=recalled(third, 2).parent))
    last = recalled(opened(), 3)
    assert [last.fetch(name) for name, _ in (one, two, three)] == [b"one", b"two", b"three"]


def test_the_third_turn_keeps_them_also_when_the_first_is_forgotten(opened: Open, clock: Clock) -> None:
    one = piece("one")
    store = opened()
    store.remember(key(1), snapshot("1", one))
    clock.now += 4 * DAY
    store.remember(key(2), snapshot("2", parent=recalled(store, 1).parent))
    clock.now += 4 * DAY
    store.remember(key(3), snapshot("3", parent=recalled(store, 2).parent))
    clock.now += 5 * DAY
    store.remember(key("other"), snapshot("other"))
    assert store.recall(key(1)) is None
    assert recalled(store, 3).fetch(one[0]) == b"one"


def test_a_conversation_may_branch(opened: Open) -> None:
    store = opened()
    root, left, right = piece("root"), piece("left"), piece("right")
    store.remember(key("root"), snapshot("root", root))
    parent = recalled(store, "root").parent
    store.remember(key("left"), snapshot("left", left, parent=parent))
    store.remember(key("right"), snapshot("right", right, parent=parent))
    assert [recalled(store, "left").fetch(name) for name, _ in (root, left, right)] == [b"root", b"left", None]
    assert [recalled(store, "right").fetch(name) for name, _ in (root, left, right)] == [b"root", None, b"right"]


def test_many_conversations_and_branches_in_one_write(opened: Open, path: Path) -> None:
    store = opened()
    before, root = [piece(f"before {n}") for n in range(3)], piece("root")
    store.remember_all([(key(n), snapshot(f"old {n}", before[n])) for n in range(3)])
    store.remember(key("root"), snapshot("root", root))
    parent = recalled(store, "root").parent
    left, right = piece("left"), piece("right")
    many = [(key(n), snapshot(f"{n}", piece(f"{n}"))) for n in range(2 * store_module.TOGETHER + 1)]
    sides = [("left", left), ("right", right)]
    many[5:5] = [(key(name), snapshot(name, side, parent=parent)) for name, side in sides]
    store.remember_all(many)
    for n in range(2 * store_module.TOGETHER + 1):
        found = recalled(store, n)
        assert (found.state, found.fetch(piece(f"{n}")[0])) == (b"state of %d" % n, b"%d" % n)
    assert [recalled(store, "left").fetch(name) for name, _ in (root, left, right)] == [b"root", b"left", None]
    assert [recalled(store, "right").fetch(name) for name, _ in (root, left, right)] == [b"root", None, b"right"]
    assert count(path, "blobs") == len(many) + 1  # those of the replaced ones are gone


def test_a_branch_outlives_the_line_it_left(opened: Open, path: Path, clock: Clock) -> None:
    store = opened()
    pieces = [piece(f"{n}") for n in range(4)]
    store.remember(key(0), snapshot("0", pieces[0]))
    store.remember(key(1), snapshot("1", pieces[1], parent=recalled(store, 0).parent))
    store.remember(key(2), snapshot("2", pieces[2], parent=recalled(store, 1).parent))
    store.remember(key("branch"), snapshot("branch", pieces[3], parent=recalled(store, 0).parent))
    assert [recalled(store, 0).fetch(name) for name, _ in pieces] == [b"0", None, None, None]
    assert [recalled(store, 2).fetch(name) for name, _ in pieces] == [b"0", b"1", b"2", None]
    clock.now += 6 * DAY
    recalled(store, "branch")
    store.close()
    clock.now += 2 * DAY
    store = opened()
    assert [bool(store.recall(key(name))) for name in (0, 1, 2, "branch")] == [False, False, False, True]
    assert [recalled(store, "branch").fetch(name) for name, _ in pieces] == [b"0", None, None, b"3"]
    assert [count(path, table) for table in ("conversations", "refs", "blobs")] == [1, 2, 2]


def test_a_name_may_change_its_meaning_from_turn_to_turn(opened: Open) -> None:
    store = opened()
    store.remember(key(1), snapshot("1", (b"name", b"old")))
    store.remember(key(2), snapshot("2", (b"name", b"new"), parent=recalled(store, 1).parent))
    assert recalled(store, 1).fetch(b"name") == b"old"
    assert recalled(store, 2).fetch(b"name") == b"new"


def test_a_turn_of_a_long_conversation_costs_what_it_adds(opened: Open, path: Path) -> None:
    store = opened()
    parent: bytes | None = None
    for turn in range(100):
        store.remember(key(turn), snapshot(str(turn), *(piece(f"{turn} {n}") for n in range(3)), parent=parent))
        parent = recalled(store, turn).parent
    assert count(path, "refs") == 300


def test_the_newest_snapshot_of_a_transcript_counts(opened: Open, path: Path) -> None:
    store = opened()
    old, both, new = piece("old"), piece("both"), piece("new")
    store.remember(key("chat"), snapshot("first", old, both))
    store.remember(key("chat"), snapshot("second", both, new))
    found = recalled(store, "chat")
    assert found.state == b"state of second"
    assert [found.fetch(name) for name, _ in (old, both, new)] == [None, b"both", b"new"]
    store.close()
    assert count(path, "conversations") == 1
    assert count(path, "blobs") == 2


def test_a_snapshot_may_replace_its_own_parent(opened: Open) -> None:
    store = opened()
    a, b = piece("a"), piece("b")
    store.remember(key("chat"), snapshot("1", a))
    store.remember(key("chat"), snapshot("2", b, parent=recalled(store, "chat").parent))
    assert [recalled(store, "chat").fetch(name) for name, _ in (a, b)] == [b"a", b"b"]


def test_without_its_parent_a_conversation_is_not_kept(opened: Open) -> None:
    """It would have holes, and the next turn would find out too late."""
    store = opened()
    store.remember(key(1), snapshot("1", piece("one")))
    parent = recalled(store, 1).parent
    store.remember(key(1), snapshot("1 again"))
    store.remember(key(2), snapshot("2", piece("two"), parent=parent))
    assert store.recall(key(2)) is None


# ---- shared


def test_a_shared_piece_is_kept_once(opened: Open, path: Path) -> None:
    store = opened()
    big = piece("system prompt", MB)
    parent: bytes | None = None
    for turn in range(10):
        store.remember(key(turn), snapshot(str(turn), big, piece(f"turn {turn}"), parent=parent))
        parent = recalled(store, turn).parent
    store.remember(key("other"), snapshot("other", big))
    store.close()
    assert count(path, "blobs") == 11
    assert path.stat().st_size < 1.5 * MB


def test_names_belong_to_their_conversation(opened: Open) -> None:
    """Upstream says that a name is the digest of its content. Two chats must not mix even when that is not so."""
    store = opened()
    store.remember(key("a"), snapshot("a", (b"name", b"of a")))
    store.remember(key("b"), snapshot("b", (b"name", b"of b"), (b"only b", b"secret")))
    assert recalled(store, "a").fetch(b"name") == b"of a"
    assert recalled(store, "b").fetch(b"name") == b"of b"
    assert recalled(store, "a").fetch(b"only b") is None


def test_two_stores_on_one_file(opened: Open) -> None:
    ours, theirs = opened(), opened()
    a, b = piece("a"), piece("b")
    ours.remember(key("ours"), snapshot("ours", a))
    theirs.remember(key("theirs"), snapshot("theirs", b, parent=recalled(theirs, "ours").parent))
    assert recalled(ours, "theirs").fetch(a[0]) == b"a"
    assert recalled(ours, "theirs").fetch(b[0]) == b"b"


WRITER: Final = """
import sys
from pathlib import Path
from caretway.core.turn import Snapshot
from caretway.sessions.store import SqliteStore

path, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
store = SqliteStore(path, max_bytes=2**26, max_age_s=9e9, clock=lambda: 1e6, patience_s=20)
parent = None
for turn in range(100):
    key = f"{name} {turn}".encode()
    blobs = {f"{name} {turn} {n}".encode(): f"{turn} {n}".encode() * 500 for n in range(3)}
    store.remember(key, Snapshot("agent", key, blobs, parent=parent))
    found = store.recall(key)
    assert found is not None, key
    parent = found.parent
assert all(found.fetch(f"{name} {turn} 0".encode()) == f"{turn} 0".encode() * 500 for turn in range(100))
store.close()
"""


def test_processes_that_write_at_once(opened: Open, path: Path) -> None:
    """Also the making of the file is a race: none of them finds it there."""
    names = ["a", "b", "c"]
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    outcomes = [writer.communicate(timeout=90)[1] for writer in writers]
    assert outcomes == [""] * len(names)
    assert [writer.returncode for writer in writers] == [0] * len(names)
    store = opened()
    for name in names:
        found = store.recall(f"{name} 99".encode())
        assert found is not None
        assert found.fetch(f"{name} 0 1".encode()) == b"0 1" * 500
    assert count(path, "conversations") == 300


# ---- bounded


def test_old_conversations_are_forgotten(opened: Open, path: Path, clock: Clock) -> None:
    store = opened()
    store.remember(key("old"), snapshot("old", piece("old")))
    clock.now += 5 * DAY
    store.remember(key("young"), snapshot("young", piece("young")))
    clock.now += 3 * DAY
    assert store.recall(key("old")) is None
    store.remember(key("new"), snapshot("new", piece("new")))
    store.close()
    assert count(path, "conversations") == 2
    assert count(path, "blobs") == 2
    clock.now += 5 * DAY
    opened().close()  # pruned when it is opened, too
    assert count(path, "conversations") == 1
    assert count(path, "refs") == 1


def test_use_keeps_a_conversation_alive(opened: Open, clock: Clock) -> None:
    store = opened()
    store.remember(key("used"), snapshot("used"))
    store.remember(key("unused"), snapshot("unused"))
    for _ in range(4):
        clock.now += 3 * DAY
        recalled(store, "used")
        store.remember(key("other"), snapshot("other"))
    assert store.recall(key("unused")) is None
    store.close()
    recalled(opened(), "used")


def test_use_is_noted_at_the_latest_when_the_store_is_closed(opened: Open, clock: Clock) -> None:
    store = opened()
    store.remember(key("used"), snapshot("used"))
    clock.now += 6 * DAY
    recalled(store, "used")
    store.close()
    clock.now += 6 * DAY
    recalled(opened(), "used")


def test_recalling_writes_nothing_at_once(opened: Open, path: Path, clock: Clock) -> None:
    store = opened()
    store.remember(key("chat"), snapshot("chat"))
    with closing(sqlite3.connect(path)) as other:
        before = other.execute("PRAGMA data_version").fetchone()
        for _ in range(50):
            clock.now += 3600
            recalled(store, "chat")
        assert other.execute("PRAGMA data_version").fetchone() == before


def test_uses_that_wait_to_be_noted_are_bounded(opened: Open, path: Path, clock: Clock) -> None:
    store = opened()
    for n in range(store_module.MAX_TOUCHED):
        store.remember(key(n), snapshot(str(n)))
    clock.now += DAY
    for n in range(store_module.MAX_TOUCHED):
        recalled(store, n)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT min(used_at) FROM conversations").fetchone() == (clock.now,)


def test_the_size_is_bounded_and_the_oldest_go_first(opened: Open, path: Path, clock: Clock) -> None:
    store = opened(max_bytes=4 * MB)
    for n in range(40):
        clock.now += 1
        store.remember(key(n), snapshot(str(n), piece(f"{n}", MB // 2)))
        assert store.recall(key(n)) is not None
    kept = [n for n in range(40) if store.recall(key(n))]
    assert kept == list(range(40 - len(kept), 40))
    assert 5 <= len(kept) <= 8
    assert count(path, "blobs") == len(kept)
    store.close()
    assert path.stat().st_size < 6 * MB


def test_a_chain_larger_than_the_limit_keeps_its_newest_turn_whole(opened: Open, clock: Clock) -> None:
    store = opened(max_bytes=2 * MB)
    pieces = [piece(f"{n}", MB // 2) for n in range(8)]
    parent: bytes | None = None
    for n, one in enumerate(pieces):
        clock.now += 1
        store.remember(key(n), snapshot(str(n), one, parent=parent))
        last = recalled(store, n)
        parent = last.parent
        assert all(last.fetch(name) == data for name, data in pieces[: n + 1])
    assert store.recall(key(0)) is None


def test_a_conversation_larger_than_the_store_evicts_nobody(opened: Open) -> None:
    store = opened(max_bytes=2 * MB)
    store.remember(key("small"), snapshot("small"))
    store.remember(key("huge"), snapshot("huge", piece("huge", 3 * MB)))
    assert store.recall(key("huge")) is None
    recalled(store, "small")


def test_pruning_is_done_in_portions(opened: Open, path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PRUNE_WORK", 20)
    store = opened()
    for n in range(30):
        store.remember(key(n), snapshot(str(n), piece(f"{n}")))
    store.close()
    clock.now += 8 * DAY
    left = []
    for _ in range(3):
        opened().close()
        left.append(count(path, "conversations"))
    assert left == [20, 10, 0]


def test_space_is_given_back(opened: Open, path: Path, clock: Clock) -> None:
    store = opened()
    for n in range(20):
        store.remember(key(n), snapshot(str(n), piece(f"{n}", MB)))
    store.close()
    assert path.stat().st_size > 20 * MB
    clock.now += 8 * DAY
    for _ in range(20):
        opened().close()
    assert path.stat().st_size < 5 * MB
