"""Fits tool schemas to a model family: resolves `$ref` (a recursive schema ends with its type) and merges unions.
Beyond a budget of steps and depth only the names of arguments stay. Pure.

Some vendors refuse a whole run for one schema with `anyOf`, `oneOf` or `allOf` anywhere in it, with an enum of values
other than strings, or with a tuple. The fitted schema accepts every call that the client's schema accepts, with the
same values, so calls need no translation back; the client checks them.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.request import ToolSpec
from .merging import both, either, is_open, key_of, spelled, types_of, values_of, with_words
from .run import Budget, Document, Unreadable, type_of

MAX_STEPS: Final = 20_000
"""Steps for one tool."""
MAX_LIST_STEPS: Final = 50_000
"""Steps for all tools of a request."""
MAX_DEPTH: Final = 60
MAX_TOLD: Final = 1_000
_MAX_NAMES: Final = 200
_MAX_WORDS: Final = 400
"""Characters that describe values or elements."""

_NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")
_SEVERAL: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = frozenset(
    {
        *("items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"),
        *("propertyNames", "not", "if", "then", "else", "contentSchema"),
    }
)
_BRANCHES: Final = frozenset({"then", "else"})
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})
_PLACES: Final = frozenset({"$defs", "definitions", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_INVERTED: Final = ("not", "if")
"""Keywords that a looser rule makes stricter."""
_UNIONS: Final = ("anyOf", "oneOf", "allOf")


class SchemaRules(Struct, frozen=True, gc=False):
    """The schemas that the vendor of a model family refuses."""

    name: str = ""
    unions: bool = False
    values: bool = False
    """Enums of values other than strings, and tuples."""

    @property
    def any(self) -> bool:
        return self.unions or self.values


NO_RULES: Final = SchemaRules()
STRICTEST: Final = SchemaRules("any maker", unions=True, values=True)
"""All known refusals: for an unknown vendor that has refused a schema."""
RULES: Final = {
    "fable": SchemaRules("fable", unions=True),
    **{name: SchemaRules(name, values=True) for name in ("gemini", "grok", "kimi")},
}
"""A word in a model's name -> its rules. Other families have no known rules; after a refusal their schemas are sent
once more, fitted to `STRICTEST`."""


@lru_cache(maxsize=256)
def rules_for(model: str) -> SchemaRules:
    return next((RULES[word] for word in re.split(r"[^a-z]+", model.lower()) if word in RULES), NO_RULES)


class FittedTools(Struct, frozen=True):
    tools: Sequence[ToolSpec]
    changes: str = ""
    """A description of the changes; empty if there are none."""


def fit_tools(tools: Sequence[ToolSpec], rules: SchemaRules) -> FittedTools:
    if not rules.any:
        return FittedTools(tools)
    left = MAX_LIST_STEPS
    made: list[ToolSpec] = []
    changed: list[str] = []
    for tool in tools:
        budget = Budget(min(MAX_STEPS, left))
        schema, changes = fit_schema(tool.schema, rules, budget)
        left = max(0, left - (min(MAX_STEPS, left) - max(0, budget.left)))
        if changes:
            changed.append(f"{tool.name} ({', '.join(changes)})")
            tool = replace(tool, schema=schema)
        made.append(tool)
    return FittedTools(made, f"fitted for {rules.name}: {_listed(changed)}" if changed else "")


def _listed(changed: Sequence[str], shown: int = 20) -> str:
    more = f" and {len(changed) - shown} more" if len(changed) > shown else ""
    return ", ".join(changed[:shown])[: MAX_TOLD - 60] + more


def fit_schema(
    schema: Mapping[str, Any], rules: SchemaRules, budget: Budget | None = None
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """(the fitted schema, the changes); the schema itself if there are no changes."""
    if not schema:
        return schema, ()
    budget = budget or Budget(MAX_STEPS)
    made, changes = schema, set[str]()
    try:
        for number, part in enumerate(_passes(rules)):
            fitting = _Fitting(made, part, budget, unions_taken=not rules.unions)
            made = fitting.whole()
            changes |= fitting.changes
            if number and not fitting.changes:
                break
    except (Unreadable, RecursionError):
        return _bare(schema), ("arguments only",)
    return (made, tuple(sorted(changes))) if changes else (schema, ())


def _passes(rules: SchemaRules) -> tuple[SchemaRules, ...]:
    """The rules of each pass: unions, then values. If both apply, each runs twice: merged unions can create mixed
    enums, and a tuple becomes a union."""
    if not (rules.unions and rules.values):
        return (rules,)
    return (replace(rules, values=False), replace(rules, unions=False)) * 2


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with only the names of the arguments, and which are required."""
    properties, required = schema.get("properties"), schema.get("required")
    names = [name for name in properties if isinstance(name, str)] if isinstance(properties, Mapping) else []
    made: dict[str, Any] = {"type": "object"}
    if names:
        made["properties"] = {name: {} for name in names[:_MAX_NAMES]}
    needed = [name for name in required if name in names[:_MAX_NAMES]] if isinstance(required, list) else []
    return {**made, "required": needed} if needed else made


def _is_flat(value: object) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return not any(isinstance(one, Mapping | list | tuple) for one in several)


class _Fitting:
    """The fitting of one schema."""

    def __init__(
        self, schema: Mapping[str, Any], rules: SchemaRules, budget: Budget, *, unions_taken: bool = True
    ) -> None:
        self._root = schema
        self._rules = rules
        self._plain_enum = partial(plain_enum, unions=unions_taken)
        self._budget = budget
        self._document = Document(schema, budget)
        self._followed: list[str] = []
        self._depth = 0
        self._loosened = 0
        self.changes: set[str] = set()

    def whole(self) -> Mapping[str, Any]:
        made = self._schema(self._root, self._document.base)
        if not isinstance(made, Mapping):
            return {"type": "object"}
        if self.changes and "type" not in made and self._root.get("type") is None:
            return {"type": "object", **made}
        return made

    def _change(self, what: str, *, looser: bool = True) -> None:
        self.changes.add(what)
        self._loosened += looser

    def _schema(self, schema: Any, base: str) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            self._change("unreadable parts")
            return {}
        self._budget.spend(2 + len(schema))
        if self._depth >= MAX_DEPTH:
            self._change("depth")
            return {}
        self._depth += 1
        try:
            base = self._document.inside(base, schema)
            return self._whole(self._parts(schema, base), schema, base)
        finally:
            self._depth -= 1

    def _parts(self, schema: Mapping[str, Any], base: str) -> dict[str, Any]:
        """The schema without its references, with fitted inner schemas."""
        made: dict[str, Any] = {}
        for word, value in schema.items():
            if word in _REFERENCES or word in _PLACES:
                if word in _PLACES and not _is_flat(value):  # definitions: their references are already resolved
                    self._change("references", looser=False)
            elif word in _NAMED and isinstance(value, Mapping):
                made[word] = {name: self._named(word, of, base) for name, of in value.items()}
            elif word in _SEVERAL and not isinstance(value, list | tuple):
                self._change("unreadable parts")
            elif isinstance(value, list | tuple) and (word in _SEVERAL or word == "items"):
                before = self._loosened
                several = [self._schema(one, base) for one in value]
                if word != "oneOf" or self._loosened == before:
                    made[word] = several
                elif "anyOf" not in schema:  # looser schemas overlap: several may match where one did
                    made["anyOf"] = several
            elif word in _SINGLE:
                before = self._loosened
                fitted = self._schema(value, base)
                if word not in _INVERTED or self._loosened == before:
                    made[word] = fitted
            elif word in _VALUES or _is_flat(value):
                made[word] = value
            else:
                self._change("annotations", looser=False)
        if "if" not in made and (made.keys() & _BRANCHES):  # they mean nothing alone
            made = {word: value for word, value in made.items() if word not in _BRANCHES}
            if "if" not in schema:
                self._change("annotations", looser=False)
        return made

    def _named(self, word: str, of: Any, base: str) -> Any:
        return of if word == "dependencies" and isinstance(of, list) else self._schema(of, base)

    def _whole(self, made: Any, schema: Mapping[str, Any], base: str) -> Any:
        if self._rules.values:
            for plain, what in ((self._plain_enum, "enums"), (plain_tuple, "tuples")):
                other = plain(made)
                if other is not None:
                    self._change(what)
                    made = other
        for word in _REFERENCES:
            if word in schema:
                self._change("references", looser=False)
                made = self._joined(made, self._target(schema[word], base))
        return self._merged(made) if self._rules.unions and isinstance(made, dict) else made

    def _joined(self, made: Any, target: Any) -> Any:
        if self._rules.unions or is_open(made) or is_open(target):
            return both(made, target, self._budget)
        return {"allOf": [made, target]}

    def _target(self, reference: object, base: str) -> Any:
        name = f"{base} {reference}"
        if name in self._followed:
            self._loosened += 1
            return with_words(self._again(reference, base), "Again what stands around it.")
        try:
            schema, inside = self._document.target(reference, base)
        except Unreadable:
            if self._budget.left < 0:
                raise
            self._loosened += 1
            return {}  # an unresolvable reference accepts anything
        self._followed.append(name)
        try:
            return self._schema(schema, inside)
        finally:
            self._followed.pop()

    def _again(self, reference: object, base: str) -> dict[str, Any]:
        """A recursive schema ends here with its type."""
        schema, _ = self._document.target(reference, base)
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        return {"type": kind} if isinstance(kind, str) else {}

    def _merged(self, made: dict[str, Any]) -> Any:
        unions = [made.pop(word) for word in _UNIONS if word in made and word != "allOf"]
        every = made.pop("allOf", None)
        if every is None and not unions:
            return made
        self._change("unions")
        made.pop("unevaluatedProperties", None)
        made.pop("unevaluatedItems", None)
        whole: Any = made
        for one in every if isinstance(every, list) else ():
            whole = both(whole, one, self._budget)
        for branches in unions:
            if isinstance(branches, list):
                whole = both(whole, either(branches, self._budget), self._budget)
        return whole


# ------------------------------------------------------------------------- enums and tuples as types, bounds and
# descriptions


def plain_enum(schema: Mapping[str, Any], *, unions: bool = True) -> dict[str, Any] | None:
    """The schema without its mixed enum; None if it has no mixed enum. Without `unions`, mixed values become a list of
    types, and only the description lists the strings."""
    if "enum" not in schema and "const" not in schema:
        return None
    values = values_of(schema)
    if values is None or all(isinstance(value, str) for value in values):
        return None
    rest = {word: said for word, said in schema.items() if word not in ("enum", "const", "type")}
    kinds = [_kind(values, kind) for kind in dict.fromkeys(map(_group, values))]
    if len(kinds) == 1:
        made = {**rest, **kinds[0]}
    elif not unions:
        bounds = {word: said for kind in kinds for word, said in kind.items() if word != "enum"}
        made = {**rest, **bounds, "type": [kind["type"] for kind in kinds]}
        return with_words(made, _all_values(values))
    elif "anyOf" not in rest:
        made = {**rest, "anyOf": kinds}
    else:
        made = {**rest, "type": [kind["type"] for kind in kinds]}
    return with_words(made, _described_values(values))


def _group(value: object) -> str:
    return "number" if (kind := type_of(value)) == "integer" else kind


def _kind(values: Sequence[Any], kind: str) -> dict[str, Any]:
    """The values of this kind."""
    own = [value for value in values if _group(value) == kind]
    match kind:
        case "string":
            return {"type": "string", "enum": own}
        case "number":
            whole = all(type_of(value) == "integer" for value in own)
            return {"type": "integer" if whole else "number", "minimum": min(own), "maximum": max(own)}
        case _:
            return {"type": kind}


def _described_values(values: Sequence[Any]) -> str:
    odd = [value for value in values if value is not None and not isinstance(value, str)]
    if not odd or {key_of(True), key_of(False)} <= set(map(key_of, odd[:4])):
        return ""
    return _all_values(values)


def _all_values(values: Sequence[Any]) -> str:
    words = ", ".join(map(spelled, values[:60]))
    return f"One of: {words}."[:_MAX_WORDS] if len(values) > 1 else f"Always {words}."


def plain_tuple(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema with a plain array for a tuple; None if it is not a tuple."""
    old = isinstance(schema.get("items"), list | tuple)
    elements = schema["items"] if old else schema.get("prefixItems")
    if not old and "prefixItems" not in schema:
        return None
    rest = {word: said for word, said in schema.items() if word not in ("items", "prefixItems", "additionalItems")}
    if not isinstance(elements, list | tuple) or not elements:
        return rest
    more = schema.get("additionalItems" if old else "items", True)
    allowed = {key_of(one): one for one in [*elements, *([more] if isinstance(more, Mapping) else [])]}
    several = list(allowed.values())
    rest["items"] = several[0] if len(several) == 1 else {"anyOf": several}
    if more is False:
        rest.setdefault("maxItems", len(elements))
    described = "; ".join(map(_described, elements))
    return with_words(rest, f"In this order: {described}."[:_MAX_WORDS])


def _described(element: object) -> str:
    if not isinstance(element, Mapping):
        return "anything"
    words = " or ".join(types_of(element) or ["anything"])
    said = element.get("description") or element.get("title")
    return f"{words} ({said[:80]})" if isinstance(said, str) else words
