"""Applies a JSON schema to a value with bounds: a `$ref` that refers to itself, deep nesting and too many steps end as
`Unreadable` (`MAX_DEPTH`, the budget). What equal means (1 is 1.0); short error messages.

A rule returns whether the value passes. `found` collects what is wrong; None: only the verdict counts, and the first
failure is enough. `seen` collects which properties and elements were visited, for the two `unevaluated` keywords; it is
None if no schema has them. Messages show only a little of a value, which may be large. The only keyword known here is
`$ref`, whose neighbours had no meaning in older drafts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from .document import Budget, Document, Unreadable

Place = tuple[Any, str | int]
"""Where a value is: (the place of its container or None, key). Turned into text only when there is a problem."""
Found = list[tuple["Place | None", str]] | None
Rule = Callable[["Validation", Any, Any, "Place | None", Found, "Seen | None"], bool]
"""(run, the schema with the keyword, value, where it is, found, seen) -> does it pass?"""

MAX_DEPTH: Final = 150
"""How deeply schemas may be nested while they are applied."""
ARRAY: Final = (list, tuple)
NUMBER: Final = (int, float)
_SHOWN: Final = 60


class Seen:
    """What was visited in one object or array."""

    __slots__ = ("elements", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.elements: set[int] = set()

    def add(self, other: "Seen", budget: Budget) -> None:
        budget.spend(len(other.names) + len(other.elements))
        self.names |= other.names
        self.elements |= other.elements


class Rules(Struct, frozen=True):
    """Keyword -> rule."""

    first: Mapping[str, Rule]
    last: Mapping[str, Rule]
    """Rules that depend on what the others visited."""


class Validation:
    """One value against one document."""

    __slots__ = ("_base", "_depth", "_rules", "_tracks", "budget", "document", "first", "found", "lenient")

    def __init__(self, document: Document, budget: Budget, rules: Rules, *, first: bool) -> None:
        self.document = document
        self.budget = budget
        self._rules = rules
        self.first = first
        """Stop at the first problem."""
        self.found: list[tuple[Place | None, str]] = []
        self.lenient = document.has("pattern", "patternProperties")
        """Which properties are additional depends on regular expressions, which are not run."""
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
        if "$ref" in schema and self.document.draft <= 7:  # its neighbours meant nothing then
            return self.follow(schema["$ref"], value, at, found, seen)
        own = Seen() if self._tracks and ("unevaluatedProperties" in schema or "unevaluatedItems" in schema) else seen
        passes = True
        for table in (self._rules.first, self._rules.last) if self._tracks else (self._rules.first,):
            for word in schema:
                rule = table.get(word)
                if rule is not None and not rule(self, schema, value, at, found, own):
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
        """Equal as JSON: 1 is 1.0, and true is not 1."""
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
        """The same text for equal values. A text, because only the hash of a text cannot be predicted."""
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
        self.budget.spend(len(whole) >> 8)  # a deep one is written once for every level
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
