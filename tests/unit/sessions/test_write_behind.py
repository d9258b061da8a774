"""Conversations are written later and together, and nobody can tell."""

import asyncio

from caretway.core.turn import Snapshot
from caretway.sessions.store import SqliteStore
from caretway.sessions.write_behind import DELAY_S, MAX_WAITING, WriteBehind


class Shelf:
    def __init__(self) -> None:
        self.kept: dict[bytes, Snapshot] = {}
        self.writes = 0

    def recall(self, key: bytes) -> Snapshot | None:
        return self.kept.get(key)

    def remember_all(self, conversations: list[tuple[bytes, Snapshot]]) -> None:
        self.writes += 1
        self.kept.update(conversations)


def snapshot(number: int) -> Snapshot:
    return Snapshot("agent", b"state %d" % number)


async def test_what_comes_together_is_written_together() -> None:
    shelf = Shelf()
    store = WriteBehind(shelf)
    for number in range(5):
        store.remember(b"%d" % number, snapshot(number))
    assert shelf.writes == 0
    await asyncio.sleep(DELAY_S * 2)
    assert (shelf.writes, len(shelf.kept)) == (1, 5)


async def test_what_is_asked_for_is_written_first() -> None:
    shelf = Shelf()
    store = WriteBehind(shelf)
    store.remember(b"key", snapshot(1))
    assert store.recall(b"other") is None
    assert shelf.writes == 0
    assert store.recall(b"key") == snapshot(1)


async def test_of_two_with_one_key_the_later_counts() -> None:
    shelf = Shelf()
    store = WriteBehind(shelf)
    store.remember(b"key", snapshot(1))
    store.remember(b"key", snapshot(2))
    store.flush()
    assert (shelf.writes, shelf.kept) == (1, {b"key": snapshot(2)})


async def test_no_more_than_so_many_wait() -> None:
    shelf = Shelf()
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
    first = behind.recall(b"first")
    assert first is not None
    behind.remember(b"second", Snapshot("agent", b"2", {b"b": b"B"}, parent=first.parent))
    behind.remember(b"other", snapshot(3))
    behind.flush()
    second = behind.recall(b"second")
    assert second is not None and (second.fetch(b"a"), second.fetch(b"b")) == (b"A", b"B")
    store.close()
