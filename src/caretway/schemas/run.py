"""Applies a JSON schema to a value with bounds: a `$ref` cycle, deep nesting (`MAX_DEPTH`) and too many steps (the
budget) raise `Unreadable`. Defines JSON equality (1 is 1.0) and short error messages.

A rule returns whether the value passes. `found` collects problems; if it is None, a rule stops at the first failure.
`seen` collects the visited properties and elements for the two `unevaluated` keywords; it is None if no schema has
them. Messages shorten large values. The only keyword known here is `$ref`; older drafts ignore the keywords next to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from msgspec import Struct

# ---- A JSON schema as a document: its draft, `$id`, anchors and `$ref` targets (never fetched), and the step budget.
# `Validation` stops a `$ref` cycle.
#
# The whole schema is read and counted once, so a schema that is too large is refused before any check. Only `$id`,
# `$anchor` and `$ref` are known. Nothing is fetched: a reference to another document is `Unreadable`.

MAX_NAME: Final = 2_048
"""Characters of a reference or of an id."""
_JOINING: Final = 20
"""The steps that joining a URL costs."""
_DRAFTS: Final = (("draft-03", 3), ("draft-04", 4), ("draft-06", 6), ("draft-07", 7), ("2019-09", 2019))


class Unreadable(ValueError):
    """The schema cannot be used, so the value cannot be checked."""


class Budget:
    """The remaining steps."""

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
        """The URI of the document itself."""
        self._walk(schema)

    def has(self, *words: str) -> bool:
        """Whether one of these keys is anywhere in the document, even as data (false positives) or where only a
        reference reaches it."""
        return not self._words.isdisjoint(words)

    @property
    def several(self) -> bool:
        """Whether the document contains other documents."""
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
        if isinstance(name, str) and name.startswith("#"):  # an anchor in drafts 6 and 7
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
        """The document to which a schema found in `base` belongs."""
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


Place = tuple[Any, str | int]
"""The place of a value: (the place of its container or None, key). Rendered as text only for a problem."""
Found = list[tuple["Place | None", str]] | None
Rule = Callable[["SchemaVisit"], bool]
"""Whether the value passes."""

MAX_DEPTH: Final = 150
"""Nesting of schemas while they are applied."""
ARRAY: Final = (list, tuple)
NUMBER: Final = (int, float)
_SHOWN: Final = 60


class Seen:
    """The visited properties or elements of one object or array."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: set[str | int] = set()

    def add(self, other: "Seen", budget: Budget) -> None:
        budget.spend(len(other.keys))
        self.keys |= other.keys


class SchemaVisit:
    """One schema applied to one value."""

    __slots__ = ("at", "found", "run", "schema", "seen", "value")

    def __init__(
        self,
        run: "Validation",
        schema: Mapping[str, Any],
        value: Any,
        at: Place | None,
        found: Found,
        seen: Seen | None,
    ) -> None:
        self.run = run
        self.schema = schema
        self.value = value
        self.at = at
        self.found = found
        self.seen = seen

    def fail(self, message: str) -> bool:
        return fail(self.found, self.at, message)

    def applies(self, schema: Any) -> bool:
        """Whether the same value matches another schema, too."""
        return self.run.apply(schema, self.value, self.at, self.found, self.seen)

    def fits(self, schema: Any, *, seen: bool = True) -> bool:
        """Like `applies`, but a mismatch adds no problem. Only a match marks properties and elements as visited, and
        not without `seen`."""
        inner = None if self.seen is None else Seen()
        passes = self.run.apply(schema, self.value, self.at, None, inner)
        if passes and seen and self.seen is not None and inner is not None:
            self.seen.add(inner, self.run.budget)
        return passes

    def all(self, results: Iterable[bool]) -> bool:
        """Whether all pass. Stops at the first failure, unless all problems are collected."""
        passes = True
        for one in results:
            if not one:
                passes = False
                if self.found is None or self.run.first:
                    break
        return passes

    def children(self, schemas: Iterable[tuple[str | int, Any]]) -> bool:
        """Whether each of these elements or properties matches its schema; marks them as visited."""
        passes = True
        for key, schema in schemas:
            inner = None
            if self.seen is not None:
                self.run.budget.spend()
                self.seen.keys.add(key)
                inner = Seen()
            if not self.run.apply(schema, self.value[key], (self.at, key), self.found, inner):
                passes = False
                if self.found is None or self.run.first:
                    break
        return passes


class Rules(Struct, frozen=True):
    """Keyword -> rule."""

    first: Mapping[str, Rule]
    last: Mapping[str, Rule]
    """Rules that depend on the elements that other rules visited."""


class Validation:
    """The check of one value against one document."""

    __slots__ = ("_base", "_depth", "_rules", "_tracks", "budget", "document", "first", "found", "lenient")

    def __init__(self, document: Document, budget: Budget, rules: Rules, *, first: bool) -> None:
        self.document = document
        self.budget = budget
        self._rules = rules
        self.first = first
        """Stop at the first problem."""
        self.found: list[tuple[Place | None, str]] = []
        self.lenient = document.has("pattern", "patternProperties")
        """The schema has regular expressions, which are not run, so additional properties are unknown."""
        self._tracks = document.has("unevaluatedProperties", "unevaluatedItems")
        self._base = document.base
        self._depth = 0

    def apply(self, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
        self.budget.spend(2)
        if schema is True:
            return True
        if schema is False:
            return fail(found, at, "nothing is allowed here")
        if not isinstance(schema, Mapping):
            raise Unreadable(f"{shown(schema)} is not a schema")
        self.budget.spend(len(schema))
        if self._depth >= MAX_DEPTH:
            raise Unreadable("the schema is nested too deeply")
        base, self._base = self._base, self.document.inside(self._base, schema)
        self._depth += 1
        try:
            return self._checked(schema, value, at, found, seen)
        finally:
            self._depth -= 1
            self._base = base

    def _checked(
        self, schema: Mapping[str, Any], value: Any, at: Place | None, found: Found, seen: Seen | None
    ) -> bool:
        if "$ref" in schema and self.document.draft <= 7:  # these drafts ignore the keywords next to it
            return self.follow(schema["$ref"], value, at, found, seen)
        own = Seen() if self._tracks and ("unevaluatedProperties" in schema or "unevaluatedItems" in schema) else seen
        visit = SchemaVisit(self, schema, value, at, found, own)
        passes = True
        for table in (self._rules.first, self._rules.last) if self._tracks else (self._rules.first,):
            for word in schema:
                rule = table.get(word)
                if rule is not None and not rule(visit):
                    passes = False
                    if found is None or self.first:
                        return False
        if own is not seen and own is not None and seen is not None:
            seen.add(own, self.budget)
        return passes

    def follow(self, reference: object, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
        base = self._base
        schema, self._base = self.document.target(reference, base)
        try:
            return self.apply(schema, value, at, found, seen)
        finally:
            self._base = base

    def same(self, one: Any, other: Any) -> bool:
        """Whether two values are equal as JSON: 1 equals 1.0, but not true."""
        self.budget.spend()
        if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
            return one is other
        if isinstance(one, NUMBER):
            return isinstance(other, NUMBER) and one == other
        if isinstance(one, str):
            if not isinstance(other, str) or len(one) != len(other):
                return False
            self.budget.spend(len(one) >> 8)
            return one == other
        if isinstance(one, ARRAY):
            return isinstance(other, ARRAY) and len(one) == len(other) and all(map(self.same, one, other))
        return (
            isinstance(other, Mapping)
            and len(one) == len(other)
            and all(key in other and self.same(inner, other[key]) for key, inner in one.items())
        )

    def spelled(self, value: Any) -> str:
        """A text that is the same for equal values. A text, because only the hash of a str is randomised."""
        self.budget.spend()
        if isinstance(value, str):
            self.budget.spend(len(value) >> 8)
            return f"s{len(value)}:{value}"
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, float):
            if not value.is_integer():
                return repr(value)
            value = int(value)
        if isinstance(value, int):
            self.budget.spend(value.bit_length() >> 8)
            return f"{value:x}"
        if isinstance(value, ARRAY):
            whole = f"[{','.join(map(self.spelled, value))}]"
        else:
            named = sorted((key, self.spelled(inner)) for key, inner in value.items())
            whole = "{" + ",".join([f"{len(key)}:{key}={inner}" for key, inner in named]) + "}"
        self.budget.spend(len(whole) >> 8)  # a nested value is written once per level
        return whole


def fail(found: Found, at: Place | None, message: str) -> bool:
    if found is not None:
        found.append((at, message))
    return False


def shown(value: Any) -> str:
    """A value for a message, shortened if it is large."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"
    if isinstance(value, Mapping):
        return f"an object with {len(value)} properties"
    if isinstance(value, ARRAY):
        return f"an array of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a large number"
    return repr(value)


def type_of(value: object) -> str:
    """The narrowest type that JSON Schema has for a value: 1.0 is an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case Mapping():
            return "object"
        case _:
            return "array"


# ---- operands


def number(schema: Mapping[str, Any], word: str) -> float:
    operand = schema[word]
    if isinstance(operand, bool) or not isinstance(operand, NUMBER):
        raise Unreadable(f"`{word}` is not a number")
    return operand


def array(schema: Mapping[str, Any], word: str) -> Sequence[Any]:
    operand: Any = schema[word]
    if not isinstance(operand, ARRAY):
        raise Unreadable(f"`{word}` is not an array")
    return operand


def table_of(schema: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    operand = schema[word]
    if not isinstance(operand, Mapping):
        raise Unreadable(f"`{word}` is not an object")
    return operand
