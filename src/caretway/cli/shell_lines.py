"""Folds shell commands to the terminal's width so that a shell still accepts them: JSON after a comma, other words
after a backslash. Text in, text out.
"""

import json
import re
import shlex
from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from .clients import jsonc

_CONTINUED: Final = "    "
_GOES_ON: Final = " \\"
_PIECES: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^",{])*[,{]? ?')


def command(words: Sequence[str], width: int) -> list[str]:
    """The lines of a shell command. `words` are already quoted. `width` 0 makes one line of any length."""
    lines: list[str] = []
    line = ""
    for group in _with_values(words):
        longer = f"{line} {group}" if line.strip() else line + group
        if line.strip() and 0 < width < len(longer) + len(_GOES_ON):
            lines.append(line + _GOES_ON)
            longer = _CONTINUED + group
        line = longer
    return [*lines, line]


def _with_values(words: Sequence[str]) -> list[str]:
    """Keeps a flag and its value on one line."""
    groups: list[str] = []
    for word in words:
        flag = groups[-1] if groups else ""
        if flag.startswith("-") and " " not in flag and not word.startswith("-"):
            groups[-1] = f"{flag} {word}"
        else:
            groups.append(word)
    return groups


def export(name: str, value: str, width: int) -> list[str]:
    line = f"export {name}={shlex.quote(value)}"
    if 0 < width < len(line) and value.startswith("{"):
        line = f"export {name}={shlex.quote(jsonc.written(json.loads(value)).rstrip())}"
    return [part for row in line.splitlines() for part in between_values(row, width)]


def between_values(line: str, width: int) -> list[str]:
    """Folds a line of JSON, or of a program's literal, after commas, never within a string."""
    if not 0 < width < len(line):
        return [line]
    inner = line[: len(line) - len(line.lstrip())] + _CONTINUED
    lines = [""]
    for piece in filter(None, _PIECES.findall(line)):
        if lines[-1].strip() and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append(inner)
        lines[-1] += piece
    return [one.rstrip() for one in lines]


def comment(text: str, width: int) -> list[str]:
    if width <= 0:
        return [f"# {text}"]
    return wrap(text, width, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)
