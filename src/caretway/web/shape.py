"""How deep and how long a request's JSON may be. Looks at the shape alone and knows no field but the two long lists.

Everything behind a decoder may then walk a body recursively: it is never deeper than Python's stack.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ..core.errors import ErrorKind, GatewayError, bad_request

_LISTS: Final = ("messages", "input")
"""The conversation, by the names of the three APIs."""
_NESTED: Final = (dict, list)


@dataclass(frozen=True, slots=True)
class ShapeLimits:
    depth: int = 64
    messages: int = 20_000


def read_json(body: bytes, limits: ShapeLimits) -> object:
    """The parsed body, or GatewayError."""
    if not body or body.isspace():
        raise bad_request("The request has no body.", code="invalid_json", hint="Send a JSON object.")
    try:
        parsed: object = msgspec.json.decode(body)
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
                    hint="Compact the conversation, or raise `max_messages`.",
                    param=name,
                    code="too_many_messages",
                )
    # Counting brackets takes no time and settles most requests: no text is deeper than it has opening brackets.
    if body.count(b"{") + body.count(b"[") > limits.depth and _deeper(parsed, limits.depth):
        raise _too_deep(limits)
    return parsed


def _deeper(parsed: object, limit: int) -> bool:
    level: list[Any] = [parsed] if isinstance(parsed, _NESTED) else []
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, _NESTED)
        ]
        if not level:
            return False
    return True


def _too_deep(limits: ShapeLimits) -> GatewayError:
    return bad_request(
        f"The JSON of the request is nested more than {limits.depth} levels deep.",
        code="invalid_json",
        hint="Flatten it, or raise `max_json_depth`.",
    )
