"""Responses that were given, so that a later request can name one instead of repeating it. In memory, and bounded.

The least recently used goes first when there are too many or too much. What is kept is JSON as bytes: nothing that is
kept can be changed by accident, and its size is known. A response holds its own input and output and the name of the
one before it, so a chain costs what was said in it, once. Refuses to know what an item means, and does no I/O.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

MAX_ENTRIES: Final = 1024
MAX_BYTES: Final = 64 << 20

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
        self.discard(response_id)
        if stored.size > self._max_bytes:
            return
        self._kept[response_id] = stored
        self._holder.update(dict.fromkeys(ids, response_id))
        self.bytes += stored.size
        while self.bytes > self._max_bytes or len(self._kept) > self._max_entries:
            self.discard(next(iter(self._kept)))

    def find(self, response_id: str) -> Stored | None:
        stored = self._kept.get(response_id)
        if stored is not None:
            self._kept.move_to_end(response_id)
        return stored

    def chain(self, response_id: str) -> list[Stored] | None:
        """The response and everything before it, oldest first; None when any of it is gone."""
        found: list[Stored] = []
        wanted: str | None = response_id
        while wanted is not None:
            stored = self.find(wanted)
            if stored is None:
                return None
            found.append(stored)
            wanted = stored.previous
        return found[::-1]

    def item(self, item_id: str) -> Item | None:
        holder = self._holder.get(item_id)
        stored = self.find(holder) if holder is not None else None
        if stored is None:
            return None
        items = (*stored.output_items(), *stored.input_items())
        return next((item for item in items if item["id"] == item_id), None)

    def discard(self, response_id: str) -> bool:
        stored = self._kept.pop(response_id, None)
        if stored is None:
            return False
        self.bytes -= stored.size
        for item_id in stored.item_ids:
            if self._holder.get(item_id) == response_id:
                del self._holder[item_id]
        return True
