"""What a `compaction` item of this gateway holds: the summary of a conversation, wrapped and found again; items of
others are not ours to read. Pure.
"""

import base64
from typing import Final

MARK: Final = "caretway1."
"""In front of what this gateway has wrapped."""


def wrap(summary: str) -> str:
    return MARK + base64.b64encode(summary.encode("utf-8", "replace")).decode("ascii")


def unwrap(content: object) -> str | None:
    """The summary; None when this gateway did not write it."""
    if not isinstance(content, str) or not content.startswith(MARK):
        return None
    try:
        return base64.b64decode(content[len(MARK) :], validate=True).decode()
    except ValueError:
        return None
