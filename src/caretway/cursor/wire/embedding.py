"""Builds protobuf messages from ready bytes (tag, length, payload), also nested ones, copying large parts once.

For large parts that are the same in many messages, and would otherwise be built, copied and written anew for each one.
Parts are joined in the order of their field numbers, so that the bytes are those of the real encoder.
"""

from collections.abc import Sequence
from typing import Final

from google.protobuf.message import Message

_LENGTH_DELIMITED: Final = 2
_SHORT: Final = tuple(bytes((size,)) for size in range(128))
_LONG: Final = tuple(bytes((size | 128,)) for size in range(128))


def tag(of: type[Message], field: str) -> bytes:
    """How this field begins. For messages, texts and bytes: whatever has a length."""
    return _varint(of.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


def embed(field_tag: bytes, payload: bytes) -> bytes:
    size = len(payload)
    return field_tag + (_SHORT[size] if size < 128 else _varint(size)) + payload


def embed_deep(parts: Sequence[tuple[bytes, bytes]], payload: bytes) -> bytes:
    """`payload` inside several messages, the outermost first, copied once. Each part: what stands before the field, and
    the field's tag."""
    heads: list[bytes] = []
    size = len(payload)
    for before, field_tag in reversed(parts):
        head = before + field_tag + _varint(size)
        heads.append(head)
        size += len(head)
    return b"".join((*reversed(heads), payload))


def around(field_tag: bytes, parts: list[bytes]) -> list[bytes]:
    """The same for a payload in parts, which nobody has joined yet: large ones are copied once, at the very end."""
    size = sum(map(len, parts))
    return [field_tag, _SHORT[size] if size < 128 else _varint(size), *parts]


def _varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += _LONG[number & 127]
        number >>= 7
    return out + _SHORT[number]
