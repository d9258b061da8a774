"""How commands look: aligned columns, folded lines, colours, a block that stands out. Whether there is colour
(NO_COLOR) is decided in `config/loading.py`. Text in, text out.

Text in, text out; only `style_for` looks at a stream. Frames are plain ASCII, so any console can show them.
"""

import re
import shutil
from collections.abc import Sequence
from textwrap import wrap
from typing import Final, TextIO
from unicodedata import combining, east_asian_width

from msgspec import Struct

from ..config import wants_colour

GAP: Final = "  "
_LEAST_ROOM: Final = 20
_SEPARATORS: Final = " ,/:"
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Style(Struct, frozen=True):
    """Marks text up for a terminal, or leaves it alone."""

    colour: bool = False

    def _mark(self, codes: str, text: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colour and text else text

    def bold(self, text: str) -> str:
        return self._mark("1", text)

    def dim(self, text: str) -> str:
        return self._mark("2", text)

    def good(self, text: str) -> str:
        return self._mark("32", text)

    def careful(self, text: str) -> str:
        return self._mark("33", text)

    def bad(self, text: str) -> str:
        return self._mark("31", text)

    def loud(self, lines: Sequence[str]) -> list[str]:
        """A block that stands out: inverse on a terminal, framed with stars elsewhere."""
        width = max(map(len, lines))
        if self.colour:
            return [self._mark("1;7;33", f" {line.ljust(width)} ") for line in lines]
        edge = "*" * (width + 4)
        return [edge, *(f"* {line.ljust(width)} *" for line in lines), edge]


def style_for(stream: TextIO) -> Style:
    return Style(wants_colour(stream.isatty()))


def pairs(
    rows: Sequence[tuple[str, str]], style: Style, *, width: int = 0, indent: str = GAP, screen: int = 0
) -> list[str]:
    """`label  value` lines with the values in one column, at least `width` after the labels' start. Values without
    colour are folded to a `screen` of so many columns."""
    column = max([width, *(len(label) for label, _ in rows)])
    room = max(_LEAST_ROOM, screen - len(indent) - column - len(GAP)) if screen else 0
    lines = []
    for label, value in rows:
        parts = wrapped(value, room) if 0 < room < len(value) and "\x1b" not in value else [value]
        for name, part in zip([label, *[""] * (len(parts) - 1)], parts, strict=True):
            lines.append(f"{indent}{style.dim(name.ljust(column))}{GAP}{part}".rstrip())
    return lines


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> list[str]:
    """A table. A column that is empty in every row is left out."""
    used = [index for index in range(len(header)) if any(row[index] for row in rows)] or list(range(len(header)))
    widths = [max(len(header[index]), *(len(row[index]) for row in rows), 0) for index in used]

    def line(cells: Sequence[str]) -> str:
        return GAP.join(cells[index].ljust(width) for index, width in zip(used, widths, strict=True)).rstrip()

    return [style.dim(line(header)), *map(line, rows)]


def figure_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A row of a table of figures: the first cell is a name, shortened to its column, the others are set right."""
    name, *figures = cells
    numbers = [cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True)]
    return GAP.join([cut(name, widths[0]).ljust(widths[0]), *numbers])


def cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}~"


def fitted(words: Sequence[str], room: int) -> str:
    """As many of the words as fit (at least one), separated by commas, and how many more there are."""
    line = ", ".join(words)
    for left_out in range(1, len(words)):
        if len(line) <= room:
            break
        line = f"{', '.join(words[:-left_out])} and {left_out} more"
    return line


def folded(text: str, room: int) -> list[str]:
    """The text in lines that are no longer than `room`, cut after a separator where there is one. Nothing is lost."""
    lines: list[str] = []
    while len(text) > room:
        cut = max(text.rfind(mark, room // 2, room) for mark in _SEPARATORS) + 1 or room
        lines.append(text[:cut])
        text = text[cut:]
    return [*lines, text]


def wrapped(text: str, room: int) -> list[str]:
    """Wrap between words; only a word longer than `room` is cut."""
    lines = wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [part for line in lines for part in folded(line, room)]


class AnswerFolder:
    """Folds text that comes in pieces to a terminal's columns, between words. A word waits until it is whole, and
    spaces until a word follows in the same line. Code (between fences, or indented by four) stays as it is."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._used = 0
        """Columns of the line on the screen."""
        self._spaces = ""
        self._word = ""
        self._long = False
        """The word began before: it is longer than a line, and is not cut."""
        self._start = ""
        """The first characters of the text's line: they tell whether it is code."""
        self._fenced = False

    def feed(self, text: str) -> str:
        return "".join(map(self._take, text))

    def end(self) -> str:
        return self._place()

    def _take(self, letter: str) -> str:
        if len(self._start) < _START and letter != "\n":
            self._start += letter
        if letter == "\n":
            shown = self._place() + letter
            self._fenced ^= self._start.startswith("```")
            self._used, self._spaces, self._start = 0, "", ""
            return shown
        if letter == " ":
            shown = self._place()
            self._spaces += letter
            return shown
        if _columns_of(letter) == 2:  # scripts without spaces may be broken anywhere
            before = self._place()
            self._word = letter
            return before + self._place()
        self._word += letter
        if len(self._word) < self._columns:
            return ""
        shown = self._place()
        self._long = True
        return shown

    def _place(self) -> str:
        word, self._word = self._word, ""
        if not word:
            self._long = False
            return ""
        spaces, self._spaces = self._spaces, ""
        whole = self._long or self._fenced or self._start.startswith(("```", "    "))
        self._long = False
        if self._used and not whole and self._used + len(spaces) + width(word) > self._columns:
            self._used = width(word)
            return f"\n{word}"
        self._used += len(spaces) + width(word)
        return spaces + word


_START: Final = 4


def width(text: str) -> int:
    """Columns on a terminal: wide characters take two, marks on others none."""
    return sum(_columns_of(letter) for letter in text)


def _columns_of(letter: str) -> int:
    if combining(letter):
        return 0
    return 2 if east_asian_width(letter) in "WF" else 1


def printable(text: str) -> str:
    """Text of others for a terminal: control characters, which could do anything there, are left out, and
    those that reorder text (bidi)."""
    return _CONTROLS.sub("", text)


def terminal_width(unknown: int = 100) -> int:
    return shutil.get_terminal_size((unknown, 24)).columns


BLOCKS: Final = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
"""Eighths of a cell."""
ASCII_LEVELS: Final = ".:-=+*#"


def levels_for(stream: TextIO) -> str:
    """The characters of a chart that this stream can show."""
    return BLOCKS if "utf" in (stream.encoding or "").lower() else ASCII_LEVELS


def chart(values: Sequence[float], height: int, levels: str) -> list[str]:
    """Values as columns, `height` lines high, the top line first. A value above zero is always seen."""
    top = max(values, default=0.0)
    steps = [0 if value <= 0 else max(1, round(value / top * height * len(levels))) for value in values]

    def cell(step: int, below: int) -> str:
        here = min(len(levels), step - below * len(levels))
        return levels[here - 1] if here > 0 else " "

    return ["".join([cell(step, below) for step in steps]) for below in reversed(range(height))]
