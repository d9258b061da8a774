"""How much there is in a JSON text, found out before it is decoded. Pure, at the speed of `bytes.count`.

A decoder makes an object of every value, in one step that nobody can interrupt; ten million empty lists are thirty
seconds. The cheap bounds are too high where a text holds brackets and commas inside its strings, and never too low.
"""

from collections.abc import Iterator
from typing import Final

MAX_VALUES: Final = 50_000
"""In a text that is decoded within a turn: the arguments of a call, an answer that must be JSON."""
MAX_DIGITS: Final = 1_024
_STRIDE: Final = 64
_LONG: Final = b"0" * (MAX_DIGITS // _STRIDE - 1)
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_SLICE: Final = 256 * 2**10
_BACKSLASH: Final = b"\\"
_LEAST: Final = 2
"""Characters that a value takes with what stands between it and the next one."""


def crowded(text: str | bytes, limit: int = MAX_VALUES) -> bool:
    """True when there may be more values than that, or numbers that are too long."""
    if len(text) < _LEAST * limit:
        return False
    if isinstance(text, str):
        values = text.count(",") + text.count("[") + text.count("{")
    else:
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
    return values >= limit or has_long_numbers(text)


def has_long_numbers(text: str | bytes) -> bool:
    """True when there may be a number of a thousand digits, which takes a decoder long. Looks at every 64th character;
    what is found may stand in a string."""
    seen = text[::_STRIDE]
    return _LONG in (seen.encode("ascii", "replace") if isinstance(seen, str) else seen).translate(_AS_ZEROS)


def most_values(text: bytes) -> int:
    """Values that this much JSON can begin, in steps that hold nobody up."""
    return sum(
        text.count(b",", at, at + _SLICE) + text.count(b"[", at, at + _SLICE) + text.count(b"{", at, at + _SLICE)
        for at in range(0, len(text), _SLICE)
    )


def structures(body: bytes, size: int = _SLICE) -> Iterator[bytes]:
    """What stands outside the strings of a JSON text, slice by slice. Of what is no JSON: whatever it is up to there.

    Escaped backslashes and quotes are taken out of the way; then every quote begins or ends a string, and every other
    piece between quotes is outside.
    """
    at, inside = 0, False
    while at < len(body):
        text = body[at : at + size]
        if (len(text) - len(text.rstrip(_BACKSLASH))) % 2 and at + len(text) < len(body):
            text = text[:-1]  # a slice does not end between a backslash and what it escapes
        at += len(text)
        pieces = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b" ".join(pieces[1 if inside else 0 :: 2])
        inside = inside != (len(pieces) % 2 == 0)


def count_values(text: bytes) -> int:
    """Exactly, or one too many for each empty list and object."""
    return 1 + sum(most_values(structure) for structure in structures(text))
