"""Decodes a response's header fields (HPACK), at most 64 KiB, and remembers blocks that leave the dynamic table as it
was. Reads `:status` and `content-length`.

The answers to one kind of request are headed alike, and reading a block costs as much as reading a short answer. What
a block means depends on its bytes and on the table, so what was read is known until a block changes the table.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hpack import Decoder
from msgspec import Struct

from .heads import read_fields

MAX_FIELDS_BYTES: Final = 64 * 1024
"""A response's header list, as it is spelled and as it is counted."""
MAX_KNOWN: Final = 16
"""Blocks that are remembered. A peer whose every block differs has no use of it, and gets no more memory than this."""
MAX_DIGITS: Final = 18
MAX_KNOWN_BYTES: Final = 1024
"""Longer ones are not."""


class Fields(Struct, frozen=True):
    headers: Mapping[str, str]
    status: int | None
    """None: there is none, as in trailers."""
    length: int | None
    """What `content-length` promises."""


class FieldReader:
    __slots__ = ("_decoder", "_known")

    def __init__(self) -> None:
        self._decoder = Decoder(MAX_FIELDS_BYTES)
        self._known: dict[bytes, Fields] = {}

    def read(self, block: bytes) -> Fields:
        """Raises what the decoder raises. Every block must pass through here, also when nobody wants it: the table must
        stay the same as the peer's."""
        known = self._known
        if block in known:
            return known[block]
        table = self._decoder.header_table
        before = table.maxsize, tuple(table.dynamic_entries)
        fields = _judged([(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)])
        if before != (table.maxsize, tuple(table.dynamic_entries)):
            known.clear()
        elif len(block) <= MAX_KNOWN_BYTES:
            if len(known) >= MAX_KNOWN:
                known.clear()
            known[block] = fields
        return fields


def _judged(fields: list[tuple[bytes, bytes]]) -> Fields:
    known = dict(fields)
    status, length = known.get(b":status", b""), known.get(b"content-length", b"")
    return Fields(
        MappingProxyType(read_fields(fields)),
        _number(status),
        _number(length),
    )


def _number(digits: bytes) -> int | None:
    """None: it is no number, or one that nobody means."""
    return int(digits) if digits.isdigit() and len(digits) <= MAX_DIGITS else None
