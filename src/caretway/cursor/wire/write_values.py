"""Writes a JSON value as the bytes of a `google.protobuf.Value`, for tool schemas: numbers become doubles, too large
ones the largest. Reading values back is `backends/agent/arguments.py`.

The library's own way through objects takes seven times as long, and a client may offer a thousand tools.
"""

import struct
import sys
from collections.abc import Mapping
from typing import Any, Final

from .embedding import embed

_NULL: Final = b"\x08\x00"
_TRUE: Final = b"\x20\x01"
_FALSE: Final = b"\x20\x00"
_NUMBER: Final = struct.Struct("<cd").pack
_TEXT: Final = b"\x1a"
_STRUCT: Final = b"\x2a"
_LIST: Final = b"\x32"
_FIELD: Final = b"\x0a"
"""The first field: of a Struct its entries, of an entry its key, of a ListValue its values."""
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
