"""Fast path: reads a short text or thinking delta without building a protobuf message; everything else is left to the
real decoder.

In: a serialised AgentServerMessage. Out: a delta when the bytes are exactly one, in the shape every encoder gives it
(three nested fields, each with a length of one byte), else None. So nothing is decided here that the real decoder would
decide otherwise; a test holds the two side by side.
"""

from typing import Final

TEXT: Final = 0x0A
"""InteractionUpdate.text_delta, as its tag stands on the wire."""
THINKING: Final = 0x22
"""InteractionUpdate.thinking_delta."""

_UPDATE: Final = 0x0A
_WORDS: Final = 0x0A
_SHORT: Final = 130
"""Bytes of the shortest message whose outermost length takes two bytes."""


def _heads(kind: int) -> tuple[bytes | None, ...]:
    """How a delta of so many bytes begins; None: there is no such delta."""
    none = (None,) * 7
    return *none, *(bytes([_UPDATE, size - 2, kind, size - 4, _WORDS, size - 6]) for size in range(7, _SHORT))


_TEXT_HEADS: Final = _heads(TEXT)
_THINKING_HEADS: Final = _heads(THINKING)


def read_delta(payload: bytes) -> tuple[int, str] | None:
    """(TEXT or THINKING, its words)."""
    size = len(payload)
    if size >= _SHORT:
        return None
    head = payload[:6]
    if head == _TEXT_HEADS[size]:
        kind = TEXT
    elif head == _THINKING_HEADS[size]:
        kind = THINKING
    else:
        return None
    try:
        return kind, payload[6:].decode()
    except UnicodeDecodeError:
        return None
