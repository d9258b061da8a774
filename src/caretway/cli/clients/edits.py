"""The edits of `setup` and `setup --undo`. Undo restores a file byte for byte if nothing else changed it, otherwise
removes exactly our entries. Each edit is checked by reading the values back. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...storage import toml_text
from . import jsonc
from .values import Entry, FilePlan


@dataclass(frozen=True, slots=True)
class _Structured:
    load: Callable[[str], Any]
    find: Callable[[str, Sequence[str]], tuple[Any, ...]]
    put: Callable[[str, Sequence[str], Any], str]
    remove: Callable[[str, Sequence[str], Sequence[Sequence[str]]], str]


KINDS: Final = {
    "json": _Structured(
        jsonc.load, jsonc.find, jsonc.put, lambda text, path, emptied: jsonc.remove(text, path, emptied=emptied)
    ),
    "toml": _Structured(
        toml_text.load, toml_text.find, toml_text.put, lambda text, path, _emptied: toml_text.remove(text, path)
    ),
}


def applied(plan: FilePlan, before: str | None) -> str:
    """The file with our entries. Raises ValueError with the reason if it cannot be changed safely."""
    if plan.kind == "whole":
        return plan.text
    after = before or ""
    if plan.kind == "yaml-list":
        return put(after, plan.text, plan.mark)
    kind = KINDS[plan.kind]
    wanted = kind.load(after) or {}
    for entry in plan.entries:
        if kind.find(after, entry.path) != (entry.value,):
            after = kind.put(after, entry.path, entry.value)
        wanted = _with(wanted, entry)
    if not _reads(kind, after, wanted):
        raise ValueError("it is written in a way that cannot be added to safely")
    return after


def _reads(kind: _Structured, text: str, wanted: Any) -> bool:
    try:
        return bool((kind.load(text) or {}) == wanted)
    except ValueError:
        return False


def undone(plan: FilePlan, before: str | None, after: str, current: str | None) -> str | None:
    """The file's text after undo; None deletes it. `before` and `after` are its texts before and after `setup`."""
    if current is None or current == before:
        return current
    if current == after:
        return before
    if plan.kind == "whole":
        return before
    rest = _without(plan, before, current)
    return before if _is_empty(plan, rest) and _is_empty(plan, before or "") else rest


def _without(plan: FilePlan, before: str | None, current: str) -> str:
    if plan.kind == "yaml-list":
        return remove(current, plan.mark)
    kind = KINDS[plan.kind]
    wanted = kind.load(current) or {}
    text = current
    for entry in plan.entries:
        had = kind.find(before or "", entry.path)
        if had:  # setup replaced a value of the user
            text = kind.put(text, entry.path, had[0])
            wanted = _with(wanted, Entry(entry.path, had[0]))
            continue
        new = [entry.path[:depth] for depth in range(1, len(entry.path))]
        new = [path for path in new if not kind.find(before or "", path)]
        text = kind.remove(text, entry.path, new)
        wanted = _less(wanted, entry.path, new)
    if not _reads(kind, text, wanted):
        raise ValueError("it is written in a way that cannot be taken out safely")
    return text


def _is_empty(plan: FilePlan, text: str) -> bool:
    if plan.kind == "yaml-list":
        return not text.strip()
    return "".join(text.split()) in ("", "{}")


def _with(values: Any, entry: Entry) -> Any:
    if not isinstance(values, dict):
        raise ValueError("its values are not a table")
    key, *rest = entry.path
    inner = _with(values.get(key, {}), Entry(tuple(rest), entry.value)) if rest else entry.value
    return values | {key: inner}


def _less(values: Any, path: Sequence[str], new: Sequence[Sequence[str]]) -> Any:
    """`values` without `path`; tables in `new` are removed if they are empty."""
    if not isinstance(values, dict) or path[0] not in values:
        return values
    if len(path) == 1:
        return {key: value for key, value in values.items() if key != path[0]}
    inner = _less(values[path[0]], path[1:], [outer[1:] for outer in new if len(outer) > 1])
    if inner == {} and any(len(outer) == 1 for outer in new):
        return {key: value for key, value in values.items() if key != path[0]}
    return values | {path[0]: inner}


# ---- yaml list

# Edits YAML files that are one list: our items are added at the end or removed, and every other byte stays. A file of
# another form is refused. Pure.


_END: Final = "..."
"""Ends a document; only comments may follow this line."""


def check(text: str) -> None:
    """Raises ValueError if the file is not a list with one unindented line for each item."""
    begun = ended = False
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        plain = line.rstrip()
        if not plain or plain.lstrip().startswith("#") or (plain == "---" and not begun):
            continue
        if ended:
            raise ValueError(f"line {number} is after the end of the list")
        if plain == _END:
            ended = True
        elif plain.startswith((" ", "\t")):
            if not begun:
                raise ValueError(f"line {number} is indented, and ours would not be in the same list")
        elif not plain.startswith("- ") and plain != "-":
            raise ValueError(f"line {number} is not an item of a list")
        begun = True


def put(text: str, items: str, mark: str) -> str:
    """The text with our items at its end, replacing earlier ones."""
    check(text)
    kept = remove(text, mark)
    if "\r\n" in text:
        items = items.replace("\n", "\r\n")
    lines = kept.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if line.rstrip() == _END), len(lines))
    before, after = "".join(lines[:end]), "".join(lines[end:])
    if before and not before.endswith("\n"):
        before += "\r\n" if "\r\n" in text else "\n"
    return before + items + after


def remove(text: str, mark: str) -> str:
    """The text without the items that begin with `mark`, unquoted or in single or double quotes."""
    check(text)
    marks = {mark, mark.replace('"', "'"), mark.replace('"', "")}
    kept: list[str] = []
    ours = False
    for line in text.splitlines(keepends=True):
        if not line.startswith((" ", "\t")):  # an item, a comment or an empty line
            ours = any(line.startswith(begin) for begin in marks)
        if not ours:
            kept.append(line)
    return "".join(kept)
