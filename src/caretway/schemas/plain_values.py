"""Rewrites schemas with enums of numbers, mixed enums, `const` and tuples (`prefixItems`) as types, bounds and words,
for makers that refuse them. Pure.

A number of an enum stays a number: the client gets what its own schema asks for.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .merging import key_of, spelled, type_of, types_of, values_of, with_words

_MAX_WORDS: Final = 400


def plain_enum(schema: Mapping[str, Any], *, unions: bool = True) -> dict[str, Any] | None:
    """None: its values are texts, or it has none. Without `unions` values of several kinds have a list of types, and
    which texts there are is told in words only."""
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
    return with_words(made, _told_values(values))


def _group(value: object) -> str:
    return "number" if (kind := type_of(value)) == "integer" else kind


def _kind(values: Sequence[Any], kind: str) -> dict[str, Any]:
    """Those of the values that are of this kind."""
    own = [value for value in values if _group(value) == kind]
    match kind:
        case "string":
            return {"type": "string", "enum": own}
        case "number":
            whole = all(type_of(value) == "integer" for value in own)
            return {"type": "integer" if whole else "number", "minimum": min(own), "maximum": max(own)}
        case _:
            return {"type": kind}


def _told_values(values: Sequence[Any]) -> str:
    odd = [value for value in values if value is not None and not isinstance(value, str)]
    if not odd or {key_of(True), key_of(False)} <= set(map(key_of, odd[:4])):
        return ""
    return _all_values(values)


def _all_values(values: Sequence[Any]) -> str:
    words = ", ".join(map(spelled, values[:60]))
    return f"One of: {words}."[:_MAX_WORDS] if len(values) > 1 else f"Always {words}."


def plain_tuple(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """None: it is no tuple."""
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
    told = "; ".join(map(_told, elements))
    return with_words(rest, f"In this order: {told}."[:_MAX_WORDS])


def _told(element: object) -> str:
    if not isinstance(element, Mapping):
        return "anything"
    words = " or ".join(types_of(element) or ["anything"])
    said = element.get("description") or element.get("title")
    return f"{words} ({said[:80]})" if isinstance(said, str) else words
