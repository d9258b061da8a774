"""Bytes of a pipe -> lines. Refuses to know what is in a line.

Lines are cut as bytes and decoded whole by whoever reads them, so a character that was split across two reads is never
seen in halves. A line beyond the limit is not kept. `LineReader` goes on after it, with its size and its first bytes in
its place; `StrictLineReader` raises as soon as the limit is passed, for protocols in which every line counts.
"""

from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class TooLong:
    head: bytes
    size: int


Line = bytes | TooLong


class LineTooLong(Exception):
    """`a line of more than N bytes`."""


class LineReader:
    """`feed` and `finish`; remembers the unfinished line, never more than `limit` bytes of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = min(limit, HEAD_BYTES)
        self._rest = bytearray()
        self._size = 0
        """Of the unfinished line, also of what is not kept."""

    @property
    def too_long(self) -> bool:
        """The unfinished line is beyond the limit already."""
        return self._size > self._limit

    def feed(self, data: bytes) -> list[Line]:
        """Complete lines without their ends; empty ones are left out."""
        lines: list[Line] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            self._cut(lines)
            start = end + 1
        self._keep(data[start:] if start else data)
        return lines

    def finish(self) -> list[Line]:
        """What stands after the last line end; a program that died in the middle of a line leaves it there."""
        lines: list[Line] = []
        self._cut(lines)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self.too_long:
            self._rest += piece[: self._head]
            del self._rest[self._head :]
        else:
            self._rest += piece

    def _cut(self, lines: list[Line]) -> None:
        rest, size = self._rest, self._size
        self._rest, self._size = bytearray(), 0
        if size > self._limit:
            lines.append(TooLong(bytes(rest), size))
        elif line := bytes(rest).strip():
            lines.append(line)


class StrictLineReader:
    """The same for those who cannot go on without a line. Raises LineTooLong, also before the line has ended."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reader = LineReader(limit)

    def feed(self, data: bytes) -> list[bytes]:
        lines = self._reader.feed(data)
        whole = [line for line in lines if not isinstance(line, TooLong)]
        if self._reader.too_long or len(whole) < len(lines):
            raise LineTooLong(f"a line of more than {self._limit} bytes")
        return whole
