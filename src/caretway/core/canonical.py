"""When two JSON texts mean the same: key order, white space, escapes, and 1.0 as 1. For call arguments that clients
write again, and for the loop guard.

Clients parse a call's arguments and serialise them again before they send them back: keys move, white space and escapes
change, and JavaScript turns 1.0 into 1.
"""

from math import isinf
from typing import Final

import msgspec

from .json_bounds import crowded

_EXACT: Final = 2.0**53
"""Up to this size every whole number is exact as a double."""


def _number(literal: str) -> float:
    value = float(literal)
    if isinf(value):
        raise ValueError("out of range")  # two numbers that are both too large are not the same number
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)


def canonical_json(text: str) -> str:
    """The canonical spelling. An empty text means an empty object. Text that is not JSON, or that would take too long
    to read, is only stripped."""
    text = text.strip()
    if crowded(text):
        return text
    try:
        return spell(_DECODER.decode(text or "{}"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # any text can arrive here: lone surrogates, 10 000 [
        return text


def spell(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
