"""What `setup` makes of a file, and what `setup --undo` makes of it later: byte for byte what it was where nobody
touched it, otherwise without exactly our entries. Each edit is checked by reading the values back. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...storage import toml_text
from . import jsonc, yaml_list
from .values import Entry, FilePlan


class EditRefused(Exception):
    """The file is not such that it can be changed without risk; says why."""


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
    """The file with our entries. Raises EditRefused."""
    if plan.kind == "whole":
        return plan.text
    text = before or ""
    try:
        if plan.kind == "yaml-list":
            return yaml_list.put(text, plan.text, plan.mark)
        kind = KINDS[plan.kind]
        after = text
        wanted = kind.load(text) or {}
        for entry in plan.entries:
            if kind.find(after, entry.path) != (entry.value,):
                after = kind.put(after, entry.path, entry.value)
            wanted = _with(wanted, entry)
    except ValueError as problem:
        raise EditRefused(str(problem)) from problem
    if not _reads(kind, after, wanted):
        raise EditRefused("it is written in a way that cannot be added to safely")
    return after


def _reads(kind: _Structured, text: str, wanted: Any) -> bool:
    try:
        return bool((kind.load(text) or {}) == wanted)
    except ValueError:
        return False


def undone(plan: FilePlan, before: str | None, after: str, current: str | None) -> str | None:
    """What the file becomes; None: it goes. `before` and `after` are what `setup` found and left."""
    if current is None or current == before:
        return current
    if current == after:
        return before
    if plan.kind == "whole":
        return before
    try:
        rest = _without(plan, before, current)
    except ValueError as problem:
        raise EditRefused(str(problem)) from problem
    return before if _is_empty(plan, rest) and _is_empty(plan, before or "") else rest


def _without(plan: FilePlan, before: str | None, current: str) -> str:
    if plan.kind == "yaml-list":
        return yaml_list.remove(current, plan.mark)
    kind = KINDS[plan.kind]
    wanted = kind.load(current) or {}
    text = current
    for entry in plan.entries:
        had = kind.find(before or "", entry.path)
        if had:  # the user had a value there, which setup replaced
            text = kind.put(text, entry.path, had[0])
            wanted = _with(wanted, Entry(entry.path, had[0]))
            continue
        new = [entry.path[:depth] for depth in range(1, len(entry.path))]
        new = [path for path in new if not kind.find(before or "", path)]
        text = kind.remove(text, entry.path, new)
        wanted = _less(wanted, entry.path, new)
    if not _reads(kind, text, wanted):
        raise EditRefused("it is written in a way that cannot be taken out safely")
    return text


def _is_empty(plan: FilePlan, text: str) -> bool:
    if plan.kind == "yaml-list":
        return not text.strip()
    return "".join(text.split()) in ("", "{}")


def _with(values: Any, entry: Entry) -> Any:
    if not isinstance(values, dict):
        raise EditRefused("its values are not a table")
    key, *rest = entry.path
    inner = _with(values.get(key, {}), Entry(tuple(rest), entry.value)) if rest else entry.value
    return values | {key: inner}


def _less(values: Any, path: Sequence[str], new: Sequence[Sequence[str]]) -> Any:
    """`values` without `path`; tables in `new` go when they are empty."""
    if not isinstance(values, dict) or path[0] not in values:
        return values
    if len(path) == 1:
        return {key: value for key, value in values.items() if key != path[0]}
    inner = _less(values[path[0]], path[1:], [outer[1:] for outer in new if len(outer) > 1])
    if inner == {} and any(len(outer) == 1 for outer in new):
        return {key: value for key, value in values.items() if key != path[0]}
    return values | {path[0]: inner}
