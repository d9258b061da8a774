"""Stores responses for `previous_response_id` and item references: at most 4096 and 64 MiB in memory (LRU), and in an
archive, if there is one. Limits how much of it one request may read.
A response belongs to the key that requested it, or to a WebSocket if its client wants nothing stored: then it is
deleted with that connection. Responses are JSON bytes, which are immutable and have a known size. A response has its
own input and output and the id of the previous response, so a chain stores each item once. The lock is for large
requests, which another thread decodes; it is released during reads of the archive. Items are opaque here.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError
from ...core.json_bounds import count_values
from ...core.stored_response import StoredResponse

MAX_ENTRIES: Final = 4096
MAX_BYTES: Final = 64 << 20
MAX_READ: Final = 32 << 20
MAX_READ_VALUES: Final = 200_000
"""Values that one request may read from the store."""
ANYBODY: Final = ("",)
"""The owners if no key is needed."""

Item = Mapping[str, Any]

_json = msgspec.json.Encoder().encode


class ResponseArchive(Protocol):
    """Storage of responses beyond the process. It never raises: a response that cannot be stored or read is missing."""

    def put(self, response: StoredResponse) -> None: ...

    def get(self, response_id: str) -> StoredResponse | None: ...

    def holder(self, owner: str, item_id: str) -> StoredResponse | None:
        """The newest response of this owner with the item."""
        ...

    def remove(self, response_id: str) -> bool:
        """Delete a response. True if it is deleted for good."""
        ...

    def watch(self, gone: Callable[[str], None]) -> None:
        """Call `gone` in the event loop for each response that another gateway deletes."""
        ...


class Stored(Struct, frozen=True):
    response: StoredResponse

    @property
    def id(self) -> str:
        return self.response.id

    @property
    def body(self) -> bytes:
        return self.response.body

    @property
    def previous(self) -> str | None:
        return self.response.previous

    @property
    def size(self) -> int:
        return self.response.size

    def input_items(self) -> list[Item]:
        items: list[Item] = msgspec.json.decode(self.response.input)
        return items

    def output_items(self) -> list[Item]:
        items: list[Item] = msgspec.json.decode(self.response.body)["output"]
        return items


class ResponseStore:
    def __init__(
        self, shelf: ResponseArchive | None = None, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._shelf = shelf
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()
        self._holder: dict[tuple[str, str], str] = {}
        """(owner, item id) -> id of the response with the item."""
        self.bytes = 0
        self._lock = RLock()
        if shelf is not None:
            shelf.watch(self.gone)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def reads_files(self) -> bool:
        return self._shelf is not None

    def keep(
        self,
        response_id: str,
        body: bytes,
        items: Sequence[Item],
        output: Sequence[Item],
        previous: str | None,
        *,
        owner: str = "",
        passing: bool = False,
    ) -> None:
        """Store a response. `items`: the new input; items without an id get one here, because clients can list them.
        `passing`: keep the response only while its owner, a connection, is open, and only to be continued."""
        suffix = response_id.removeprefix("resp_")
        asked = [item if item.get("id") else {**item, "id": f"in_{suffix}_{i}"} for i, item in enumerate(items)]
        ids = tuple(str(item["id"]) for item in (*asked, *output))
        if passing:
            body = _json({"output": output})
        kept = StoredResponse(response_id, owner, body, _json(asked), previous, ids)
        if self._shelf is not None and not passing:
            self._shelf.put(kept)
        with self._lock:
            self._forget(response_id)
            self._remember(kept)

    def _remember(self, kept: StoredResponse) -> None:
        if kept.size > self._max_bytes:
            return
        self._kept[kept.id] = kept
        self._holder.update(dict.fromkeys([(kept.owner, item) for item in kept.item_ids], kept.id))
        self.bytes += kept.size
        while self.bytes > self._max_bytes or len(self._kept) > self._max_entries:
            self._forget(next(iter(self._kept)))

    def find(self, response_id: str, owners: Sequence[str] = ANYBODY) -> Stored | None:
        """A response; None if it is missing or belongs to another caller."""
        with self._lock:
            found = self._kept.get(response_id)
            if found is not None:
                self._kept.move_to_end(response_id)
        if found is None and self._shelf is not None and (found := self._shelf.get(response_id)) is not None:
            self._recall(found)
        return Stored(found) if found is not None and found.owner in owners else None

    def chain(self, response_id: str, owners: Sequence[str] = ANYBODY) -> list[Stored] | None:
        """The response and all previous responses, the oldest first; None if any is missing."""
        chain: list[Stored] = []
        wanted: str | None = response_id
        while wanted is not None:
            stored = self.find(wanted, owners)
            if stored is None:
                return None
            chain.append(stored)
            wanted = stored.previous
        return chain[::-1]

    def holder(self, item_id: str, owners: Sequence[str] = ANYBODY) -> Stored | None:
        """A response with an item; None if no response has the item."""
        with self._lock:
            for owner in owners:
                if (name := self._holder.get((owner, item_id))) is not None:
                    return self.find(name, owners)
        if self._shelf is not None:
            for owner in owners:
                if (found := self._shelf.holder(owner, item_id)) is not None:
                    self._recall(found)
                    return Stored(found)
        return None

    def _recall(self, found: StoredResponse) -> None:
        """Keep a response from the archive, unless a newer copy is in memory."""
        with self._lock:
            if found.id not in self._kept:
                self._remember(found)

    def discard(self, response_id: str, owners: Sequence[str] = ANYBODY) -> bool:
        """Delete a response. False if there is none; raises GatewayError if it cannot be deleted."""
        if self.find(response_id, owners) is None:
            return False
        if self._shelf is not None and not self._shelf.remove(response_id):
            raise GatewayError(
                ErrorKind.OVERLOADED,
                "The response could not be deleted from the gateway's file.",
                hint="Try again soon; the gateway's log says why.",
            )
        with self._lock:
            self._forget(response_id)
        return True

    def gone(self, response_id: str) -> None:
        """Drop a response that another gateway has deleted."""
        with self._lock:
            self._forget(response_id)

    def drop_connection(self, owner: str) -> None:
        """Drop the responses of a closed connection."""
        with self._lock:
            for name in [name for name, kept in self._kept.items() if kept.owner == owner]:
                self._forget(name)

    def _forget(self, response_id: str) -> None:
        kept = self._kept.pop(response_id, None)
        if kept is None:
            return
        self.bytes -= kept.size
        for item_id in kept.item_ids:
            if self._holder.get((kept.owner, item_id)) == response_id:
                del self._holder[kept.owner, item_id]


class StoreReader:
    """The reads of one request. Each response is decoded once, for any number of its items. The total size is limited
    like a request's."""

    def __init__(
        self,
        store: ResponseStore,
        owners: Sequence[str] = ANYBODY,
        *,
        max_bytes: int = MAX_READ,
        max_values: int = MAX_READ_VALUES,
    ) -> None:
        self._store = store
        self._owners = owners
        self._bytes = max_bytes
        self._values = max_values
        self._read: dict[str, tuple[list[Item], list[Item]]] = {}
        self._items: dict[str, Item] = {}

    def item(self, item_id: str) -> Item | None:
        if item_id not in self._items:
            stored = self._store.holder(item_id, self._owners)
            if stored is not None:
                self._items |= {item["id"]: item for items in self._open(stored) for item in items}
        return self._items.get(item_id)

    def chain(self, response_id: str) -> list[Item] | None:
        """All items up to and including a response; None if any response is missing."""
        chain = self._store.chain(response_id, self._owners)
        if chain is None:
            return None
        return [item for stored in chain for items in self._open(stored) for item in items]

    def sources(self, stored: Stored) -> list[Item]:
        """All input items of a response that are still stored."""
        before = None if stored.previous is None else self.chain(stored.previous)
        asked, _ = self._open(stored)
        return [*(before or ()), *asked]

    def _open(self, stored: Stored) -> tuple[list[Item], list[Item]]:
        """(input items, output items)."""
        items = self._read.get(stored.id)
        if items is None:
            self._bytes -= stored.size
            self._values -= count_values(stored.response.input) + count_values(stored.body)
            if self._bytes < 0 or self._values < 0:
                raise GatewayError(
                    ErrorKind.TOO_LARGE,
                    "The earlier responses that the request refers to are too large.",
                    hint="Compact the conversation, and send it without 'previous_response_id'.",
                    code="too_much_history",
                )
            items = self._read[stored.id] = stored.input_items(), stored.output_items()
        return items
