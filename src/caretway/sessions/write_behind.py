"""Writes finished conversations to the store later, in batches and in a thread.
One write costs as much CPU as a whole small answer, and the write of a long conversation as much as a thousand; turns
that end within DELAY_S share one write. Waiting conversations are written before a read (`settle`) and at shutdown; a
crash loses the last ones, which are then replayed. The queue is bounded: if the store is too slow, conversations are
dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from ..core.turn import Snapshot

log = logging.getLogger(__name__)

DELAY_S: Final = 0.05
MAX_WAITING: Final = 64
"""Conversations per write, and in the queue during a write."""
MAX_WAITING_BYTES: Final = 64 * 2**20
MAX_SNAPSHOT_BYTES: Final = 48 * 2**20
"""Bytes that one turn may add. A conversation that grew by more is not stored, and its next turn is replayed."""


class BatchStore(Protocol):
    def recall(self, key: bytes) -> Snapshot | None: ...

    def take_touched(self) -> dict[int, float]:
        """Times of use that are not yet written."""
        ...

    def remember_all(
        self, conversations: list[tuple[bytes, Snapshot]], touched: Mapping[int, float] | None = None
    ) -> None: ...

    def forget(self, conversation: str) -> int: ...

    def pieces(self, parent: bytes, max_bytes: int) -> dict[bytes, bytes] | None: ...

    def close(self) -> None: ...


class WriteBehind:
    shared = False

    def __init__(self, store: BatchStore, writer: Callable[[], BatchStore] | None = None) -> None:
        """`writer` opens the store again for the writing thread. None: all writes use `store`, without a thread."""
        self._store = store
        self._open_writer = writer
        self._writer: BatchStore | None = None
        self._thread = ThreadPoolExecutor(1, "store") if writer is not None else None
        self._waiting: dict[bytes, Snapshot] = {}  # for equal keys the later snapshot counts
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    def recall(self, key: bytes) -> Snapshot | None:
        return self._store.recall(key)

    def remember(self, key: bytes, snapshot: Snapshot) -> None:
        size = len(snapshot.state) + sum(map(len, snapshot.blobs.values()))
        if size > MAX_SNAPSHOT_BYTES:
            log.info("a conversation grew by %d bytes in one turn, which is too much to keep", size)
            return
        if self._writing is not None and (
            len(self._waiting) >= MAX_WAITING or self._bytes + size > max(size, MAX_WAITING_BYTES)
        ):
            log.info("the conversation store cannot keep up: a conversation is not kept")
            return
        self._waiting[key] = snapshot
        self._bytes += size
        if len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self.flush)

    def flush(self) -> None:
        """Start to write the waiting conversations, after a running write."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None or not self._waiting:
            return
        batch, self._waiting, self._bytes = list(self._waiting.items()), {}, 0
        if self._thread is None:
            self._store.remember_all(batch)
            return
        touched = self._store.take_touched()
        self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, batch, touched)
        self._writing.add_done_callback(self._written)

    def _write(self, batch: list[tuple[bytes, Snapshot]], touched: Mapping[int, float]) -> None:
        """Write a batch; runs in the thread."""
        if self._writer is None and self._open_writer is not None:
            self._writer = self._open_writer()
        if self._writer is not None:
            self._writer.remember_all(batch, touched)

    def _written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        if not done.cancelled() and (failure := done.exception()) is not None:
            log.error("conversations could not be written: %s", failure, exc_info=failure)
        self.flush()

    @property
    def settled(self) -> bool:
        return self._writing is None and not self._waiting

    async def settle(self) -> None:
        """Wait until all remembered conversations can be recalled."""
        self.flush()
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def forget(self, conversation: str) -> int:
        await self.settle()
        if self._thread is None:
            return self._store.forget(conversation)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._forget, conversation)

    def _forget(self, conversation: str) -> int:
        """Delete a conversation; runs in the thread."""
        if self._writer is None and self._open_writer is not None:
            self._writer = self._open_writer()
        return self._writer.forget(conversation) if self._writer is not None else 0

    async def pieces(self, parent: bytes, max_bytes: int) -> dict[bytes, bytes] | None:
        """All pieces of a conversation, by the `parent` of its snapshot; None if it is gone or too large."""
        await self.settle()
        if self._thread is None:
            return self._store.pieces(parent, max_bytes)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._pieces, parent, max_bytes)

    def _pieces(self, parent: bytes, max_bytes: int) -> dict[bytes, bytes] | None:
        """Read the pieces of a conversation; runs in the thread."""
        if self._writer is None and self._open_writer is not None:
            self._writer = self._open_writer()
        return self._writer.pieces(parent, max_bytes) if self._writer is not None else None

    async def bring(self, key: bytes) -> None:
        """Nothing to fetch: no other gateway shares this store."""

    async def aclose(self) -> None:
        await self.settle()
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
