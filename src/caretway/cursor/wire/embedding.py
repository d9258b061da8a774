"""Builds protobuf messages from encoded bytes (tag, length, payload), also nested messages, and copies large parts
once.
This is for large parts that many messages share: the library would build and copy them for each message. Parts are
joined in the order of field numbers, so that the bytes equal the library's.
"""

import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from .messages import ai

_LENGTH_DELIMITED: Final = 2
_SHORT: Final = tuple(bytes((size,)) for size in range(128))
_LONG: Final = tuple(bytes((size | 128,)) for size in range(128))


def tag(of: type[Message], field: str) -> bytes:
    """The tag of a length-delimited field: a message, a string or bytes."""
    return _varint(of.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


def embed(field_tag: bytes, payload: bytes) -> bytes:
    size = len(payload)
    return field_tag + (_SHORT[size] if size < 128 else _varint(size)) + payload


def embed_deep(parts: Sequence[tuple[bytes, bytes]], payload: bytes) -> bytes:
    """Wrap `payload` in nested messages, with one copy. `parts` lists them from the outermost: the bytes before the
    field, and the field's tag."""
    heads: list[bytes] = []
    size = len(payload)
    for before, field_tag in reversed(parts):
        head = before + field_tag + _varint(size)
        heads.append(head)
        size += len(head)
    return b"".join((*reversed(heads), payload))


def around(field_tag: bytes, parts: list[bytes]) -> list[bytes]:
    """Wrap a payload that consists of parts; large parts are copied once, at the end."""
    size = sum(map(len, parts))
    return [field_tag, _SHORT[size] if size < 128 else _varint(size), *parts]


def _varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += _LONG[number & 127]
        number >>= 7
    return out + _SHORT[number]


# ---- Writes a JSON value as the bytes of a `google.protobuf.Value`, for tool schemas: numbers become doubles, too
# large ones the largest. Reading values back is `backends/agent/arguments.py`.
#
# The library takes seven times as long, and a client may offer a thousand tools.

_NULL: Final = b"\x08\x00"
_TRUE: Final = b"\x20\x01"
_FALSE: Final = b"\x20\x00"
_NUMBER: Final = struct.Struct("<cd").pack
_TEXT: Final = b"\x1a"
_STRUCT: Final = b"\x2a"
_LIST: Final = b"\x32"
_FIELD: Final = b"\x0a"
"""The tag of field 1: the entries of a Struct, the key of an entry, the values of a ListValue."""
_ENTRY_VALUE: Final = b"\x12"


def write_value(value: Any) -> bytes:
    if isinstance(value, str):
        return embed(_TEXT, value.encode())
    if isinstance(value, Mapping):
        return embed(_STRUCT, write_struct(value))
    if isinstance(value, list | tuple):
        return embed(_LIST, b"".join([embed(_FIELD, write_value(one)) for one in value]))
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    return _NUMBER(b"\x11", _double(value))


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max


def write_struct(fields: Mapping[str, Any]) -> bytes:
    entries = [
        embed(_FIELD, embed(_FIELD, name.encode()) + embed(_ENTRY_VALUE, write_value(value)))
        for name, value in fields.items()
    ]
    return b"".join(entries)


# ---- BidiAppend on HTTP/1.1: numbers a run's messages with one counter. The server's half restores the order, drops
# known numbers and refuses numbers too far ahead.
#
# The numbers start at 0 and cover every message of one request id. With two counters per run earlier gateways hung
# after a tool result. `AppendWriter` is the one counter of a run; `AppendReader` is the server's half.

LARGE_BYTES: Final = 64 * 1024
_DATA: Final = tag(ai.BidiAppendRequest, "data")


class AppendWriter:
    """Input: serialised AgentClientMessages. Output: BidiAppendRequest bodies with rising numbers."""

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
    """The body is not a BidiAppendRequest, or its hex is invalid."""


class AppendOutOfRange(ValueError):
    """A number so far ahead that buffering up to it would be unbounded."""


class AppendReader:
    """Input: numbered messages in any order. Output: messages in order, without repeated numbers."""

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
