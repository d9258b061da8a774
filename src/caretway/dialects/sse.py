"""Server-sent events as bytes: `data:` and `event:` frames, comments, `[DONE]`, and Unicode line separators that are
escaped, because some clients end a line there.

A payload is JSON text without raw line breaks, so it always fits one `data:` line.
"""

from typing import Final

DONE: Final = b"data: [DONE]\n\n"
"""The end marker of OpenAI's chat streams."""
_LINE_ENDS: Final = tuple((end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\u2028\u2029\u0085")
"""Characters that are no ASCII and that some clients take for the end of a line (Python's `splitlines` does); and how
JSON escapes them."""


def data(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload


def event(name: str, payload: bytes) -> bytes:
    """A frame with an `event:` line, for clients that dispatch on it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def comment(text: str) -> bytes:
    """A comment line that every client skips. It keeps the connection alive."""
    return b": %b\n\n" % text.encode()


def one_line(data: bytes) -> bytes:
    """Events whose lines end for every client in the same place: what is in an event is JSON, where the other ends of
    lines can be escaped. ASCII stays as it is."""
    if data.isascii():
        return data
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data
