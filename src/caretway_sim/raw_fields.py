"""Reads and writes protobuf fields by number, for messages of newer servers that our schema lacks. Pure.

`read` yields (number, value) pairs. Invalid bytes raise BrokenFields. Groups are not supported.
"""

from collections.abc import Iterator
from typing import Final

_VARINT: Final = 0
_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}


class BrokenFields(ValueError):
    """The bytes are no protobuf message."""


def number(field: int, value: int) -> bytes:
    """A number or a bool; zero is omitted, as in proto3."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def message(field: int, *parts: bytes) -> bytes:
    """An embedded message, present even if it is empty."""
    body = b"".join(parts)
    return _varint(field << 3 | _BYTES) + _varint(len(body)) + body


def read(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield field, value
        elif kind == _BYTES or kind in _FIXED:
            size, at = _read_varint(data, at) if kind == _BYTES else (_FIXED[kind], at)
            if at + size > len(data):
                raise BrokenFields("a field is longer than its message")
            yield field, data[at : at + size]
            at += size
        else:
            raise BrokenFields(f"wire type {kind}")


def embedded(data: bytes, field: int) -> bytes | None:
    """The last message, bytes or text in this field; None if it is absent."""
    found = None
    for where, value in read(data):
        if where == field and isinstance(value, bytes):
            found = value
    return found


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise BrokenFields("a number without an end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise BrokenFields("a number of more than ten bytes")
