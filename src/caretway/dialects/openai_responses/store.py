"""Keeps responses for `previous_response_id` and item references: in memory, at most 1024 and 64 MiB, the least
recently used goes first, no time limit; how much of it one request may read; chains with a missing link.

When there are too many or too large ones, the least recently used is dropped. They are stored as JSON bytes, which
cannot be changed by accident and have a known size. A response holds its own input and output and the id of the one
before it, so a chain stores each item once. Large requests are decoded in another thread, hence the lock. Does not know
what an item means, and does no I/O.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.json_bounds import count_values

MAX_ENTRIES: Final = 1024
MAX_BYTES: Final = 64 << 20
MAX_READ: Final = 32 << 20
MAX_READ_VALUES: Final = 200_000
"""How much of the store one request may read."""

Item = Mapping[str, Any]

_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Stored:
    id: str
    body: bytes
    """The response object as it was sent."""
    input: bytes
    """The items this response was asked with, every one with an id; without those of earlier responses."""
    previous: str | None
    item_ids: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input)

    def input_items(self) -> list[Item]:
        items: list[Item] = msgspec.json.decode(self.input)
        return items

    def output_items(self) -> list[Item]:
        items: list[Item] = msgspec.json.decode(self.body)["output"]
        return items


class ResponseStore:
    def __init__(self, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, Stored] = OrderedDict()
        self._holder: dict[str, str] = {}
        """Item id -> id of the response that holds it."""
        self.bytes = 0
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(
        self, response_id: str, body: bytes, items: Sequence[Item], output: Sequence[Item], previous: str | None
    ) -> None:
        """`items`: the new input; those without an id get one here, because they can be listed."""
        suffix = response_id.removeprefix("resp_")
        asked = [item if item.get("id") else {**item, "id": f"in_{suffix}_{i}"} for i, item in enumerate(items)]
        ids = tuple(str(item["id"]) for item in (*asked, *output))
        stored = Stored(response_id, body, _json(asked), previous, ids)
        with self._lock:
            self.discard(response_id)
            if stored.size > self._max_bytes:
                return
            self._kept[response_id] = stored
            self._holder.update(dict.fromkeys(ids, response_id))
            self.bytes += stored.size
            while self.bytes > self._max_bytes or len(self._kept) > self._max_entries:
                self.discard(next(iter(self._kept)))

    def find(self, response_id: str) -> Stored | None:
        with self._lock:
            stored = self._kept.get(response_id)
            if stored is not None:
                self._kept.move_to_end(response_id)
            return stored

    def chain(self, response_id: str) -> list[Stored] | None:
        """The response and everything before it, oldest first; None when any of it is gone."""
        chain: list[Stored] = []
        wanted: str | None = response_id
        while wanted is not None:
            stored = self.find(wanted)
            if stored is None:
                return None
            chain.append(stored)
            wanted = stored.previous
        return chain[::-1]

    def holder(self, item_id: str) -> Stored | None:
        """The response that an item belongs to."""
        name = self._holder.get(item_id)
        return self.find(name) if name is not None else None

    def discard(self, response_id: str) -> bool:
        with self._lock:
            stored = self._kept.pop(response_id, None)
            if stored is None:
                return False
            self.bytes -= stored.size
            for item_id in stored.item_ids:
                if self._holder.get(item_id) == response_id:
                    del self._holder[item_id]
            return True


class StoreReader:
    """What one request reads from the store. A response is read once, however many of its items are needed. Their total
    size is limited like a request's."""

    def __init__(self, store: ResponseStore, max_bytes: int = MAX_READ, max_values: int = MAX_READ_VALUES) -> None:
        self._store = store
        self._bytes = max_bytes
        self._values = max_values
        self._read: dict[str, tuple[list[Item], list[Item]]] = {}
        self._items: dict[str, Item] = {}

    def item(self, item_id: str) -> Item | None:
        if item_id not in self._items:
            stored = self._store.holder(item_id)
            if stored is not None:
                self._items |= {item["id"]: item for items in self._open(stored) for item in items}
        return self._items.get(item_id)

    def chain(self, response_id: str) -> list[Item] | None:
        """All items up to and including a response; None when any of it is gone."""
        chain = self._store.chain(response_id)
        if chain is None:
            return None
        return [item for stored in chain for items in self._open(stored) for item in items]

    def sources(self, stored: Stored) -> list[Item]:
        """All items that a response was made from, as far as they are still there."""
        before = None if stored.previous is None else self.chain(stored.previous)
        asked, _ = self._open(stored)
        return [*(before or ()), *asked]

    def _open(self, stored: Stored) -> tuple[list[Item], list[Item]]:
        """(input, output)"""
        items = self._read.get(stored.id)
        if items is None:
            self._bytes -= stored.size
            self._values -= count_values(stored.input) + count_values(stored.body)
            if self._bytes < 0 or self._values < 0:
                raise GatewayError(
                    ErrorKind.TOO_LARGE,
                    "The earlier responses that the request refers to are too large.",
                    hint="Compact the conversation, and send it without 'previous_response_id'.",
                    code="too_much_history",
                )
            items = self._read[stored.id] = stored.input_items(), stored.output_items()
        return items
