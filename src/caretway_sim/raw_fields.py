"""Reads and writes protobuf fields by number, for messages of newer servers that our schema lacks. Pure."""

from typing import Any, Final

from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

_VARINT: Final = 0
_BYTES: Final = 2


def number(field: int, value: int) -> bytes:
    """A number or a bool; zero is omitted, as in proto3."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def message(field: int, *parts: bytes) -> bytes:
    """An embedded message, present even if it is empty."""
    body = b"".join(parts)
    return _varint(field << 3 | _BYTES) + _varint(len(body)) + body


def read(data: bytes) -> list[tuple[int, Any]]:
    """The number and the value of each field. Raises DecodeError."""
    fields: Any = UnknownFieldSet(Empty.FromString(data))
    return [(one.field_number, one.data) for one in fields]


def embedded(data: bytes, field: int) -> bytes | None:
    """The last message, bytes or text in this field; None if it is absent."""
    found = [value for where, value in read(data) if where == field and isinstance(value, bytes)]
    return found[-1] if found else None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
