"""Changes one setting in the text of a settings file and leaves everything else as it is, comments included: replaces a
value of any number of lines, adds it where it belongs, removes it. Pure.

The standard library reads TOML and does not write it. What comes out is read again and compared, so that a file that is
written in an unexpected way is left alone instead of damaged.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .row import ADVANCED, Setting

_TABLE: Final = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}\s*(#.*)?$")


class NotEditable(Exception):
    """The file is written in a way that this module does not understand."""


def with_setting(text: str, setting: Setting, value: object | None) -> str:
    """The file's text with this value, written as `file_value` gives it; None removes the setting."""
    import tomllib

    before = tomllib.loads(text)
    name = setting.name
    outside = name in before or not setting.advanced
    after = {**before, ADVANCED: {**before.get(ADVANCED, {})}}
    after[ADVANCED].pop(name, None)
    after.pop(name, None)
    if value is not None:
        (after if outside else after[ADVANCED])[name] = value
    written = _edited(text.removesuffix("\n").split("\n") if text else [], name, "" if outside else ADVANCED, value)
    try:
        result = tomllib.loads(written)
    except ValueError as broken:
        raise NotEditable(name) from broken
    if {ADVANCED: {}, **result} != {ADVANCED: {}, **after}:
        raise NotEditable(name)
    return written


def _edited(lines: list[str], name: str, table: str, value: object | None) -> str:
    new = [] if value is None else [f"{name} = {toml(value)}"]
    start, end = _span(lines, table)
    at = next((n for n in range(start, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[n])), None)
    if at is not None:
        changed = [*lines[:at], *new, *lines[_after(lines, at, end) :]]
    elif table and start == end == len(lines) and new:
        changed = [*lines, *([""] if lines else []), f"[{table}]", *new]
    else:
        last = max(
            (n + 1 for n in range(start, end) if lines[n].strip() and not _heading(lines, n, end)), default=start
        )
        changed = [*lines[:last], *new, *lines[last:]]
        if last == start < len(lines) and not table and lines[last].strip() and new:
            changed.insert(last + 1, "")
    return "\n".join(changed) + "\n" if changed else ""


def _heading(lines: Sequence[str], at: int, end: int) -> bool:
    """A comment right above the next table, which belongs to that one."""
    return end < len(lines) and all(line.lstrip().startswith("#") for line in lines[at:end])


def _span(lines: Sequence[str], table: str) -> tuple[int, int]:
    """The lines of a table; of the one without a name those above the first."""
    start = 0 if not table else len(lines)
    for number, line in enumerate(lines):
        if found := _TABLE.match(line):
            if start <= number and not (table and start == len(lines)):
                return start, number
            if found[1] == table:
                start = number + 1
    return start, len(lines)


def _after(lines: Sequence[str], at: int, end: int) -> int:
    """The line after a value that begins in this one: as many as it takes to be TOML."""
    import tomllib

    for last in range(at + 1, end + 1):
        try:
            tomllib.loads("\n".join(lines[at:last]))
        except ValueError:
            continue
        return last
    raise NotEditable(lines[at])


def file_value(setting: Setting, text: str, here: Path) -> object:
    """What to write for what a user typed. A relative path would be seen from the file, so it is made absolute."""
    value = setting.read(text, "the command line")
    if isinstance(value, bool) or (isinstance(value, int) and text.strip().lstrip("-").isdigit()):
        return value
    if isinstance(value, Path):
        return _place(value, here)
    if isinstance(value, tuple):
        return [_place(one, here) if isinstance(one, Path) else str(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else text.strip()


def _place(path: Path, here: Path) -> str:
    return str(path if path.parts[:1] == ("~",) else here / path)


def toml(value: object) -> str:
    """A value as TOML writes it in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml(str(key))} = {toml(one)}' for key, one in value.items())} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
