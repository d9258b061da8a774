"""Conversations are written later and together, and nobody can tell."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path

from caretway.core.turn import Snapshot
from caretway.sessions.store import SqliteStore
from caretway.sessions.write_behind import DELAY_S, MAX_SNAPSHOT_BYTES, MAX_WAITING, WriteBehind


class AccountStore:
    def __init__(self) -> None:
        self.kept: dict[bytes, Snapshot] = {}
        self.writes = 0
        self.touched: Mapping[int, float] | None = None
        self.threads: set[threading.Thread] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False

    def recall(self, key: bytes) -> Snapshot | None:
        return self.kept.get(key)

    def take_touched(self) -> dict[int, float]:
        return {1: 2.0}

    def remember_all(
        self, conversations: list[tuple[bytes, Snapshot]], touched: Mapping[int, float] | None = None
    ) -> None:
        self.threads.add(threading.current_thread())
        self.gate.wait()
        self.writes += 1
        self.kept.update(conversations)
        self.touched = touched

    def forget(self, conversation: str) -> int:
        found = [key for key, snapshot in self.kept.items() if snapshot.conversation == conversation]
        for key in found:
            del self.kept[key]
        return len(found)

    def pieces(self, parent: bytes, max_bytes: int) -> dict[bytes, bytes] | None:
        self.threads.add(threading.current_thread())
        return {b"piece": parent} if len(parent) <= max_bytes else None

    def close(self) -> None:
        self.closed = True


def snapshot(number: int) -> Snapshot:
    return Snapshot("agent", b"state %d" % number)


async def test_what_comes_together_is_written_together() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf)
    for number in range(5):
        store.remember(b"%d" % number, snapshot(number))
    assert shelf.writes == 0
    await asyncio.sleep(DELAY_S * 2)
    assert (shelf.writes, len(shelf.kept)) == (1, 5)


async def test_what_is_asked_for_is_written_first() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf)
    store.remember(b"key", snapshot(1))
    assert not store.settled
    await store.settle()
    assert store.settled
    assert store.recall(b"key") == snapshot(1)


async def test_of_two_with_one_key_the_later_counts() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf)
    store.remember(b"key", snapshot(1))
    store.remember(b"key", snapshot(2))
    store.flush()
    assert (shelf.writes, shelf.kept) == (1, {b"key": snapshot(2)})


async def test_no_more_than_so_many_wait() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf)
    for number in range(MAX_WAITING + 1):
        store.remember(b"%d" % number, snapshot(number))
    assert (shelf.writes, len(shelf.kept)) == (1, MAX_WAITING)
    store.flush()
    assert len(shelf.kept) == MAX_WAITING + 1


async def test_a_line_of_turns_in_one_write() -> None:
    store = SqliteStore(None, max_bytes=1 << 20, max_age_s=60, clock=lambda: 1000.0)
    behind = WriteBehind(store)
    behind.remember(b"first", Snapshot("agent", b"1", {b"a": b"A"}))
    behind.flush()
    first = behind.recall(b"first")
    assert first is not None
    behind.remember(b"second", Snapshot("agent", b"2", {b"b": b"B"}, parent=first.parent))
    behind.remember(b"other", snapshot(3))
    behind.flush()
    second = behind.recall(b"second")
    assert second is not None and (second.fetch(b"a"), second.fetch(b"b")) == (b"A", b"B")
    store.close()


async def test_writing_takes_no_time_of_the_loop() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf, lambda: shelf)
    shelf.gate.clear()
    store.remember(b"1", snapshot(1))
    store.flush()
    store.remember(b"2", snapshot(2))  # while the first one is being written
    store.flush()
    assert not store.settled
    shelf.gate.set()
    await store.settle()
    assert (shelf.writes, set(shelf.kept), shelf.touched) == (2, {b"1", b"2"}, {1: 2.0})
    assert threading.current_thread() not in shelf.threads and len(shelf.threads) == 1
    await store.aclose()
    assert shelf.closed


async def test_a_store_that_cannot_keep_up_forgets() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf, lambda: shelf)
    shelf.gate.clear()
    for number in range(MAX_WAITING * 3):
        store.remember(b"%d" % number, snapshot(number))
    shelf.gate.set()
    await store.aclose()
    assert len(shelf.kept) == 2 * MAX_WAITING  # what was being written, and what may wait


async def test_two_connections_to_one_file(tmp_path: Path) -> None:
    def opened() -> SqliteStore:
        return SqliteStore(tmp_path / "file", max_bytes=1 << 20, max_age_s=1e9, clock=lambda: 1000.0)

    reader = opened()
    behind = WriteBehind(reader, opened)
    behind.remember(b"first", Snapshot("agent", b"1", {b"a": b"A"}))
    await behind.settle()
    first = behind.recall(b"first")
    assert first is not None and first.fetch(b"a") == b"A"
    behind.remember(b"second", Snapshot("agent", b"2", {b"b": b"B"}, parent=first.parent))
    await behind.aclose()
    second = behind.recall(b"second")
    assert second is not None and (second.fetch(b"a"), second.fetch(b"b")) == (b"A", b"B")
    reader.close()


async def test_a_conversation_that_grew_too_much_is_not_kept() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf)
    piece = bytes(MAX_SNAPSHOT_BYTES // 2)
    store.remember(b"too much", Snapshot("agent", b"!", {b"1": piece, b"2": piece}))
    store.remember(b"enough", Snapshot("agent", b"", {b"1": piece, b"2": piece}))
    store.flush()
    assert list(shelf.kept) == [b"enough"]


async def test_a_conversation_is_forgotten_also_when_it_was_not_written_yet() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf, lambda: shelf)
    store.remember(b"one", Snapshot("agent", b"", conversation="c1"))
    store.remember(b"two", Snapshot("agent", b"", conversation="c2"))
    assert await store.forget("c1") == 1
    assert (store.recall(b"one"), await store.forget("c1")) == (None, 0)
    assert store.recall(b"two") is not None
    await store.aclose()


async def test_the_pieces_of_a_conversation_are_read_beside_the_event_loop() -> None:
    shelf = AccountStore()
    store = WriteBehind(shelf, lambda: shelf)
    assert await store.pieces(b"parent", 100) == {b"piece": b"parent"}
    assert await store.pieces(b"parent", 1) is None
    assert threading.current_thread() not in shelf.threads
    await store.aclose()
