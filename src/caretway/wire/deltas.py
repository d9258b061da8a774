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
_SHORT: Final = 128
_HEAD_BYTES: Final = 6


def read_delta(payload: bytes) -> tuple[int, str] | None:
    """(TEXT or THINKING, its words)."""
    size = len(payload)
    if (
        _HEAD_BYTES < size < _SHORT + 2
        and payload[2] in (TEXT, THINKING)
        and payload[5] == size - 6
        and payload[3] == size - 4
        and payload[1] == size - 2
        and payload[0] == _UPDATE
        and payload[4] == _WORDS
    ):
        try:
            return payload[2], payload[6:].decode()
        except UnicodeDecodeError:
            return None
    return None
