"""Names that clients use by default -> a model that this account has. Pure.

Claude Code asks for `claude-haiku-4-5-20251001`, Codex for `gpt-5-codex`, older tools for `gpt-4o`: names of the
makers, where Cursor's own list spells the same models differently or has others of the family. The same words in
another order win; then the family's closest member; then Cursor's automatic choice. A name of no known family is
nobody's alias. What was taken is told in the header `x-caretway-model`.
"""

import re
from collections.abc import Sequence
from typing import Final

AUTOMATIC: Final = ("default", "auto", "sim-auto")
"""Ids under which an account's automatic choice is listed."""

FAMILIES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("claude-opus", ("opus",)),
    ("claude-sonnet", ("sonnet",)),
    ("claude-haiku", ("haiku", "sonnet")),
    ("claude", ("sonnet", "opus", "haiku", "claude")),
    ("codex", ("codex", "gpt")),
    ("gpt", ("gpt",)),
    ("chatgpt", ("gpt",)),
    ("o1", ("gpt",)),
    ("o3", ("o3", "gpt")),
    ("o4", ("o4", "gpt")),
    ("gemini", ("gemini",)),
    ("grok", ("grok",)),
)
"""How a client's name begins (its words in any order) -> words to look for in the list, best first."""


def known_alias(name: str, known: Sequence[str]) -> str | None:
    """The model meant by a client's default name; None when it belongs to no family that clients default to."""
    wanted = _words(name)
    for model in known:
        if _words(model) == wanted:
            return model
    for family, words in FAMILIES:
        if set(family.split("-")) <= _letters(wanted):
            return _closest(wanted, words, known) or next((m for m in AUTOMATIC if m in known), None)
    return None


def _closest(wanted: frozenset[str], words: Sequence[str], known: Sequence[str]) -> str | None:
    for word in words:
        members = [model for model in known if word in _letters(_words(model))]
        if members:
            # Most words shared, fewest that were not asked for, and of equals the first in the list.
            return max(members, key=lambda model: (len(_words(model) & wanted), -len(_words(model) - wanted)))
    return None


def _words(name: str) -> frozenset[str]:
    """`claude-sonnet-4-5-20250929` and `claude-4.5-sonnet` are {claude, sonnet, 4, 5}; a date is no word."""
    found = re.findall(r"[a-z]+|\d+", name.lower().rpartition("/")[2])
    return frozenset(word for word in found if not (word.isdigit() and len(word) >= 6) and word != "latest")


def _letters(words: frozenset[str]) -> frozenset[str]:
    """With `o3` put together again: a letter and its number are one name there."""
    joined = {f"o{number}" for number in words if number.isdigit()} if "o" in words else set()
    return words | joined
