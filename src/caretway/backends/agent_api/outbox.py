"""Bytes that wait for the peer's flow control: in as whole messages, out in pieces of at most the size asked for.

Nothing is copied but what is taken out, so a large message behind a small window costs no more than its length.
"""

from collections import deque


class Outbox:
    __slots__ = ("_offset", "_waiting", "size")

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._offset = 0  # how much of the first one is gone
        self.size = 0

    def add(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self.size += len(data)

    def take(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; small messages leave together."""
        waiting, room = self._waiting, limit
        if not waiting or room <= 0:
            return b""
        first = waiting[0]
        if len(waiting) == 1 and not self._offset and len(first) <= room:
            self.clear()
            return first
        pieces: list[memoryview] = []
        while waiting and room:
            view = memoryview(waiting[0])[self._offset : self._offset + room]
            pieces.append(view)
            room -= len(view)
            self._offset += len(view)
            if self._offset == len(waiting[0]):
                waiting.popleft()
                self._offset = 0
        taken = b"".join(pieces)
        self.size -= len(taken)
        return taken

    def clear(self) -> None:
        self._waiting.clear()
        self._offset = self.size = 0
