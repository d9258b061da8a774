"""Conversations are written later and together, and nobody can tell."""

import asyncio

from caretway.core.turn import Snapshot
from caretway.sessions.store import SqliteStore
from caretway.sessions.write_behind import (
    AT_ONCE,
    DELAY_S,
    MAX_BYTES,
    MAX_PIECES,
    MAX_WAITING,
    MAX_WAITING_COST,
    WriteBehind,
)


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


def large(number: int, size: int) -> Snapshot:
    return Snapshot("agent", b"state %d" % number, {b"piece": bytes(size)})


async def test_large_ones_are_written_a_few_at_a_time() -> None:
    shelf = Shelf()
    store = WriteBehind(shelf)
    for number in range(4):
        store.remember(b"%d" % number, large(number, AT_ONCE * 3 // 4))
    await asyncio.sleep(DELAY_S * 2)
    assert (shelf.writes, len(shelf.kept)) == (4, 4)


async def test_what_waits_is_bounded_in_bytes() -> None:
    shelf = Shelf()
    store = WriteBehind(shelf)
    count = 3 * MAX_WAITING_COST // MAX_BYTES
    for number in range(count):
        store.remember(b"%d" % number, large(number, MAX_BYTES - 100))
        assert (number + 1 - len(shelf.kept)) * MAX_BYTES <= MAX_WAITING_COST
    store.flush()
    assert len(shelf.kept) == count


async def test_a_conversation_that_grew_too_much_is_not_kept() -> None:
    shelf = Shelf()
    store = WriteBehind(shelf)
    store.remember(b"bytes", large(1, MAX_BYTES))
    store.remember(b"pieces", Snapshot("agent", b"", {b"%d" % number: b"" for number in range(MAX_PIECES + 1)}))
    store.flush()
    assert not shelf.kept


async def test_only_what_is_asked_for_is_written_at_once() -> None:
    shelf = Shelf()
    store = WriteBehind(shelf)
    for number in range(3):
        store.remember(b"%d" % number, snapshot(number))
    assert store.recall(b"1") == snapshot(1)
    assert list(shelf.kept) == [b"1"]
    store.flush()
    assert len(shelf.kept) == 3
