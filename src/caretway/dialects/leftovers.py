"""Request fields without an effect here (`temperature`, `seed` ...) or unknown: which are named in
`x-caretway-ignored`, when a default value is not worth a name, and names that are safe for a header. Knows no field.

For every dialect's decoder: a table of fields that are understood and without effect, and the names of those that are
unknown. The list is sent in a header, so it is short and plain, whatever the client sent. Knows no field itself.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct

from .fields import wrong_type

MAX_LISTED: Final = 32
"""A body with a thousand unknown fields must not make the header too large."""
_HEADER_SAFE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Idle(Struct, frozen=True):
    """A field that is understood and has no effect here."""

    expected: str
    types: tuple[type, ...]
    asks_nothing: tuple[object, ...] = ()
    """Values that mean the same as leaving the field out."""


WHOLE: Final = ("an integer", (int,))
NUMBER: Final = ("a number", (int, float))
OBJECT: Final = ("an object", (dict,))
ARRAY: Final = ("an array", (list,))
WORD: Final = ("a string", (str,))
FLAG: Final = ("a boolean", (bool,))


def idle_names(body: Mapping[str, object], table: Mapping[str, Idle]) -> Iterator[str]:
    """The fields of the table that ask for something. A wrong type is still an error."""
    if table.keys().isdisjoint(body.keys()):
        return
    for name, field in table.items():
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, field.types) or (isinstance(value, bool) and bool not in field.types):
            raise wrong_type(name, field.expected, value)
        if value not in field.asks_nothing:
            yield name


def unknown_names(holder: Mapping[str, object], known: Collection[str]) -> list[str]:
    """The other fields, as the client spelled them: `listable` comes after this."""
    return [name for name, value in holder.items() if name not in known and value is not None]


def listable(names: Collection[str]) -> list[str]:
    """Names from a client, made safe for a header: plain characters, not too many."""
    if not names:
        return []
    plain = list(dict.fromkeys(name if _HEADER_SAFE.fullmatch(name) else "(unprintable)" for name in names))
    if len(plain) > MAX_LISTED:
        plain[MAX_LISTED:] = [f"(and {len(plain) - MAX_LISTED} more)"]
    return plain
