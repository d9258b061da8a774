"""JSON schema keywords for any value, numbers and sizes: `type`, `enum`, `const`, `$ref`, `anyOf`, `oneOf`, `not`,
`if`, minimum, `multipleOf` (as decimals), lengths. One function for each; `pattern` is not checked.
"""

from collections.abc import Callable, Mapping, Sized
from typing import Any, Final

from .document import Unreadable
from .run import ARRAY, NUMBER, Found, Place, Rule, Seen, Validation, array, fail, number, shown

# ---- any value

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
    "number": lambda value: isinstance(value, NUMBER) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, ARRAY),
    "object": lambda value: isinstance(value, Mapping),
}


def _type(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    wanted = schema["type"]
    names = [wanted] if isinstance(wanted, str) else array(schema, "type")
    run.budget.spend(len(names))
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise Unreadable(f"{shown(name)} is not a type")
        if _TYPES[name](value):
            return True
    return fail(found, at, f"{shown(value)} is not of type {', '.join(map(repr, names[:8]))}")


def _enum(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    return any(run.same(value, one) for one in array(schema, "enum")) or fail(
        found, at, f"{shown(value)} is not one of the {len(schema['enum'])} allowed values"
    )


def _const(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    return run.same(value, schema["const"]) or fail(found, at, f"{shown(schema['const'])} was expected")


def _ref(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    return run.follow(schema["$ref"], value, at, found, seen)


def _dynamic(word: str) -> Rule:
    def rule(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
        if run.document.several:
            raise Unreadable(f"`{word}` across documents is not followed")
        return run.follow(schema[word], value, at, found, seen)

    return rule


def _all_of(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    passes = True
    for one in array(schema, "allOf"):
        if not run.apply(one, value, at, found, seen):
            passes = False
            if found is None or run.first:
                break
    return passes


def _branches(run: Validation, schema: Any, word: str, value: Any, at: Place | None, seen: Seen | None) -> int:
    """How many of the schemas match. Without `seen`, `anyOf` can stop after one and `oneOf` after two."""
    fitting, enough = 0, 1 if word == "anyOf" else 2
    for one in array(schema, word):
        inner = None if seen is None else Seen()
        if run.apply(one, value, at, None, inner):
            fitting += 1
            if seen is not None and inner is not None:
                seen.add(inner, run.budget)
            elif fitting == enough:
                break
    return fitting


def _any_of(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    if _branches(run, schema, "anyOf", value, at, seen):
        return True
    return fail(found, at, f"{shown(value)} is not valid under any of the given schemas")


def _one_of(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    fitting = _branches(run, schema, "oneOf", value, at, seen)
    if fitting == 1:
        return True
    return fail(found, at, f"{shown(value)} is valid under {'several' if fitting else 'none'} of the given schemas")


def _not(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    inner = None if seen is None else Seen()
    return not run.apply(schema["not"], value, at, None, inner) or fail(found, at, f"{shown(value)} is not allowed")


def _if(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    inner = None if seen is None else Seen()
    holds = run.apply(schema["if"], value, at, None, inner)
    if holds and seen is not None and inner is not None:
        seen.add(inner, run.budget)
    then = "then" if holds else "else"
    return then not in schema or run.apply(schema[then], value, at, found, seen)


# ---- numbers and texts


def _limit(
    word: str, says: str, passes: Callable[[Any, float], bool], sized: type[Sized] | tuple[type[Sized], ...] | None
) -> Rule:
    """A rule that compares a number, or with `sized` the length of something, with its operand."""

    def rule(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
        if run.document.draft == 4 and word.startswith("exclusive"):
            return _draft_4(word, schema, value, at, found)
        limit = number(schema, word)
        if sized is None:
            if isinstance(value, bool) or not isinstance(value, NUMBER):
                return True
            measured: Any = value
        elif isinstance(value, sized):
            measured = len(value)
        else:
            return True
        return passes(measured, limit) or fail(found, at, f"{shown(value)} {says} {shown(limit)}")

    return rule


def _draft_4(word: str, schema: Any, value: Any, at: Place | None, found: Found) -> bool:
    """In draft 4 the keyword was a flag beside the limit."""
    beside = "minimum" if word == "exclusiveMinimum" else "maximum"
    if schema[word] is not True or beside not in schema or not isinstance(value, NUMBER) or isinstance(value, bool):
        return True
    return value != number(schema, beside) or fail(found, at, f"{shown(value)} is the excluded limit itself")


def _multiple_of(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    step = number(schema, "multipleOf")
    if step <= 0:
        raise Unreadable("`multipleOf` is not positive")
    if isinstance(value, bool) or not isinstance(value, NUMBER):
        return True
    if isinstance(value, int) and isinstance(step, int):
        run.budget.spend(value.bit_length() >> 8)
        fits = value % step == 0
    else:  # as decimals, which is what was written: 4.02 is a multiple of 0.01
        from fractions import Fraction  # few schemas ask for it

        run.budget.spend(100)
        fits = (Fraction(repr(value)) / Fraction(repr(step))).denominator == 1
    return fits or fail(found, at, f"{shown(value)} is not a multiple of {shown(step)}")


VALUE_RULES: Final[dict[str, Rule]] = {
    "$ref": _ref,
    "$dynamicRef": _dynamic("$dynamicRef"),
    "$recursiveRef": _dynamic("$recursiveRef"),
    "type": _type,
    "enum": _enum,
    "const": _const,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "multipleOf": _multiple_of,
    "minimum": _limit("minimum", "is less than", lambda n, limit: n >= limit, None),
    "maximum": _limit("maximum", "is greater than", lambda n, limit: n <= limit, None),
    "exclusiveMinimum": _limit("exclusiveMinimum", "is not greater than", lambda n, limit: n > limit, None),
    "exclusiveMaximum": _limit("exclusiveMaximum", "is not less than", lambda n, limit: n < limit, None),
    "minLength": _limit("minLength", "is shorter than", lambda n, limit: n >= limit, str),
    "maxLength": _limit("maxLength", "is longer than", lambda n, limit: n <= limit, str),
    "minItems": _limit("minItems", "is shorter than", lambda n, limit: n >= limit, ARRAY),
    "maxItems": _limit("maxItems", "is longer than", lambda n, limit: n <= limit, ARRAY),
    "minProperties": _limit("minProperties", "has less than", lambda n, limit: n >= limit, (dict, Mapping)),
    "maxProperties": _limit("maxProperties", "has more than", lambda n, limit: n <= limit, (dict, Mapping)),
}
