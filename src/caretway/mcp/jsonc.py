"""JSON with comments and trailing commas, as people write configuration files -> JSON; what looks like a comment inside
a string stays."""

import re
from typing import Final

_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])', re.DOTALL)
"""Strings come first: what looks like a comment inside a string is not one."""


def plain_json(text: str) -> str:
    return _PIECES.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)
