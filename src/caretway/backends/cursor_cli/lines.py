"""Bytes of a pipe -> lines. Refuses to know what is in a line.

Lines are cut as bytes and decoded whole by whoever reads them, so a character that was split across two reads is never
seen in halves. A line beyond the limit is not kept: its size and its first bytes stand for it.
"""

from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class TooLong:
    head: bytes
    size: int


Line = bytes | TooLong


class LineReader:
    """`feed` and `finish`; remembers the unfinished line, never more than `limit` bytes of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._dropped = 0

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
        if self._dropped or len(self._rest) + len(piece) > self._limit:
            self._dropped += len(self._rest) + len(piece)
            self._rest += piece[:HEAD_BYTES]
            del self._rest[HEAD_BYTES:]
            self._dropped -= len(self._rest)
        else:
            self._rest += piece

    def _cut(self, lines: list[Line]) -> None:
        rest, dropped = self._rest, self._dropped
        self._rest, self._dropped = bytearray(), 0
        if dropped:
            lines.append(TooLong(bytes(rest), len(rest) + dropped))
        elif line := bytes(rest).strip(b"\r \t"):
            lines.append(line)
