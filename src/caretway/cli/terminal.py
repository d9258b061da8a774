"""Formats output of commands: aligned columns, folded lines, colours, highlighted blocks. `config/loading.py` decides
whether there is colour (NO_COLOR).

Text in, text out; only `style_for` inspects a stream. Frames are plain ASCII, so any console can show them.
"""

import re
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType
from typing import Final, TextIO
from unicodedata import combining, east_asian_width

from msgspec import Struct

from ..config import wants_colour

GAP: Final = "  "
_LEAST_ROOM: Final = 20
_SEPARATORS: Final = " ,/:"
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Style(Struct, frozen=True):
    """Adds terminal markup to text, or leaves it unchanged."""

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
        """A highlighted block: inverse on a terminal, framed with stars elsewhere."""
        width = max(map(len, lines))
        if self.colour:
            return [self._mark("1;7;33", f" {line.ljust(width)} ") for line in lines]
        edge = "*" * (width + 4)
        return [edge, *(f"* {line.ljust(width)} *" for line in lines), edge]


def style_for(stream: TextIO) -> Style:
    return Style(wants_colour(stream.isatty()))


def pairs(
    rows: Sequence[tuple[str, str]],
    style: Style,
    *,
    width: int = 0,
    indent: str = GAP,
    screen: int = 0,
    mark: Callable[[str], str] = str,
) -> list[str]:
    """`label  value` lines with aligned values, at least `width` after the labels' start. Values without colour are
    folded to `screen` columns; `mark` colours each line of a value."""
    column = max([width, *(len(label) for label, _ in rows)])
    room = max(_LEAST_ROOM, screen - len(indent) - column - len(GAP)) if screen else 0
    lines = []
    for label, value in rows:
        parts = wrapped(value, room) if 0 < room < len(value) and "\x1b" not in value else [value]
        for name, part in zip([label, *[""] * (len(parts) - 1)], parts, strict=True):
            lines.append(f"{indent}{style.dim(name.ljust(column))}{GAP}{mark(part)}".rstrip())
    return lines


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    style: Style,
    *,
    right: Container[int] = (),
    width: int = 0,
    shortened: Mapping[int, int] = MappingProxyType({}),
) -> list[str]:
    """A table. A column that is empty in every row is left out. `right`: the columns that are aligned to the right.
    `width`: the screen's, or 0; as long as a row does not fit, columns are shortened in the order of `shortened`
    (column -> its least width)."""
    used = [index for index in range(len(header)) if any(row[index] for row in rows)] or list(range(len(header)))
    widths = {index: max(len(header[index]), *(len(row[index]) for row in rows), 0) for index in used}
    for index, least in shortened.items() if width else ():
        spare = sum(widths.values()) + len(GAP) * (len(widths) - 1) - width
        if index in widths and spare > 0:
            widths[index] = max(min(least, widths[index]), widths[index] - spare)

    def line(cells: Sequence[str]) -> str:
        shown = [(index, cut(cells[index], room), room) for index, room in widths.items()]
        return GAP.join([cell.rjust(room) if index in right else cell.ljust(room) for index, cell, room in shown])

    return [style.dim(line(header).rstrip()), *(line(row).rstrip() for row in rows)]


def cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}~"


def fitted(words: Sequence[str], room: int) -> str:
    """As many words as fit (at least one), separated by commas, and the number of omitted words."""
    line = ", ".join(words)
    for left_out in range(1, len(words)):
        if len(line) <= room:
            break
        line = f"{', '.join(words[:-left_out])} and {left_out} more"
    return line


def folded(text: str, room: int) -> list[str]:
    """Splits the text into lines of at most `room`, after a separator if possible. Keeps every character."""
    lines: list[str] = []
    while len(text) > room:
        cut = max(text.rfind(mark, room // 2, room) for mark in _SEPARATORS) + 1 or room
        lines.append(text[:cut])
        text = text[cut:]
    return [*lines, text]


def wrapped(text: str, room: int) -> list[str]:
    """Wraps between words; only a word longer than `room` is split."""
    lines = wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [part for line in lines for part in folded(line, room)]


class AnswerFolder:
    """Folds streamed text to a terminal's columns, between words. A word is held until it is complete, spaces until a
    word follows on the line. Code (between fences, or indented by four) stays unchanged."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._used = 0
        """Columns used in the current line of the screen."""
        self._spaces = ""
        self._word = ""
        self._long = False
        """The current word is longer than a line and already begun; the rest is not folded."""
        self._start = ""
        """The first characters of the text's line, which show whether it is code."""
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
        if _columns_of(letter) == 2:  # scripts without spaces may be folded anywhere
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
    """Columns on a terminal: two for wide characters, none for combining marks."""
    return sum(_columns_of(letter) for letter in text)


def _columns_of(letter: str) -> int:
    if combining(letter):
        return 0
    return 2 if east_asian_width(letter) in "WF" else 1


def printable(text: str) -> str:
    """Removes control characters and characters that reorder text (bidi) from foreign text, which could otherwise
    control the terminal."""
    return _CONTROLS.sub("", text)


def terminal_width(unknown: int = 100) -> int:
    return shutil.get_terminal_size((unknown, 24)).columns


BLOCKS: Final = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
"""Blocks from one to eight eighths of a cell."""
ASCII_LEVELS: Final = ".:-=+*#"


def levels_for(stream: TextIO) -> str:
    """The chart characters that the stream can show."""
    return BLOCKS if "utf" in (stream.encoding or "").lower() else ASCII_LEVELS


def chart(values: Sequence[float], height: int, levels: str) -> list[str]:
    """Draws values as columns of `height` lines, the top line first. A value above zero is always visible."""
    top = max(values, default=0.0)
    steps = [0 if value <= 0 else max(1, round(value / top * height * len(levels))) for value in values]

    def cell(step: int, below: int) -> str:
        here = min(len(levels), step - below * len(levels))
        return levels[here - 1] if here > 0 else " "

    return ["".join([cell(step, below) for step in steps]) for below in reversed(range(height))]
