"""How much there is in a JSON text, found out before it is decoded. Pure, at the speed of `bytes.count`.

A decoder makes an object of every value, in one step that nobody can interrupt; ten million empty lists are thirty
seconds. These bounds are too high where a text holds brackets and commas inside its strings, and never too low.
"""

from typing import Final

MAX_VALUES: Final = 50_000
"""In a text that is decoded within a turn: the arguments of a call, an answer that must be JSON."""
MAX_DIGITS: Final = 1_024
_STRIDE: Final = 64
_LONG: Final = b"0" * (MAX_DIGITS // _STRIDE - 1)
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
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
