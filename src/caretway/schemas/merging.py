"""Merges JSON schemas so that no `anyOf`, `oneOf` or `allOf` is left: `either` accepts the values of any alternative
(null, enums, the widest bounds), `both` the values that all accept. The description states lost rules. Pure.

With `either`, every argument that an alternative accepts stays possible, except for properties that the alternative
does not declare (JSON Schema would allow those). If `both` cannot combine two rules, it keeps the first. Steps are
counted, because a hostile schema could take forever.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .run import Budget, type_of

Schema = Mapping[str, Any]

_LOWER: Final = {
    "minimum": "number",
    "exclusiveMinimum": "number",
    "minLength": "string",
    "minItems": "array",
    "minProperties": "object",
}
_UPPER: Final = {
    "maximum": "number",
    "exclusiveMaximum": "number",
    "maxLength": "string",
    "maxItems": "array",
    "maxProperties": "object",
}
_OF_TYPE: Final = {
    "multipleOf": "number",
    "pattern": "string",
    "format": "string",
    "contentEncoding": "string",
    "contentMediaType": "string",
    "uniqueItems": "array",
    "prefixItems": "array",
    "contains": "array",
    "minContains": "array",
    "propertyNames": "object",
    "dependentRequired": "object",
    "dependentSchemas": "object",
    "dependencies": "object",
}
_ANNOTATIONS: Final = frozenset(
    {*("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"), "$comment", "$schema"}
)
_CONDITION: Final = ("if", "then", "else")
_MAX_WORDS: Final = 600
"""Characters that describe alternatives."""
_MAX_DESCRIPTION: Final = 4_000


def is_open(schema: object) -> bool:
    """Whether the schema accepts anything."""
    return schema is True or (isinstance(schema, Mapping) and _ANNOTATIONS.issuperset(schema))


def key_of(value: object) -> str:
    """A key that is equal for equal values: 1 equals 1.0, but not true."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{type(value).__name__}:{value!r}"


def _counted(value: object, budget: Budget) -> str:
    key = key_of(value)
    budget.spend(1 + (len(key) >> 5))
    return key


def types_of(schema: Schema) -> list[str] | None:
    """The declared types of a schema; None: any type."""
    given = schema.get("type")
    if isinstance(given, str):
        return [given]
    if isinstance(given, list | tuple) and given:
        return [one for one in given if isinstance(one, str)]
    values = values_of(schema)
    return list(dict.fromkeys(map(type_of, values))) if values else None


def values_of(schema: Schema) -> list[Any] | None:
    """The only values that a schema accepts; None if it does not list them."""
    if isinstance(enum := schema.get("enum"), list | tuple):
        return list(enum)
    if "const" in schema:
        return [schema["const"]]
    return [None] if schema.get("type") in ("null", ["null"]) else None


def spelled(value: object) -> str:
    """A value in a description."""
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))[:60]


def with_words(schema: Schema, words: str) -> dict[str, Any]:
    """The schema with `words` added to its description."""
    said = schema.get("description")
    said = said if isinstance(said, str) else ""
    if not words or words in said:
        return dict(schema)
    joined = f"{said.rstrip()} {words}" if said.strip() else words
    return {**schema, "description": joined[: max(_MAX_DESCRIPTION, len(said))]}


# ---------------------------------------------------------------------------------------------- alternatives


def either(branches: Sequence[Any], budget: Budget) -> Any:
    """One schema that accepts every value that a branch accepts."""
    several = list({_counted(branch, budget): branch for branch in branches if branch is not False}.values())
    if not several:
        return False
    if len(several) == 1:
        return several[0]
    if any(not isinstance(branch, Mapping) for branch in several):
        return {}
    rest = [branch for branch in several if values_of(branch) != [None]]
    if len(rest) == 1 and len(rest) < len(several):
        return _nullable(rest[0])
    if any(map(is_open, several)):
        return {"description": said} if (said := _alternatives(several)) else {}
    return _either(several, budget)


def _nullable(schema: Schema) -> dict[str, Any]:
    made = dict(schema)
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if isinstance(enum := made.get("enum"), list | tuple) and None not in enum:
        made["enum"] = [*enum, None]
    types = types_of(schema)
    if types is not None and "null" not in types:
        made["type"] = [*types, "null"]
    return made


def _either(several: Sequence[Schema], budget: Budget) -> dict[str, Any]:
    made: dict[str, Any] = {}
    kinds = [types_of(branch) for branch in several]
    if all(kind is not None for kind in kinds):
        merged = list(dict.fromkeys(one for kind in kinds for one in kind or ()))
        if "number" in merged:
            merged = [one for one in merged if one != "integer"]
        made["type"] = merged[0] if len(merged) == 1 else merged
    finite = [values_of(branch) for branch in several]
    if all(values is not None for values in finite):
        made["enum"] = list({_counted(value, budget): value for values in finite for value in values or ()}.values())
    else:
        _bounds(made, several, kinds)
        _object(made, _able(several, kinds, "object"), budget)
        _array(made, _able(several, kinds, "array"), budget)
    return with_words(made, _alternatives(several))


def _able(several: Sequence[Schema], kinds: Sequence[list[str] | None], wanted: str) -> list[Schema]:
    """The branches that may accept a value of this type."""
    also = ("number", "integer") if wanted == "number" else (wanted,)
    return [
        branch for branch, kind in zip(several, kinds, strict=True) if kind is None or any(one in kind for one in also)
    ]


def _bounds(made: dict[str, Any], several: Sequence[Schema], kinds: Sequence[list[str] | None]) -> None:
    """Add the rules of all branches with the type in question: the widest bound, or a rule that all share."""
    widest: list[tuple[Mapping[str, str], Callable[..., Any]]] = [(_LOWER, min), (_UPPER, max)]
    for table, widen in widest:
        for word, kind in table.items():
            bounds = [branch.get(word) for branch in _able(several, kinds, kind)]
            if bounds and all(_is_number(bound) for bound in bounds):
                made[word] = widen(bounds)
    for word, kind in _OF_TYPE.items():
        said = [branch.get(word) for branch in _able(several, kinds, kind)]
        if said and said[0] is not None and all(one == said[0] for one in said):
            made[word] = said[0]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(made: dict[str, Any], objects: Sequence[Schema], budget: Budget) -> None:
    if not objects:
        return
    for word in ("properties", "patternProperties"):
        declared: dict[str, list[Any]] = {}
        for branch in objects:
            for name, schema in _mapping(branch.get(word)).items():
                declared.setdefault(name, []).append(schema)
        if declared:
            made[word] = {name: either(schemas, budget) for name, schemas in declared.items()}
    required = [_names(branch.get("required")) for branch in objects]
    if always := [name for name in required[0] if all(name in names for names in required[1:])]:
        made["required"] = always
    more = [branch.get("additionalProperties", True) for branch in objects]
    if all(one is False for one in more):
        made["additionalProperties"] = False
    elif all(isinstance(one, Mapping) or one is False for one in more):
        made["additionalProperties"] = either(more, budget)


def _array(made: dict[str, Any], arrays: Sequence[Schema], budget: Budget) -> None:
    items = [branch.get("items") for branch in arrays if "prefixItems" not in branch]
    if arrays and len(items) == len(arrays) and all(isinstance(one, Mapping) for one in items):
        made["items"] = either(items, budget)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []


def _alternatives(several: Sequence[Schema]) -> str:
    described = list(dict.fromkeys(_described(branch) for branch in several if values_of(branch) != [None]))
    whole = "One of: " + "; ".join(described) + "."
    while len(described) > 1 and len(whole) > _MAX_WORDS:
        described.pop()
        whole = "One of: " + "; ".join(described) + "; and others."
    return whole if len(whole) <= _MAX_WORDS and any(map(_worth_telling, several)) else ""


def _worth_telling(branch: Schema) -> bool:
    """Whether a branch has more than types and values, which the result keeps anyway."""
    return "properties" in branch or "required" in branch or isinstance(branch.get("description"), str)


def _described(branch: Schema) -> str:
    """A branch in a few words."""
    names, required = list(_mapping(branch.get("properties"))), _names(branch.get("required"))
    if names or required:
        inside = ", ".join(_described_property(branch, name, required) for name in dict.fromkeys([*names, *required]))
        words = f"{{{inside}}}"
    elif (values := values_of(branch)) is not None:
        words = " | ".join(spelled(value) for value in values[:20])
    else:
        words = " or ".join(types_of(branch) or ["anything"])
    said = branch.get("description") or branch.get("title")
    return f"{words} ({said.strip().rstrip('.')[:120]})" if isinstance(said, str) and said.strip() else words


def _described_property(branch: Schema, name: str, required: Sequence[str]) -> str:
    schema = _mapping(_mapping(branch.get("properties")).get(name))
    values = values_of(schema)
    named = name if name in required else f"{name}?"
    return f"{named}: {spelled(values[0])}" if values is not None and len(values) == 1 else named


# ---------------------------------------------------------------------------------------------- rules that must all
# hold


def both(one: Any, other: Any, budget: Budget) -> Any:
    """One schema for values that both schemas accept. Of two rules that cannot be combined, it keeps the first."""
    if one is False or other is False:
        return False
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one if isinstance(one, Mapping) else other
    budget.spend(1 + len(one) + len(other))
    made = dict(one)
    for word, said in other.items():
        if word in _CONDITION and "if" in one:
            continue
        if word not in made:
            made[word] = said
        elif made[word] != said:
            made[word] = _joint(word, made[word], said, budget)
    return made


def _joint(word: str, one: Any, other: Any, budget: Budget) -> Any:
    match word:
        case "type":
            return _joint_types(one, other)
        case "enum" if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            known = {_counted(value, budget) for value in other}
            return [value for value in one if _counted(value, budget) in known] or one
        case "required":
            return list(dict.fromkeys([*_names(one), *_names(other)]))
        case "properties" | "patternProperties" | "dependentSchemas":
            first, second = _mapping(one), _mapping(other)
            budget.spend(len(first) + len(second))
            return {**second, **{name: both(of, second.get(name, True), budget) for name, of in first.items()}}
        case "items" | "additionalProperties" | "unevaluatedProperties" | "propertyNames":
            return both(one, other, budget)
        case "description" if isinstance(one, str) and isinstance(other, str):
            return with_words({"description": one}, other)["description"]
        case _ if _is_number(one) and _is_number(other) and word in _LOWER:
            return max(one, other)
        case _ if _is_number(one) and _is_number(other) and word in _UPPER:
            return min(one, other)
        case _:
            return one


def _joint_types(one: object, other: object) -> Any:
    first, second = types_of({"type": one}) or [], types_of({"type": other}) or []
    kept = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    if "number" in first and "integer" in second and "integer" not in kept:
        kept.append("integer")
    return one if not kept else kept[0] if len(kept) == 1 else kept
