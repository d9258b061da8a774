"""Cuts a large WebSocket frame of a client into fragments (RFC 6455, 5.4): unmasking it in one step would block the
event loop.

The library parses a frame when it is complete, so it gets several small frames instead of one large frame, as if the
client had sent them. The library still reports the errors of a frame: of a large ping it gets the first fragment, and a
fragmented ping is as invalid as a large one.
"""

from typing import Final

PIECE: Final = 64 * 2**10
"""Bytes, a multiple of the mask's four: a frame's mask fits each of its pieces."""
_FIN: Final = 0x80
_CONTINUED: Final = 0x00
_MASKED: Final = 0x80
_MEDIUM, _LONG = 126, 127
_MORE: Final = {_MEDIUM: 2, _LONG: 8}
"""Bytes of an extended size, by the number that announces it."""


class FramePieces:
    """Passes bytes through in any portions and inserts headers of fragments. A frame larger than `limit` is not cut, so
    that it is refused at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = b""
        """The bytes so far of an incomplete header."""
        self._left = 0
        """Bytes of the frame that are still to come."""
        self._room = 0
        """Bytes of the current piece that are still to come."""
        self._mask = b""
        self._fin = 0

    def feed(self, data: bytes) -> bytes:
        if len(data) <= self._room:  # usually the middle of a frame
            self._room -= len(data)
            self._left -= len(data)
            return data
        out, at = [], 0
        while at < len(data):
            if self._room:
                some = data[at : at + self._room]
                at += len(some)
                self._room -= len(some)
                self._left -= len(some)
                out.append(some)
            elif self._left:
                out.append(self._piece(_CONTINUED))
            else:
                at = self._read_head(data, at)
                out.append(self._begin())
        return b"".join(out)

    def _read_head(self, data: bytes, at: int) -> int:
        """Read as much of the header as has arrived. Returns the position after it."""
        for _ in range(2):  # the header's length is known after its first two bytes
            some = data[at : at + self._wanted() - len(self._head)]
            self._head += some
            at += len(some)
        return at

    def _wanted(self) -> int:
        if len(self._head) < 2:
            return 2
        return 2 + _MORE.get(self._head[1] & ~_MASKED, 0) + (4 if self._head[1] & _MASKED else 0)

    def _begin(self) -> bytes:
        """A complete header: unchanged, or the header of the first piece. Empty if it is incomplete."""
        head = self._head
        if len(head) < 2 or len(head) < self._wanted():
            return b""
        self._head = b""
        size = head[1] & ~_MASKED
        if size in _MORE:
            size = int.from_bytes(head[2 : 2 + _MORE[size]])
        self._left = size
        if not (PIECE < size <= self._limit and head[1] & _MASKED):
            self._room = size
            return head
        self._mask, self._fin = head[-4:], head[0] & _FIN
        return self._piece(head[0] & ~_FIN)

    def _piece(self, first: int) -> bytes:
        self._room = size = min(PIECE, self._left)
        fin = self._fin if size == self._left else 0
        return b"%c%c%b%b" % (fin | first, _MASKED | _LONG, size.to_bytes(8), self._mask)
