"""Server-sent events as bytes: the frames of every streaming dialect. Knows nothing about their content.

A payload is JSON text without raw line breaks, so it always fits one `data:` line.
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
    """A comment line that every client skips. It keeps the connection alive."""
    return b": %b\n\n" % text.encode()
