"""A ConversationStore that writes a little later, many conversations at a time.

One write to the file costs as much as a whole small answer; turns that end within the same moment share one. What was
remembered and not yet written is written before anybody asks for it, and when the gateway stops, so nobody can tell;
only a crash loses the last moment, and then those conversations are replayed.
"""

import asyncio
from typing import Final, Protocol

from ..core.turn import Snapshot

DELAY_S: Final = 0.05
MAX_WAITING: Final = 64
"""So many conversations are written at once, and no more are kept waiting."""


class BatchStore(Protocol):
    def recall(self, key: bytes) -> Snapshot | None: ...

    def remember_all(self, conversations: list[tuple[bytes, Snapshot]]) -> None: ...


class WriteBehind:
    def __init__(self, store: BatchStore) -> None:
        self._store = store
        self._waiting: dict[bytes, Snapshot] = {}  # of two with one key the later one counts
        self._timer: asyncio.TimerHandle | None = None

    def recall(self, key: bytes) -> Snapshot | None:
        if key in self._waiting:
            self.flush()
        return self._store.recall(key)

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        self._waiting[key] = snapshot
        if len(self._waiting) >= MAX_WAITING:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._store.remember_all(list(waiting.items()))
