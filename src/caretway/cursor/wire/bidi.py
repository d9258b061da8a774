"""BidiAppend on HTTP/1.1: numbers a run's messages with one counter, and the server's half: order restored, a number
seen before dropped, one too far ahead refused.

The numbers start at 0 and cover every message of one request id. Two counters on one run are what made earlier gateways
hang after a tool result. `AppendWriter` is the one counter of a run; `AppendReader` is the server's half.
"""

from typing import Final

from google.protobuf.message import DecodeError

from .embedding import embed, tag
from .messages import ai

LARGE_BYTES: Final = 64 * 1024
_DATA: Final = tag(ai.BidiAppendRequest, "data")


class AppendWriter:
    """In: serialised AgentClientMessages. Out: BidiAppendRequest bodies with rising numbers."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._next = 0

    def write(self, message: bytes) -> bytes:
        body = ai.BidiAppendRequest(append_seqno=self._next)
        body.request_id.request_id = self._request_id
        self._next += 1
        if len(message) > LARGE_BYTES:  # the encoder would copy it several times
            return body.SerializeToString() + embed(_DATA, message.hex().encode())
        body.data = message.hex()
        return body.SerializeToString()


class AppendSyntax(ValueError):
    """The body is not a BidiAppendRequest, or its hex is none."""


class AppendOutOfRange(ValueError):
    """A number so far ahead that buffering up to it would be unbounded."""


class AppendReader:
    """In: numbered messages in any order. Out: messages in order; a number that was seen before gives nothing."""

    def __init__(self, max_ahead: int = 1024) -> None:
        self._next = 0
        self._waiting: dict[int, bytes] = {}
        self._max_ahead = max_ahead

    def seen(self, seqno: int) -> bool:
        return seqno < self._next or seqno in self._waiting

    def expected(self, seqno: int) -> bool:
        return seqno == self._next

    def feed(self, seqno: int, message: bytes) -> list[bytes]:
        if seqno < 0 or seqno > self._next + self._max_ahead:
            raise AppendOutOfRange(f"append {seqno} while {self._next} is next")
        if self.seen(seqno):
            return []
        self._waiting[seqno] = message
        ready: list[bytes] = []
        while self._next in self._waiting:
            ready.append(self._waiting.pop(self._next))
            self._next += 1
        return ready


def read_append(body: bytes) -> tuple[str, int, bytes]:
    """A BidiAppendRequest body -> (request id, number, serialised AgentClientMessage)."""
    try:
        append = ai.BidiAppendRequest.FromString(body)
        data = append.data_binary or bytes.fromhex(append.data)
    except (DecodeError, ValueError) as broken:
        raise AppendSyntax(f"not an append: {broken}") from broken
    return append.request_id.request_id, append.append_seqno, data
