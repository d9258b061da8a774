"""Keeps the beginning and the end of a command's endless output, with a mark for the bytes left out; decodes UTF-8 that
was cut inside a character. Pure."""


def decoded(data: bytes, *, cut_head: bool = False, cut_tail: bool = False) -> str:
    """Bytes that may begin or end inside a character, as text. What is not UTF-8 becomes replacement characters."""
    if cut_head:
        at = 0
        while at < min(3, len(data)) and data[at] & 0xC0 == 0x80:
            at += 1
        data = data[at:]
    if cut_tail:
        for back in range(1, min(4, len(data) + 1)):
            lead = data[-back]
            if lead & 0xC0 != 0x80:
                if lead >= 0xC0 and back < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4):
                    data = data[:-back]
                break
    return data.decode("utf-8", "replace")


class HeadTail:
    """Keeps `limit` bytes: `head` bytes of the beginning (by default half), and the rest from the end."""

    __slots__ = ("_head", "_head_room", "_tail", "_tail_room", "total")

    def __init__(self, limit: int, head: int | None = None) -> None:
        self._head_room = (limit + 1) // 2 if head is None else head
        self._tail_room = limit - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_room:  # not on every chunk: moving bytes costs
            del self._tail[: len(self._tail) - self._tail_room]

    def kept(self) -> bytes:
        """The beginning and the end, joined without a mark."""
        return bytes(self._head + self._tail[max(0, len(self._tail) - self._tail_room) :])

    def text(self, room: int) -> str:
        """At most `room` bytes of it, with a mark where some are left out."""
        kept = self.kept()
        room = min(room, len(kept))
        if self.total == room:
            return decoded(kept)
        first = min(len(self._head), room // 2)
        head = decoded(kept[:first], cut_tail=True)
        tail = decoded(kept[len(kept) - (room - first) :], cut_head=True)
        return f"{head}\n[... {self.total - room} bytes left out ...]\n{tail}"
