"""Where frames and messages end in a recorded conversation. Pure.

`Tape` records what a proxy carried, over all connections in the order of arrival. A place is a number of bytes in one
direction, counted over all connections, as the proxy counts them for a fault that may hit any of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from faults.plan import Direction

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(slots=True)
class Tape:
    pieces: dict[Direction, list[tuple[int, bytes]]] = field(default_factory=lambda: {way: [] for way in Direction})

    def note(self, connection: int, direction: Direction, data: bytes) -> None:
        self.pieces[direction].append((connection, data))

    def size(self, direction: Direction) -> int:
        return sum(len(data) for _, data in self.pieces[direction])

    def boundaries(self, direction: Direction) -> list[int]:
        """The places after which a frame, a chunk, a head or a message is complete."""
        streams: dict[int, bytearray] = {}
        ends: dict[int, list[tuple[int, int]]] = {}  # of each connection: (its own bytes, the place) after each piece
        place = 0
        for connection, data in self.pieces[direction]:
            stream = streams.setdefault(connection, bytearray())
            stream += data
            place += len(data)
            ends.setdefault(connection, []).append((len(stream), place))
        found = set()
        for connection, stream in streams.items():
            for own in _ends(bytes(stream)):
                after, place = next(pair for pair in ends[connection] if pair[0] >= own)
                found.add(place - (after - own))
        return sorted(found)


def _ends(stream: bytes) -> Iterator[int]:
    if stream.startswith(PREFACE):
        yield len(PREFACE)
        yield from _frames(stream, len(PREFACE))
    elif stream.startswith((b"POST ", b"GET ", b"HTTP/1.1 ")):
        yield from _messages(stream)
    else:
        yield from _frames(stream, 0)


def _frames(stream: bytes, at: int) -> Iterator[int]:
    """HTTP/2: three bytes of length, six more of head."""
    while at + 9 <= len(stream):
        at += 9 + int.from_bytes(stream[at : at + 3])
        if at <= len(stream):
            yield at


def _messages(stream: bytes) -> Iterator[int]:
    """HTTP/1.1: heads, chunks and bodies."""
    at = 0
    while (end := stream.find(b"\r\n\r\n", at)) >= 0:
        head, at = stream[at:end].lower(), end + 4
        yield at
        if b"transfer-encoding: chunked" in head:
            for end in _chunks(stream, at):
                yield end
                at = end
        elif (found := head.find(b"content-length:")) >= 0:
            at += int(head[found:].partition(b"\r\n")[0].partition(b":")[2])
            if at > len(stream):
                return
            yield at


def _chunks(stream: bytes, at: int) -> Iterator[int]:
    """After each complete chunk; the last one ends the message."""
    while (line := stream.find(b"\r\n", at)) >= 0:
        size = int(stream[at:line], 16)
        at = line + 2 + size + 2
        if at > len(stream):
            return
        yield at
        if not size:
            return
