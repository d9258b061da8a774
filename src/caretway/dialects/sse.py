"""Server-sent events as bytes: the frames of every streaming dialect. Knows nothing about their content.

A payload is JSON text without raw line breaks, so it always fits one `data:` line.
"""

from typing import Final

DONE: Final = b"data: [DONE]\n\n"
"""The end marker of OpenAI's chat streams."""
LINE_SEPARATOR = "\u2028".encode()
PARAGRAPH_SEPARATOR = "\u2029".encode()
NEXT_LINE = "\u0085".encode()


def data(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload


def event(name: str, payload: bytes) -> bytes:
    """A frame with an `event:` line, for clients that dispatch on it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def comment(text: str) -> bytes:
    """A comment line that every client skips. It keeps the connection alive."""
    return b": %b\n\n" % text.encode()


def one_line(data: bytes) -> bytes:
    """Events without the characters that some clients take for the end of a line (Python's `splitlines` does): what is
    in an event is JSON, where they can be escaped."""
    for raw, escaped in ((LINE_SEPARATOR, b"\\u2028"), (PARAGRAPH_SEPARATOR, b"\\u2029"), (NEXT_LINE, b"\\u0085")):
        if raw in data:
            data = data.replace(raw, escaped)
    return data
