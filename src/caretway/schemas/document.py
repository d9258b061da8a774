"""A JSON schema as a document: its draft, `$id` and anchors, where a `$ref` points (never fetched), and the step budget
that a schema spends. A `$ref` cycle is stopped in `run`.

Reads all of it once and counts, so a schema that is too large is given up before anything is checked. Knows only the
keywords that name places (`$id`, `$anchor`, `$ref`). Nothing is fetched: a reference to another document is
`Unreadable`.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

MAX_NAME: Final = 2_048
"""Characters of a reference or an id."""
_JOINING: Final = 20
"""Steps: what it costs to read a URL."""
_DRAFTS: Final = (("draft-03", 3), ("draft-04", 4), ("draft-06", 6), ("draft-07", 7), ("2019-09", 2019))


class Unreadable(ValueError):
    """The schema cannot be used, so the value cannot be checked."""


class Budget:
    """Steps that are left."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise Unreadable("the schema takes too many steps")


class Document:
    def __init__(self, schema: Mapping[str, Any], budget: Budget) -> None:
        self.draft = _draft(schema)
        self._budget = budget
        self._words: set[str] = set()
        self._resources: dict[str, Any] = {}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._targets: dict[tuple[str, str], tuple[Any, str]] = {}
        self._joined: dict[tuple[str, str], tuple[str, str]] = {}
        self.base = ""
        """Where the document itself is."""
        self._walk(schema)

    def has(self, *words: str) -> bool:
        """One of these keys is somewhere in the document, possibly where only a reference reaches. May be true too
        often."""
        return not self._words.isdisjoint(words)

    @property
    def several(self) -> bool:
        """The document contains other documents."""
        return len(self._resources) > 1

    def _walk(self, schema: Mapping[str, Any]) -> None:
        self.base = self._base("", schema)
        self._resources[self.base] = schema
        waiting: list[tuple[Any, str]] = [(schema, "")]
        while waiting:
            value, base = waiting.pop()
            if isinstance(value, Mapping):
                self._budget.spend(1 + len(value))
                self._words.update(value)
                base = self._named(value, base)
                waiting += [(inner, base) for inner in value.values()]
            elif isinstance(value, list | tuple):
                self._budget.spend(1 + len(value))
                waiting += [(inner, base) for inner in value]

    def _named(self, schema: Mapping[str, Any], base: str) -> str:
        inside = self._base(base, schema)
        if inside != base:
            self._resources.setdefault(inside, schema)
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := schema.get(word), str):
                self._anchors.setdefault((inside, name), schema)
        name = schema.get("$id")
        if isinstance(name, str) and name.startswith("#"):  # how drafts 6 and 7 named a place
            self._anchors.setdefault((inside, name[1:]), schema)
        return inside

    def _base(self, base: str, schema: Mapping[str, Any]) -> str:
        name = schema.get("id" if self.draft == 4 else "$id")
        return base if not isinstance(name, str) or name.startswith("#") else self._join(base, name)[0]

    def _join(self, base: str, name: str) -> tuple[str, str]:
        joined = self._joined.get((base, name))
        if joined is None:
            self._budget.spend(_JOINING)
            joined = self._joined[base, name] = _split(base, name)
        return joined

    def inside(self, base: str, schema: Mapping[str, Any]) -> str:
        """The document that a schema found in `base` belongs to."""
        return self._base(base, schema) if self.several else base

    def target(self, reference: object, base: str) -> tuple[Any, str]:
        """The target of a reference, and the document that contains it."""
        if not isinstance(reference, str):
            raise Unreadable("a $ref is not a string")
        target = self._targets.get((base, reference))
        if target is None:
            target = self._targets[base, reference] = self._look_up(reference, base)
        return target

    def _look_up(self, reference: str, base: str) -> tuple[Any, str]:
        where, fragment = self._join(base, reference)
        if where not in self._resources:
            raise Unreadable(f"it refers to another document: {reference[:80]}")
        schema = self._resources[where]
        if fragment and not fragment.startswith("/"):
            if (where, fragment) not in self._anchors:
                raise Unreadable(f"there is nothing at {reference[:80]}")
            return self._anchors[where, fragment], where
        for step in fragment.split("/")[1:]:
            self._budget.spend()
            schema = _inside(schema, unquote(step).replace("~1", "/").replace("~0", "~"), reference)
            if isinstance(schema, Mapping):
                where = self.inside(where, schema)
        return schema, where


def _split(base: str, name: str) -> tuple[str, str]:
    if len(name) > MAX_NAME:
        raise Unreadable("a reference is too long")
    try:
        where, fragment = urldefrag(urljoin(base, name))
    except ValueError as failure:
        raise Unreadable(f"{name[:80]} is not a valid reference") from failure
    return where, fragment


def _inside(holder: Any, step: str, reference: str) -> Any:
    if isinstance(holder, Mapping) and step in holder:
        return holder[step]
    if isinstance(holder, list | tuple) and step.isascii() and step.isdigit() and int(step[:9]) < len(holder):
        return holder[int(step[:9])]
    raise Unreadable(f"there is nothing at {reference[:80]}")


def _draft(schema: Mapping[str, Any]) -> int:
    named = schema.get("$schema", "")
    if not isinstance(named, str):
        raise Unreadable("$schema is not a string")
    draft = next((number for word, number in _DRAFTS if word in named), 2020)
    if draft == 3:
        raise Unreadable("draft 3 is not supported")
    return draft
