"""Reads a model's name: words, version, dates that are no version, words for effort, thinking or speed, a context
window. Which version is closest to another. Pure.

Makers, clients and Cursor spell one model in many ways: `claude-sonnet-4-5-20250929`, `claude-4.5-sonnet`,
`sonnet-4.5`. Two names mean the same model when their words and their versions are the same. Words of effort, thinking
and speed (`-high`, `-thinking`, `-fast`) choose one variant of a model, unless they are part of the model's own name.
"""

import re
from typing import Final

from msgspec import Struct

SCALE: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Efforts, from the lowest rung to the highest."""
RUNGS: Final = frozenset({*SCALE, "thinking", "fast"})
_SILENT: Final = frozenset(
    {"claude", "cursor", "anthropic", "openai", "google", "xai", "latest", "preview", "model", "reasoning"}
)
"""Words that some spellings have and others do not."""
_TOKEN: Final = re.compile(r"\d+[km](?![a-z0-9])|[a-z]+|\d+")
_EXTRA_HIGH: Final = re.compile(r"extra[-_ ]?high|(?<![a-z])x[-_]high")
_DATED: Final = 4
"""A number of so many digits is a date or a build, not a version."""
MAX_NAME_CHARS: Final = 256


class Name(Struct, frozen=True):
    words: frozenset[str]
    version: tuple[int, ...]
    context: str = ""
    """A window in the name, such as `1m`."""

    @property
    def stem(self) -> frozenset[str]:
        """The words that name the model and no rung."""
        return self.words - RUNGS


def read_name(text: str) -> Name:
    plain = _EXTRA_HIGH.sub("xhigh", text[:MAX_NAME_CHARS].lower().rpartition("/")[2])
    words: set[str] = set()
    version: list[int] = []
    context = ""
    for token in _TOKEN.findall(plain):
        if token.isdigit():
            if len(token) < _DATED:
                version.append(int(token))
        elif token[0].isdigit():
            context = token
        else:
            words.add(token)
    while version and version[-1] == 0:
        version.pop()  # 5.0 is 5
    return Name(frozenset(words - _SILENT or words), tuple(version), context)


def effort_of(word: str) -> str:
    """An effort in the words of the scale; the word itself when it is none of them."""
    plain = _EXTRA_HIGH.sub("xhigh", word.lower())
    return "none" if plain in ("off", "disabled") else plain


def closest_version(wanted: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """For sorting: the same version first, then the next newer one, then the newest of the older ones."""
    if found >= wanted:
        return 0, found
    return 1, tuple(-number for number in found)
