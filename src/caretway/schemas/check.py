"""Checks JSON values against JSON schemas that a client wrote. Pure, bounded, and nothing is fetched.

Each step spends a budget: an element visited, two values compared, a reference followed. When the budget is used up,
the check raises `Unreadable` instead of running on. Regular expressions (`pattern`, `patternProperties`) are not
checked: Python's engine can run forever and cannot be stopped. A broken schema (an unknown $ref, endless recursion, a
keyword of the wrong type) raises `Unreadable`, too. Supports drafts 4 to 2020-12; formats and other annotations are
ignored. One function for each keyword, in a table at the end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ..core.request import ToolSpec
from .run import (
    ARRAY,
    NUMBER,
    Budget,
    Document,
    Found,
    Place,
    Rule,
    Rules,
    Seen,
    Unreadable,
    Validation,
    array,
    fail,
    number,
    shown,
    table_of,
    type_of,
)

MAX_STEPS: Final = 30_000
"""The budget of one checker for all its values; a step takes one or two microseconds."""


class Problem(Struct, frozen=True):
    path: tuple[str | int, ...]
    json_path: str
    message: str


class SchemaChecker:
    """One schema and one budget, for any number of values."""

    def __init__(self, schema: Mapping[str, object], steps: int = MAX_STEPS) -> None:
        self._schema = schema
        self._budget = Budget(steps)
        self._read: Document | None = None

    @property
    def patterns(self) -> bool:
        """Whether the schema has regular expressions, which are not checked."""
        return self._document().has("pattern", "patternProperties")

    @property
    def inverts(self) -> bool:
        """Whether leaving out a rule may turn a match into a mismatch."""
        return self._document().has("oneOf", "not", "if")

    def problems(self, value: object) -> list[Problem]:
        return [_problem(place, message) for place, message in self._run(value, first=False)]

    def first(self, value: object) -> Problem | None:
        return next((_problem(place, message) for place, message in self._run(value, first=True)), None)

    def _document(self) -> Document:
        if self._read is None:
            self._read = Document(self._schema, self._budget)
        return self._read

    def _run(self, value: object, *, first: bool) -> Iterator[tuple[Place | None, str]]:
        run = Validation(self._document(), self._budget, _RULES, first=first)
        try:
            run.apply(self._schema, value, None, run.found, None)
        except RecursionError as failure:
            raise Unreadable("the schema is nested too deeply") from failure
        return iter(run.found)


def _problem(place: Place | None, message: str) -> Problem:
    path: list[Any] = []
    while place is not None:
        place, key = place
        path.append(key)
    path.reverse()
    spelled = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return Problem(tuple(path), f"${spelled}", message)


# ---- any value

_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


def _type(run: Validation, schema: Any, value: Any, at: Place | None, found: Found, seen: Seen | None) -> bool:
    wanted = schema["type"]
    names = [wanted] if isinstance(wanted, str) else array(schema, "type")
    run.budget.spend(len(names))
    kind = type_of(value)
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise Unreadable(f"{shown(name)} is not a type")
        if name == kind or (name == "number" and kind == "integer"):
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
    """A rule that compares a number with its operand; with `sized`, it compares the length of such a value."""

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
    """In draft 4 the keyword is a flag next to `minimum` or `maximum`."""
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
    else:  # compares the written decimals: 4.02 is a multiple of 0.01
        from fractions import Fraction  # few schemas ask for it

        run.budget.spend(100)
        fits = (Fraction(repr(value)) / Fraction(repr(step))).denominator == 1
    return fits or fail(found, at, f"{shown(value)} is not a multiple of {shown(step)}")


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
    """A rule that maps a property to its requirement: other properties, or a schema for the whole object."""

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


# ---- elements and properties that no other keyword covers


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


_RULES: Final = Rules(
    {
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
    },
    {"unevaluatedItems": _unevaluated_items, "unevaluatedProperties": _unevaluated},
)


# ---- Checks the arguments of a tool call against the tool's JSON Schema and asks the model to correct them, once in a
# turn. Arguments that are too expensive to check pass. Pure.
#
# The model corrects a call only before the client has seen it. Otherwise `sessions/response.py` passes the call on with
# a note or refuses it, as the setting `tool_arguments` says.

ArgumentRule = Literal["note", "refuse"]

CORRECTIONS: Final = 1
"""Corrections per turn. A second correction does not help the model, and each costs a step."""
MAX_ARGUMENT_STEPS: Final = 3_000
"""The budget of one check: some milliseconds. A larger schema is not checked."""
MAX_CHECKED_CHARS: Final = 128 * 1024
MAX_CHECKED_CALLS: Final = 16
"""Checked calls per response."""
_SAID: Final = 200


def misfit(tool: ToolSpec, arguments: str) -> str:
    """The problem of the arguments; empty if they fit or cannot be checked."""
    if len(arguments) > MAX_CHECKED_CHARS:
        return ""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return "they are not JSON"
    if not isinstance(value, dict):
        return "they are not an object"
    if not tool.schema:
        return ""
    try:
        problem = SchemaChecker(tool.schema, MAX_ARGUMENT_STEPS).first(value)
    except Unreadable:
        return ""
    return "" if problem is None else f"{problem.json_path}: {problem.message}"[:_SAID]


class ArgumentCheck:
    """Checks the calls of one response, or of one turn that can correct its model."""

    __slots__ = ("_checked", "_corrections", "_found", "_specs")

    def __init__(self, tools: Sequence[ToolSpec], corrections: int = 0) -> None:
        self._specs = tools
        self._corrections = corrections
        self._checked = 0
        self._found: dict[str, ToolSpec] | None = None

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The tools by name, built on first use: most turns need none."""
        if self._found is None:
            self._found = {tool.name: tool for tool in self._specs}
        return self._found

    def problem(self, name: str, arguments: str) -> str:
        tool = self.tools.get(name)
        self._checked += 1
        return misfit(tool, arguments) if tool is not None and self._checked <= MAX_CHECKED_CALLS else ""

    def correction(self, name: str, arguments: str) -> str:
        """The correction for the model; empty if the call is to be passed on."""
        if not self._corrections or not (problem := self.problem(name, arguments)):
            return ""
        self._corrections -= 1
        return f"The call was not made: its arguments do not fit the tool's schema ({problem}). Correct them."
