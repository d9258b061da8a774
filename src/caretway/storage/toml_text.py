"""Edits TOML files: adds, replaces or removes a table or one value and keeps every other byte. Pure.

The caller compares the values before and after, so a file in an unexpected form is refused, not damaged. `tomlkit` is
not used because it moves an array of tables that stands between two tables of one parent (0.11 to 0.15.2, November
2026).
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Any, Final, NamedTuple

_HEADER: Final = re.compile(r"^\s*\[\[?\s*(?P<path>[^\]]*?)\s*\]\]?\s*(#.*)?$")
_PART: Final = re.compile(r"""\s*(?:"(?P<basic>[^"]*)"|'(?P<literal>[^']*)'|(?P<bare>[\w-]+))\s*(?:\.|$)""")
_MULTI: Final = re.compile(r"""(?P<mark>'{3}|"{3})|"(?:\\.|[^"\\])*"|'[^']*'|\#.*""")
"""Matches the start of a multi-line string, and what only looks like one: in a comment or another string."""


class _Line(NamedTuple):
    text: str
    table: tuple[str, ...]
    """The table that the line belongs to or opens."""
    opens: bool
    quoted: bool
    """The line begins inside a multi-line string."""


def load(text: str) -> dict[str, Any]:
    """The values of a TOML text. Raises ValueError."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def find(text: str, path: Sequence[str]) -> tuple[Any, ...]:
    value: Any = load(text)
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return ()
        value = value[key]
    return (value,)


def put(text: str, path: Sequence[str], table: Mapping[str, Any]) -> str:
    """The text with the table appended, after an old one is removed. Values are plain."""
    newline = "\r\n" if "\r\n" in text else "\n"
    kept = remove(text, path)
    if kept and not kept.endswith("\n"):
        kept += newline
    gap = newline if kept.strip() else ""
    lines = [f"[{'.'.join(path)}]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
    return kept + gap + newline.join(lines) + newline


def remove(text: str, path: Sequence[str]) -> str:
    """The text without the table and its sub-tables."""
    kept: list[str] = []
    waiting: list[str] = []
    inside = False
    for line in _lines(text):
        if line.opens:
            if inside:  # empty lines and comments before the next header belong to it
                kept += _without_gap(kept, waiting)
            waiting = []
            inside = line.table[: len(path)] == tuple(path)
        if not inside:
            if line.quoted or not _names(line, path):
                kept.append(line.text)
        elif line.quoted or (line.text.strip() and not _is_comment(line)):
            waiting = []
        else:
            waiting.append(line.text)
    if inside:
        kept += [line for line in waiting if line.strip()]
        while kept and not kept[-1].strip():
            kept.pop()
    return "".join(kept)


def _without_gap(kept: Sequence[str], waiting: Sequence[str]) -> Iterable[str]:
    """Drop a second empty line where the table was."""
    return waiting if kept and kept[-1].strip() else dropwhile(lambda line: not line.strip(), waiting)


def _names(line: _Line, path: Sequence[str]) -> bool:
    """True if the line defines the table as one value, or one of its values by a dotted name."""
    name, sign, _ = line.text.partition("=")
    parts = _path(name) if sign else None
    return parts is not None and (*line.table, *parts)[: len(path)] == tuple(path)


def _is_comment(line: _Line) -> bool:
    return line.text.lstrip().startswith("#")


def put_value(text: str, table: str, name: str, value: object | None) -> str:
    """The text with one value, in a table or (with an empty `table`) above all tables; None removes the value.

    Raises ValueError if the end of the old value is not found.
    """
    if text and not text.endswith("\n"):
        text += "\n"
    new = [] if value is None else [f"{name} = {written(value)}\n"]
    found = _lines(text)
    lines = [line.text for line in found]
    opened = [at for at, line in enumerate(found) if line.opens and line.table == (table,)]
    if table and not opened:
        return "".join([*lines, *(["\n"] if lines else []), f"[{table}]\n", *new]) if new else text
    start = opened[0] + 1 if table else 0
    end = next((at for at in range(start, len(found)) if found[at].opens), len(found))
    at = next((n for n in range(start, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[n])), None)
    if at is not None:
        return "".join([*lines[:at], *new, *lines[_end_of_value(lines, at, end) :]])
    last = max((n + 1 for n in range(start, end) if lines[n].strip() and not _heading(found, n, end)), default=start)
    if last == start < len(lines) and not table and lines[last].strip() and new:
        new.append("\n")
    return "".join([*lines[:last], *new, *lines[last:]])


def _heading(lines: Sequence[_Line], at: int, end: int) -> bool:
    """True if only comments separate this line from the next table: they belong to that table."""
    return end < len(lines) and all(map(_is_comment, lines[at:end]))


def _end_of_value(lines: Sequence[str], at: int, end: int) -> int:
    """The line after a value that begins at `at`: the first at which the lines are valid TOML."""
    for last in range(at + 1, end + 1):
        try:
            tomllib.loads("".join(lines[at:last]))
        except ValueError:
            continue
        return last
    raise ValueError("the end of a value was not found")


def written(value: object) -> str:
    """A value as TOML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{written(str(key))} = {written(one)}' for key, one in value.items())} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _lines(text: str) -> list[_Line]:
    found: list[_Line] = []
    table: tuple[str, ...] = ()
    string = ""
    for line in re.findall(r".*\n|.+", text):
        header = None if string else _HEADER.match(line.rstrip("\r\n").removeprefix("\ufeff"))
        opened = _path(header["path"]) if header else None
        table = table if opened is None else opened
        found.append(_Line(line, table, opens=opened is not None, quoted=bool(string)))
        string = _open_string(line, string)
    return found


def _path(text: str) -> tuple[str, ...] | None:
    parts: list[str] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            return None
        parts.append(next(part for part in found.groupdict().values() if part is not None))
        at = found.end()
    return tuple(parts) or None


def _open_string(line: str, inside: str) -> str:
    """The quotes of the string that continues after this line, or nothing."""
    at = 0
    while True:
        if inside:
            end = line.find(inside, at)
            if end < 0:
                return inside
            inside, at = "", end + len(inside)
        found = _MULTI.search(line, at)
        if found is None:
            return ""
        inside, at = found["mark"] or "", found.end()
