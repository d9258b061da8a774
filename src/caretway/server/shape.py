"""Limits of a request's JSON before and during decoding: depth, number of values and messages, long numbers.

A decoder holds the interpreter lock until it is done, even in a thread. So the values of a large body are counted first
(exactly: brackets inside strings are no structure), too many are refused, and the body is decoded piece by piece in a
thread. Code behind the decoder may walk a body recursively: it is never deeper than Python's stack allows.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..core.json_bounds import MAX_DIGITS, has_long_numbers, most_values, structures

_LISTS: Final = ("messages", "input")
"""The conversation's field in the three APIs."""
_NESTED: Final = (dict, list)
_FLAT: Final = frozenset({str, int, float, bool, type(None)})
SMALL: Final = 64 * 2**10
"""Bytes: a smaller body decodes in a few milliseconds, whatever it holds."""
LARGE: Final = 2**20
BUSY: Final = 8_000
"""A body with at most this many values is processed in one step, without a thread."""
_PIECE: Final = 256 * 2**10
"""Bytes that are decoded in one step, unless they are one string."""
_SPACE: Final = b" \t\r\n"
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG: Final = b"0" * MAX_DIGITS
_MAX_MARGIN: Final = 1024
"""How much white space is skipped before a body."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


class ShapeLimits(Struct, frozen=True):
    depth: int = 64
    messages: int = 20_000
    values: int = 100_000
    text: int = 8 * 2**20
    """Bytes of a body without its images."""


def is_large(body: bytes) -> bool:
    """True if this body should be processed in a thread."""
    size = len(body)
    return size > SMALL and (size > LARGE or most_values(body) > BUSY)


def read_json(body: bytes, limits: ShapeLimits) -> object:
    """The parsed body. Raises GatewayError."""
    if not body or body.isspace():
        raise bad_request("The request has no body.", code="invalid_json", hint="Send a JSON object.")
    try:
        if len(body) <= SMALL:
            parsed: object = msgspec.json.decode(body)
        else:
            check_count(body, limits.values)
            parsed = _decoded(_without_margin(body), limits)
    except RecursionError as broken:
        raise _too_deep(limits) from broken
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        raise bad_request(f"The request body is not valid JSON: {broken}.", code="invalid_json") from broken
    if isinstance(parsed, dict):
        for name in _LISTS:
            found = parsed.get(name)
            if isinstance(found, list) and len(found) > limits.messages:
                raise GatewayError(
                    ErrorKind.TOO_LARGE,
                    f"`{name}` has {len(found)} entries; at most {limits.messages} are accepted.",
                    hint="Compact the conversation.",
                    param=name,
                    code="too_many_messages",
                )
    # Counting brackets is cheap and settles most requests: no text is deeper than it has opening brackets.
    if (len(body) > SMALL or body.count(b"{") + body.count(b"[") > limits.depth) and _deeper(parsed, limits.depth):
        raise _too_deep(limits)
    return parsed


# ---- how much there is


def check_count(body: bytes, limit: int) -> None:
    """Raise GatewayError for more than `limit` values or for long numbers. A cheap upper bound suffices for most
    bodies."""
    if most_values(body) > limit or has_long_numbers(body):
        count = 1
        for structure in structures(body):
            count += most_values(structure)
            if count > limit:
                raise GatewayError(
                    ErrorKind.TOO_LARGE,
                    f"The JSON of the request holds more than {limit} values.",
                    hint="Compact the conversation.",
                    code="too_many_values",
                )
            if _LONG in structure.translate(_AS_ZEROS):
                raise bad_request(f"A number in the request has more than {MAX_DIGITS} digits.", code="invalid_json")


# ---- decoding


def _without_margin(body: bytes) -> bytes:
    if body[:1] not in _SPACE:
        return body
    begins = len(body[:_MAX_MARGIN].lstrip(_SPACE))
    if not begins:
        raise bad_request("The request body begins with too much white space.", code="invalid_json")
    return body[min(_MAX_MARGIN, len(body)) - begins :]


def _decoded(text: Any, limits: ShapeLimits, level: int = 0) -> Any:
    """Decode a JSON value in steps: a long list by element, a long object by field."""
    if len(text) <= _PIECE:
        return msgspec.json.decode(text)
    if level > limits.depth:
        raise RecursionError
    begins = bytes(memoryview(text)[:1])
    if begins == b"{":
        return {key: _decoded(value, limits, level + 1) for key, value in _OBJECT.decode(text).items()}
    if begins == b"[":
        return [_decoded(value, limits, level + 1) for value in _ARRAY.decode(text)]
    if begins == b'"' and len(text) > limits.text and not _plain(bytes(text)):
        raise too_much_text(len(text), limits.text)
    return msgspec.json.decode(text)


def _plain(text: bytes) -> bool:
    """True if a string is ASCII without escapes, like the data of an image."""
    return text.isascii() and b"\\" not in text


def too_much_text(size: int, limit: int) -> GatewayError:
    return GatewayError(
        ErrorKind.TOO_LARGE,
        f"The request holds {size} bytes beside its images; at most {limit} are accepted.",
        hint="No model takes as much. Compact the conversation.",
        code="too_much_text",
    )


def _deeper(parsed: object, limit: int) -> bool:
    level: list[Any] = [parsed] if isinstance(parsed, _NESTED) else []
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for values in (outer.values() if isinstance(outer, dict) else outer,)
            if not _FLAT.issuperset(map(type, values))  # for most messages one call checks all values
            for inner in values
            if isinstance(inner, _NESTED)
        ]
        if not level:
            return False
    return True


def _too_deep(limits: ShapeLimits) -> GatewayError:
    return bad_request(
        f"The JSON of the request is nested more than {limits.depth} levels deep.",
        code="invalid_json",
        hint="Flatten it.",
    )
