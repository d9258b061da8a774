"""Counts the values and levels of a JSON text before it is decoded, so that millions of tiny values or numbers with
thousands of digits cannot block the process. Pure, at the speed of `bytes.translate`.
A decoder creates an object for every value, in one step that cannot be interrupted; ten million empty lists take thirty
seconds. The cheap bounds may be too high, when strings contain brackets and commas, but never too low.
"""

from collections.abc import Iterator
from math import isinf
from typing import Final

import msgspec

MAX_VALUES: Final = 50_000
"""The limit for texts that are decoded during a turn: arguments of a call, an answer that must be JSON."""
MAX_DIGITS: Final = 1_024
MAX_LEVELS: Final = 256
"""Levels of a call's arguments: four times the limit of a body. Decoders fail at about 1,000."""
_STRIDE: Final = 64
_LONG: Final = b"0" * (MAX_DIGITS // _STRIDE - 1)
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_SLICE: Final = 256 * 2**10
_BACKSLASH: Final = b"\\"
_BEFORE: Final = b",[{"
_NO_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
_LEAST: Final = 2
"""Minimum characters of a value, including the separator."""


def crowded(text: str | bytes, limit: int = MAX_VALUES) -> bool:
    """Whether a text may have more than `limit` values, or numbers that are too long."""
    if len(text) < _LEAST * limit:
        return False
    if isinstance(text, str):
        values = text.count(",") + text.count("[") + text.count("{")
    else:
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
    return values >= limit or has_long_numbers(text)


def has_long_numbers(text: str | bytes) -> bool:
    """Whether a text may have a number of a thousand digits, which is slow to decode. Checks every 64th character; the
    digits may also be in a string."""
    seen = text[::_STRIDE]
    return _LONG in (seen.encode("ascii", "replace") if isinstance(seen, str) else seen).translate(_AS_ZEROS)


def most_values(text: bytes) -> int:
    """An upper bound of the values, counted in steps that do not block other threads. Deletes the three characters that
    precede values and compares lengths, which is three times as fast as three `bytes.count`."""
    left = sum([len(text[at : at + _SLICE].translate(None, _BEFORE)) for at in range(0, len(text), _SLICE)])
    return len(text) - left


def structures(body: bytes, size: int = _SLICE) -> Iterator[bytes]:
    """The parts outside the strings of a JSON text, slice by slice. Escaped backslashes and quotes are removed first;
    then every quote begins or ends a string, and every other piece is outside. If the text is not JSON, the result is
    arbitrary.
    """
    at, inside = 0, False
    while at < len(body):
        text = body[at : at + size]
        if (len(text) - len(text.rstrip(_BACKSLASH))) % 2 and at + len(text) < len(body):
            text = text[:-1]  # a slice does not end after an escaping backslash
        at += len(text)
        pieces = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b" ".join(pieces[1 if inside else 0 :: 2])
        inside = inside != (len(pieces) % 2 == 0)


def count_values(text: bytes) -> int:
    """The number of values, plus one for each empty list or object."""
    return 1 + sum(most_values(structure) for structure in structures(text))


def nested_deeply(text: str) -> bool:
    """Whether lists and objects nest more than MAX_LEVELS deep. Fast for most texts, which have fewer brackets."""
    if len(text) <= MAX_LEVELS or text.count("[") + text.count("{") <= MAX_LEVELS:
        return False
    level = 0
    for structure in structures(text.encode("utf-8", "surrogatepass")):
        for bracket in structure.translate(None, _NO_BRACKETS):
            level = level + 1 if bracket in b"[{" else max(level - 1, 0)
            if level > MAX_LEVELS:
                return True
    return False


# ---- The canonical form of JSON texts, which ignores key order, white space, escapes, and 1.0 or 1. For call arguments
# that clients serialise again, and for the loop guard.
#
# Clients parse a call's arguments and serialise them again before they send them back: keys move, white space and
# escapes change, and JavaScript turns 1.0 into 1.

_EXACT: Final = 2.0**53
"""Up to this size every whole number is exact as a double."""


def _number(literal: str) -> float:
    value = float(literal)
    if isinf(value):
        raise ValueError("out of range")  # two numbers out of range may differ
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)


def canonical_json(text: str) -> str:
    """The canonical form of a JSON text; an empty text counts as `{}`. A text that is not JSON, or that is too slow to
    decode, is only stripped."""
    text = text.strip()
    if crowded(text):
        return text
    try:
        return spell(_DECODER.decode(text or "{}"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # any text can arrive here: lone surrogates, 10 000 [
        return text


def spell(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
