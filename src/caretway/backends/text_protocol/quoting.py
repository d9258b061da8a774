r"""Quoting against prompt injection: text by users, files and tools must not look like the protocol's own words (tags,
trigger, role heads). Reversible backslashes, and `\u003c` in JSON. Pure.

Such a word gets a backslash (`<\invoke`, `<<\CALL_`, a line that begins with `\User:`), and the instructions tell the
model so. A word that has backslashes already gets one more, so the original can always be recovered.
"""

import json
import re
from typing import Final

_WORDS: Final = r"/?(?:invoke|tool_result|tool_bridge|function_list)\b"
_TAG: Final = re.compile(rf"<(?=\\*{_WORDS})", re.IGNORECASE)
_TRIGGER: Final = re.compile(r"<<(?=\\*CALL_)", re.IGNORECASE)
_IN_JSON: Final = re.compile(rf"<(?={_WORDS}|<CALL_)", re.IGNORECASE)
_HEAD: Final = re.compile(
    r"^(?=\\*(?:System:|User:|Assistant:|\[Tool result for |\[Called tool: ))", re.MULTILINE | re.IGNORECASE
)
_NOT_IN_ATTRIBUTES: Final = re.compile(r'[\x00-\x1f"<>\[\]]')


def quote(text: str) -> str:
    """For a text between the protocol's tags."""
    return _TRIGGER.sub(r"<<\\", _TAG.sub(r"<\\", text))


def quote_lines(text: str) -> str:
    """For a text in a transcript, where the start of a line has a meaning, too."""
    return _HEAD.sub(r"\\", quote(text))


def quote_json(text: str) -> str:
    """For a JSON text; text that is not JSON is quoted like any other."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return quote(text)
    return _IN_JSON.sub(r"\\u003c", text)


def quote_attribute(text: str) -> str:
    """For a name or an id inside a tag. They are our own or were checked when declared, but a history can contain
    anything."""
    return _NOT_IN_ATTRIBUTES.sub("_", text)
