"""Server-sent events as bytes: the frames every streaming dialect is made of. Knows nothing of what is inside them.

A payload is JSON text: it has no raw line break, so one `data:` line always holds it whole.
"""

from typing import Final

DONE: Final = b"data: [DONE]\n\n"
"""The end marker of OpenAI's chat streams."""


def data(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload


def event(name: str, payload: bytes) -> bytes:
    """A frame with an `event:` line, for clients that dispatch on it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def comment(text: str) -> bytes:
    """A line that every client skips. It keeps the connection warm."""
    return b": %b\n\n" % text.encode()
