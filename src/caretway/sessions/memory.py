"""A bounded ConversationStore that lives as long as the process. The durable one is `store`."""

from collections import OrderedDict

from ..core.turn import Snapshot


class MemoryStore:
    def __init__(self, max_conversations: int = 1000) -> None:
        self._known: OrderedDict[bytes, Snapshot] = OrderedDict()
        self._max = max_conversations

    def recall(self, key: bytes) -> Snapshot | None:
        snapshot = self._known.get(key)
        if snapshot is not None:
            self._known.move_to_end(key)
        return snapshot

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        self._known[key] = snapshot
        self._known.move_to_end(key)
        while len(self._known) > self._max:
            self._known.popitem(last=False)
