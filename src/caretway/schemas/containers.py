"""JSON schema keywords for arrays and objects (`items`, `required`, `additionalProperties`, `uniqueItems`, `contains`,
dependencies), and `unevaluated...`, which come last. One function for each.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from .document import Unreadable
from .run import ARRAY, Found, Place, Rule, Seen, Validation, array, fail, number, shown, table_of

# ---- arrays


def _each(
    run: Validation, schema: Any, value: Any, where: range, at: Place | None, found: Found, seen: Seen | None
) -> bool:
    """Checks these elements against one schema."""
    if seen is not None:
        run.budget.spend(len(where))
        seen.elements.update(where)
    passes = True
    for index in where:
        if not run.apply(schema, value[index], (at, index), found, Seen() if seen is not None else None):
            passes = False
            if found is None or run.first:
                break
    return passes


def _one_by_one(
    run: Validation, schemas: Sequence[Any], value: Any, at: Place | None, found: Found, seen: Seen | None
) -> bool:
    """Checks each element against the schema at its position."""
    passes = True
    for index, schema in enumerate(islice(schemas, len(value))):
        if not _each(run, schema, value, range(index, index + 1), at, found, seen):
            passes = False
            if found is None or run.first:
                break
    return passes


def _items(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    if not isinstance(value, ARRAY):
        return True
    wanted = schema["items"]
    if isinstance(wanted, ARRAY):
        if run.document.draft >= 2020:
            raise Unreadable("`items` is not a schema")
        return _one_by_one(run, wanted, value, at, found, seen)
    start = len(array(schema, "prefixItems")) if run.document.draft >= 2020 and "prefixItems" in schema else 0
    return _each(run, wanted, value, range(min(start, len(value)), len(value)), at, found, seen)


def _prefix_items(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    if not isinstance(value, ARRAY) or run.document.draft < 2020:
        return True
    return _one_by_one(run, array(schema, "prefixItems"), value, at, found, seen)


def _additional_items(
    run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None
) -> bool:
    first = schema.get("items")
    if not isinstance(value, ARRAY) or not isinstance(first, ARRAY) or run.document.draft >= 2020:
        return True
    start = min(len(first), len(value))
    return _each(run, schema["additionalItems"], value, range(start, len(value)), at, found, seen)


def _contains(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    if not isinstance(value, ARRAY):
        return True
    counts = run.document.draft >= 2019
    least = number(schema, "minContains") if counts and "minContains" in schema else 1
    most = number(schema, "maxContains") if counts and "maxContains" in schema else None
    fitting = 0
    for index, element in enumerate(value):
        inner = Seen() if seen is not None else None
        if run.apply(schema["contains"], element, (at, index), None, inner):
            fitting += 1
            if seen is not None and run.document.draft >= 2020:
                seen.elements.add(index)
            elif seen is None and most is None and fitting >= least:
                break
    if fitting < least:
        return fail(found, at, f"{shown(value)} does not contain enough elements that match")
    return most is None or fitting <= most or fail(found, at, f"{shown(value)} contains too many elements that match")


def _unique_items(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    if schema["uniqueItems"] is not True or not isinstance(value, ARRAY):
        return True
    spellings: set[str] = set()
    for element in value:
        spelled = run.spelled(element)
        if spelled in spellings:
            return fail(found, at, f"{shown(value)} has elements that are not unique")
        spellings.add(spelled)
    return True


# ---- objects


def _properties(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    wanted = table_of(schema, "properties")
    if not isinstance(value, Mapping):
        return True
    run.budget.spend(min(len(wanted), len(value)))
    passes = True
    names = (
        [name for name in value if name in wanted] if len(value) < len(wanted) else [n for n in wanted if n in value]
    )
    for name in names:
        if seen is not None:
            seen.names.add(name)
        inner = Seen() if seen is not None else None
        if not run.apply(wanted[name], value[name], (at, name), found, inner):
            passes = False
            if found is None or run.first:
                break
    return passes


def _others(
    run: Validation, schema: Any, value: Any, names: list[str], at: Place | None, found: Found, seen: Seen | None
) -> bool:
    """Checks properties that no other keyword covers against one schema."""
    if seen is not None:
        seen.names.update(names)
    if schema is False and names:
        listed = ", ".join(map(shown, names[:8]))
        return fail(found, at, f"unexpected properties: {listed}{' and more' if len(names) > 8 else ''}")
    passes = True
    for name in names:
        inner = Seen() if seen is not None else None
        if not run.apply(schema, value[name], (at, name), found, inner):
            passes = False
            if found is None or run.first:
                break
    return passes


def _additional(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    if not isinstance(schema["additionalProperties"], bool | Mapping):
        raise Unreadable("`additionalProperties` is not a schema")
    if run.lenient or not isinstance(value, Mapping):
        return True
    properties = table_of(schema, "properties") if "properties" in schema else {}
    run.budget.spend(len(value))
    names = [name for name in value if name not in properties]
    return _others(run, schema["additionalProperties"], value, names, at, found, seen)


def _property_names(
    run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None
) -> bool:
    if not isinstance(value, Mapping):
        return True
    passes = True
    for name in value:
        if not run.apply(schema["propertyNames"], name, at, found, None):
            passes = False
            if found is None or run.first:
                break
    return passes


def _required(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    return _all_there(run, array(schema, "required"), value, at, found)


def _all_there(run: Validation, names: Sequence[Any], value: Any, at: Place | None, found: Found) -> bool:
    if not isinstance(value, Mapping):
        return True
    run.budget.spend(len(names))
    passes = True
    for name in names:
        if not isinstance(name, str):
            raise Unreadable("a required property is not a string")
        if name not in value:
            passes = fail(found, at, f"{shown(name)} is a required property")
            if found is None or run.first:
                break
    return passes


def _dependent(word: str) -> Rule:
    """Property -> what it requires: a list of other properties, or a schema for the whole object."""

    def rule(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
        wanted = table_of(schema, word)
        if not isinstance(value, Mapping) or (word == "dependencies" and run.document.draft > 7):
            return True
        run.budget.spend(len(wanted))
        passes = True
        for name, then in wanted.items():
            if name not in value:
                continue
            if isinstance(then, ARRAY):
                fits = _all_there(run, then, value, at, found)
            else:
                fits = run.apply(then, value, at, found, seen)
            if not fits:
                passes = False
                if found is None or run.first:
                    break
        return passes

    return rule


# ---- what no other keyword looked at


def _unevaluated_items(
    run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None
) -> bool:
    if not isinstance(value, ARRAY) or seen is None:
        return True
    run.budget.spend(len(value))
    left = [index for index in range(len(value)) if index not in seen.elements]
    passes = True
    for index in left:
        if not _each(run, schema["unevaluatedItems"], value, range(index, index + 1), at, found, seen):
            passes = False
            if found is None or run.first:
                break
    return passes


def _unevaluated(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    if run.lenient or not isinstance(value, Mapping) or seen is None:
        return True
    run.budget.spend(len(value))
    left = [name for name in value if name not in seen.names]
    return _others(run, schema["unevaluatedProperties"], value, left, at, found, seen)


CONTAINER_RULES: Final[dict[str, Rule]] = {
    "items": _items,
    "prefixItems": _prefix_items,
    "additionalItems": _additional_items,
    "contains": _contains,
    "uniqueItems": _unique_items,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "required": _required,
    "dependencies": _dependent("dependencies"),
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
}
LAST_RULES: Final[dict[str, Rule]] = {"unevaluatedItems": _unevaluated_items, "unevaluatedProperties": _unevaluated}
