"""Bytes of one stream that wait for flow control: whole messages in, pieces of at most the size asked for out, in
order; what stays is not copied.

A large message behind a small window costs no more than its length. A list and no deque: nearly every outbox is empty
nearly always, and an empty deque is ten times the size of an empty list.
"""


class Outbox:
    __slots__ = ("_first", "_offset", "_waiting", "size")

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._first = 0  # those before it are gone
        self._offset = 0  # and this much of it
        self.size = 0

    def add(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self.size += len(data)

    def take(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; small messages leave together."""
        size = self.size
        if not size or limit <= 0:
            return b""
        waiting = self._waiting
        if len(waiting) == 1 and not self._offset and size <= limit:
            self._waiting = []
            self.size = 0
            return waiting[0]
        pieces: list[memoryview] = []
        room = min(limit, size)
        self.size -= room
        while room:
            message = waiting[self._first]
            view = memoryview(message)[self._offset : self._offset + room]
            pieces.append(view)
            room -= len(view)
            self._offset += len(view)
            if self._offset == len(message):
                waiting[self._first] = b""
                self._first += 1
                self._offset = 0
        if self._first * 2 >= len(waiting):  # not oftener: a long queue must not be moved for each message
            del waiting[: self._first]
            self._first = 0
        return b"".join(pieces)

    def clear(self) -> None:
        if self.size:
            self._waiting = []
            self._first = self._offset = self.size = 0
