"""A ConversationStore that writes a little later, many conversations at a time.

One write to the file costs as much as a whole small answer; turns that end within the same moment share one. What was
remembered and not yet written is written before anybody asks for it, and when the gateway stops, so nobody can tell;
only a crash loses the last moment, and then those conversations are replayed. Writing holds the event loop, so little is
written at a time, and a conversation that would take too long is not kept at all: it is replayed too.
"""

import asyncio
import logging
from typing import Final, Protocol

from ..core.turn import Snapshot

log = logging.getLogger(__name__)

DELAY_S: Final = 0.05
MAX_WAITING: Final = 64
"""No more conversations are kept waiting."""
MAX_WAITING_COST: Final = 16 * 1024 * 1024
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_PIECES: Final = 2000
"""What one turn may add to a conversation that is kept."""
PIECE_COST: Final = 4096
"""Writing a piece takes as long as writing this many bytes."""
AT_ONCE: Final = 2 * 1024 * 1024
"""What is written in one callback, a single conversation excepted."""


class BatchStore(Protocol):
    def recall(self, key: bytes) -> Snapshot | None: ...

    def remember_all(self, conversations: list[tuple[bytes, Snapshot]]) -> None: ...


class WriteBehind:
    def __init__(self, store: BatchStore) -> None:
        self._store = store
        self._waiting: dict[bytes, tuple[Snapshot, int]] = {}  # with its cost; of two with one key the later one counts
        self._cost = 0
        self._timer: asyncio.TimerHandle | None = None

    def recall(self, key: bytes) -> Snapshot | None:
        if key in self._waiting:
            snapshot, cost = self._waiting.pop(key)
            self._cost -= cost
            self._store.remember_all([(key, snapshot)])
        return self._store.recall(key)

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        pieces = len(snapshot.blobs)
        size = len(snapshot.state) + sum(map(len, snapshot.blobs.values()))
        if size > MAX_BYTES or pieces > MAX_PIECES:
            log.info("a conversation grew by more than can be kept at a time; its next turn is replayed")
            return
        if key in self._waiting:
            self._cost -= self._waiting.pop(key)[1]
        cost = size + pieces * PIECE_COST
        self._waiting[key] = snapshot, cost
        self._cost += cost
        if len(self._waiting) >= MAX_WAITING or self._cost > MAX_WAITING_COST:
            self._write_some()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self._write_some)

    def _write_some(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch: list[tuple[bytes, Snapshot]] = []
        cost = 0
        for key, (snapshot, more) in self._waiting.items():
            if batch and cost + more > AT_ONCE:
                self._timer = asyncio.get_running_loop().call_later(0, self._write_some)
                break
            batch.append((key, snapshot))
            cost += more
        for key, _ in batch:
            del self._waiting[key]
        self._cost -= cost
        if batch:
            self._store.remember_all(batch)

    def flush(self) -> None:
        """All of it, now: the gateway stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting, self._cost = self._waiting, {}, 0
        if waiting:
            self._store.remember_all([(key, snapshot) for key, (snapshot, _) in waiting.items()])
