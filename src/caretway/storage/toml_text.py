"""Edits of TOML files: a table of ours is added at the end or taken out, and every other byte stays. Pure.

Which lines belong to a table is seen from its header. Whoever calls this compares the values before and after, so a
file that is written in another way is refused, not damaged.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Any, Final

_HEADER: Final = re.compile(r"^\s*\[\[?\s*(?P<path>[^\]]*?)\s*\]\]?\s*(#.*)?$")
_PART: Final = re.compile(r"""\s*(?:"(?P<basic>[^"]*)"|'(?P<literal>[^']*)'|(?P<bare>[\w-]+))\s*(?:\.|$)""")
_MULTI: Final = re.compile(r"""(?P<mark>'{3}|"{3})|"(?:\\.|[^"\\])*"|'[^']*'|\#.*""")
"""What a string of several lines begins with, and what only looks like it: in a comment or another string."""


def load(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def find(text: str, path: Sequence[str]) -> tuple[Any, ...]:
    value: Any = load(text)
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return ()
        value = value[key]
    return (value,)


def put(text: str, path: Sequence[str], table: Mapping[str, Any]) -> str:
    """The text with the table, at the end. Its values are plain."""
    newline = "\r\n" if "\r\n" in text else "\n"
    kept = remove(text, path)
    if kept and not kept.endswith("\n"):
        kept += newline
    gap = newline if kept.strip() else ""
    lines = [f"[{'.'.join(path)}]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
    return kept + gap + newline.join(lines) + newline


def remove(text: str, path: Sequence[str]) -> str:
    """The text without the table and the tables in it."""
    kept: list[str] = []
    waiting: list[str] = []
    inside = False
    table: tuple[str, ...] = ()
    for line, quoted in _lines(text):
        header = None if quoted else _header(line)
        if header is not None:
            if inside:  # empty lines and comments before the next header belong to that one
                kept += _after(kept, waiting)
            waiting, table = [], header
            inside = header[: len(path)] == tuple(path)
        if not inside:
            if not quoted and _names(line, table, path):
                continue
            kept.append(line)
        elif quoted or (line.strip() and not line.lstrip().startswith("#")):
            waiting = []
        else:
            waiting.append(line)
    if inside:
        kept += [line for line in waiting if line.strip()]
        while kept and not kept[-1].strip():
            kept.pop()
    return "".join(kept)


def _after(kept: Sequence[str], waiting: Sequence[str]) -> Iterable[str]:
    """Without a second empty line where the table was."""
    return waiting if kept and kept[-1].strip() else dropwhile(lambda line: not line.strip(), waiting)


def _names(line: str, table: tuple[str, ...], path: Sequence[str]) -> bool:
    """The line gives the table as one value, or one of its values by a dotted name."""
    name, sign, _ = line.partition("=")
    parts = _path(name) if sign else None
    return parts is not None and (*table, *parts)[: len(path)] == tuple(path)


def _header(line: str) -> tuple[str, ...] | None:
    found = _HEADER.match(line.rstrip("\r\n").removeprefix("\ufeff"))
    return _path(found["path"]) if found else None


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


def _lines(text: str) -> list[tuple[str, bool]]:
    """Each line, and whether it begins inside a string of several lines."""
    told: list[tuple[str, bool]] = []
    inside = ""
    for line in text.splitlines(keepends=True):
        told.append((line, bool(inside)))
        inside = _open_string(line, inside)
    return told


def _open_string(line: str, inside: str) -> str:
    """The quotes of the string that goes on after this line, or nothing."""
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
