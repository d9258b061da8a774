"""Limits of a request's JSON before and while it is decoded: depth, number of values, number of messages, long numbers;
which body is large, so that it is decoded in pieces beside the event loop; invalid JSON.

A decoder holds the interpreter until it is done, in a thread too. So what is large is counted first (exactly: brackets
inside strings are no structure), refused when it holds too many values, and then decoded piece by piece. Everything
behind a decoder may then walk a body recursively: it is never deeper than Python's stack.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..core.json_bounds import MAX_DIGITS, has_long_numbers, most_values, structures

_LISTS: Final = ("messages", "input")
"""The conversation, by the names of the three APIs."""
_NESTED: Final = (dict, list)
_FLAT: Final = frozenset({str, int, float, bool, type(None)})
SMALL: Final = 64 * 2**10
"""Bytes. Whatever such a body holds is read in a few milliseconds."""
LARGE: Final = 2**20
BUSY: Final = 8_000
"""Values that a body may have and still be processed between two events of another stream."""
_PIECE: Final = 256 * 2**10
"""Bytes that are decoded in one step, unless they are one string."""
_SPACE: Final = b" \t\r\n"
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG: Final = b"0" * MAX_DIGITS
_MAX_MARGIN: Final = 1024
"""White space before a body."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


class ShapeLimits(Struct, frozen=True):
    depth: int = 64
    messages: int = 20_000
    values: int = 100_000
    text: int = 8 * 2**20
    """Bytes of a body that are not images."""


def is_large(body: bytes) -> bool:
    """Whether to work on this body aside."""
    size = len(body)
    return size > SMALL and (size > LARGE or most_values(body) > BUSY)


def read_json(body: bytes, limits: ShapeLimits) -> object:
    """The parsed body, or GatewayError."""
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
    # Counting brackets takes no time and settles most requests: no text is deeper than it has opening brackets.
    if (len(body) > SMALL or body.count(b"{") + body.count(b"[") > limits.depth) and _deeper(parsed, limits.depth):
        raise _too_deep(limits)
    return parsed


# ---- how much there is


def check_count(body: bytes, limit: int) -> None:
    """The bound that costs nothing first; most bodies need no other."""
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
    """Decode a JSON value as the decoder would, but in steps: a long list by element, a long object by field."""
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
    """Whether a string has no escapes and only ASCII, as the data of an image does."""
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
            if not _FLAT.issuperset(map(type, values))  # most messages: one call for all their values
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
