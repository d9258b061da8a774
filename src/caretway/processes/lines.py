"""Splits a pipe's bytes into lines. A line over the limit is reported at once and skipped without buffering, empty
lines are left out, the unfinished last line is kept; a character split between two reads stays whole."""

from typing import Final

from msgspec import Struct

HEAD_BYTES: Final = 256


class TooLong(Struct, frozen=True):
    """A line over the limit, reported before its end has arrived."""

    head: bytes
    limit: int

    def __str__(self) -> str:
        return f"a line of more than {self.limit} bytes"


Line = bytes | TooLong


class LineReader:
    """Splits input with `feed` and `finish`; buffers at most `limit` bytes of the unfinished line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[Line]:
        """Complete lines without line ends; empty lines are left out."""
        lines: list[Line] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end], lines)
            self._cut(lines)
            start = end + 1
        self._keep(data[start:] if start else data, lines)
        return lines

    def finish(self) -> list[Line]:
        """The text after the last line break, as left by a program that died in the middle of a line."""
        lines: list[Line] = []
        self._cut(lines)
        return lines

    def _keep(self, piece: bytes, lines: list[Line]) -> None:
        if self._skipping:
            return
        if len(self._rest) + len(piece) <= self._limit:
            self._rest += piece
            return
        self._rest += piece[:HEAD_BYTES]
        lines.append(TooLong(bytes(self._rest[: min(HEAD_BYTES, self._limit)]), self._limit))
        self._rest = bytearray()
        self._skipping = True

    def _cut(self, lines: list[Line]) -> None:
        rest, self._rest = self._rest, bytearray()
        if not self._skipping and (line := bytes(rest).strip()):
            lines.append(line)
        self._skipping = False
