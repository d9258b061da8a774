"""Checks JSON values against JSON schemas that a client wrote. Pure, bounded, and nothing is fetched.

Each step spends a budget: an element visited, two values compared, a reference followed. When the budget is used up,
the check raises `Unreadable` instead of running on. Regular expressions (`pattern`, `patternProperties`) are not
checked: Python's engine can run forever and cannot be stopped. A broken schema (an unknown $ref, endless recursion, a
keyword of the wrong type) raises `Unreadable`, too. Supports drafts 4 to 2020-12; formats and other annotations are
ignored. One function for each keyword, in a table at the end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ..core.request import ToolSpec
from .run import (
    ARRAY,
    NUMBER,
    Budget,
    Document,
    Place,
    Rule,
    Rules,
    SchemaVisit,
    Seen,
    Unreadable,
    Validation,
    array,
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


def _type(on: SchemaVisit) -> bool:
    wanted = on.schema["type"]
    names = [wanted] if isinstance(wanted, str) else array(on.schema, "type")
    on.run.budget.spend(len(names))
    kind = type_of(on.value)
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise Unreadable(f"{shown(name)} is not a type")
        if name == kind or (name == "number" and kind == "integer"):
            return True
    return on.fail(f"{shown(on.value)} is not of type {', '.join(map(repr, names[:8]))}")


def _enum(on: SchemaVisit) -> bool:
    return any(on.run.same(on.value, one) for one in array(on.schema, "enum")) or on.fail(
        f"{shown(on.value)} is not one of the {len(on.schema['enum'])} allowed values"
    )


def _const(on: SchemaVisit) -> bool:
    wanted = on.schema["const"]
    return on.run.same(on.value, wanted) or on.fail(f"{shown(wanted)} was expected")


def _ref(on: SchemaVisit) -> bool:
    return on.run.follow(on.schema["$ref"], on.value, on.at, on.found, on.seen)


def _dynamic(word: str) -> Rule:
    def rule(on: SchemaVisit) -> bool:
        if on.run.document.several:
            raise Unreadable(f"`{word}` across documents is not followed")
        return on.run.follow(on.schema[word], on.value, on.at, on.found, on.seen)

    return rule


def _all_of(on: SchemaVisit) -> bool:
    return on.all(map(on.applies, array(on.schema, "allOf")))


def _branches(on: SchemaVisit, word: str) -> int:
    """How many of the schemas match. Without `seen`, `anyOf` can stop after one and `oneOf` after two."""
    fitting, enough = 0, 1 if word == "anyOf" else 2
    for one in array(on.schema, word):
        fitting += on.fits(one)
        if on.seen is None and fitting == enough:
            break
    return fitting


def _any_of(on: SchemaVisit) -> bool:
    return bool(_branches(on, "anyOf")) or on.fail(f"{shown(on.value)} is not valid under any of the given schemas")


def _one_of(on: SchemaVisit) -> bool:
    fitting = _branches(on, "oneOf")
    if fitting == 1:
        return True
    return on.fail(f"{shown(on.value)} is valid under {'several' if fitting else 'none'} of the given schemas")


def _not(on: SchemaVisit) -> bool:
    return not on.fits(on.schema["not"], seen=False) or on.fail(f"{shown(on.value)} is not allowed")


def _if(on: SchemaVisit) -> bool:
    then = "then" if on.fits(on.schema["if"]) else "else"
    return then not in on.schema or on.applies(on.schema[then])


# ---- numbers and texts


def _limit(
    word: str, says: str, passes: Callable[[Any, float], bool], sized: type[Sized] | tuple[type[Sized], ...] | None
) -> Rule:
    """A rule that compares a number with its operand; with `sized`, it compares the length of such a value."""

    def rule(on: SchemaVisit) -> bool:
        if on.run.document.draft == 4 and word.startswith("exclusive"):
            return _draft_4(on, word)
        limit = number(on.schema, word)
        if sized is None:
            if not _is_number(on.value):
                return True
            measured: Any = on.value
        elif isinstance(on.value, sized):
            measured = len(on.value)
        else:
            return True
        return passes(measured, limit) or on.fail(f"{shown(on.value)} {says} {shown(limit)}")

    return rule


def _draft_4(on: SchemaVisit, word: str) -> bool:
    """In draft 4 the keyword is a flag next to `minimum` or `maximum`."""
    beside = "minimum" if word == "exclusiveMinimum" else "maximum"
    if on.schema[word] is not True or beside not in on.schema or not _is_number(on.value):
        return True
    return on.value != number(on.schema, beside) or on.fail(f"{shown(on.value)} is the excluded limit itself")


def _is_number(value: object) -> bool:
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def _multiple_of(on: SchemaVisit) -> bool:
    value, step = on.value, number(on.schema, "multipleOf")
    if step <= 0:
        raise Unreadable("`multipleOf` is not positive")
    if not _is_number(value):
        return True
    if isinstance(value, int) and isinstance(step, int):
        on.run.budget.spend(value.bit_length() >> 8)
        fits = value % step == 0
    else:  # compares the written decimals: 4.02 is a multiple of 0.01
        from fractions import Fraction  # few schemas ask for it

        on.run.budget.spend(100)
        fits = (Fraction(repr(value)) / Fraction(repr(step))).denominator == 1
    return fits or on.fail(f"{shown(value)} is not a multiple of {shown(step)}")


# ---- arrays


def _elements(on: SchemaVisit, schema: Any, start: int = 0) -> bool:
    """Whether the elements from `start` on match one schema."""
    return on.children((index, schema) for index in range(start, len(on.value)))


def _items(on: SchemaVisit) -> bool:
    if not isinstance(on.value, ARRAY):
        return True
    wanted, new = on.schema["items"], on.run.document.draft >= 2020
    if isinstance(wanted, ARRAY):
        if new:
            raise Unreadable("`items` is not a schema")
        return on.children(enumerate(wanted[: len(on.value)]))
    return _elements(on, wanted, len(array(on.schema, "prefixItems")) if new and "prefixItems" in on.schema else 0)


def _prefix_items(on: SchemaVisit) -> bool:
    if not isinstance(on.value, ARRAY) or on.run.document.draft < 2020:
        return True
    return on.children(enumerate(array(on.schema, "prefixItems")[: len(on.value)]))


def _additional_items(on: SchemaVisit) -> bool:
    first = on.schema.get("items")
    if not isinstance(on.value, ARRAY) or not isinstance(first, ARRAY) or on.run.document.draft >= 2020:
        return True
    return _elements(on, on.schema["additionalItems"], len(first))


def _contains(on: SchemaVisit) -> bool:
    if not isinstance(on.value, ARRAY):
        return True
    counts = on.run.document.draft >= 2019
    least = number(on.schema, "minContains") if counts and "minContains" in on.schema else 1
    most = number(on.schema, "maxContains") if counts and "maxContains" in on.schema else None
    fitting = 0
    for index, element in enumerate(on.value):
        inner = Seen() if on.seen is not None else None
        if on.run.apply(on.schema["contains"], element, (on.at, index), None, inner):
            fitting += 1
            if on.seen is not None and on.run.document.draft >= 2020:
                on.seen.keys.add(index)
            elif on.seen is None and most is None and fitting >= least:
                break
    if fitting < least:
        return on.fail(f"{shown(on.value)} does not contain enough elements that match")
    return most is None or fitting <= most or on.fail(f"{shown(on.value)} contains too many elements that match")


def _unique_items(on: SchemaVisit) -> bool:
    if on.schema["uniqueItems"] is not True or not isinstance(on.value, ARRAY):
        return True
    spellings: set[str] = set()
    for element in on.value:
        spelled = on.run.spelled(element)
        if spelled in spellings:
            return on.fail(f"{shown(on.value)} has elements that are not unique")
        spellings.add(spelled)
    return True


# ---- objects


def _properties(on: SchemaVisit) -> bool:
    wanted, value = table_of(on.schema, "properties"), on.value
    if not isinstance(value, Mapping):
        return True
    on.run.budget.spend(min(len(wanted), len(value)))
    fewer, more = (value, wanted) if len(value) < len(wanted) else (wanted, value)
    return on.children([(name, wanted[name]) for name in fewer if name in more])


def _others(on: SchemaVisit, schema: Any, names: list[str]) -> bool:
    """Whether the properties that no other keyword covers match one schema."""
    if schema is False and names:
        listed = ", ".join(map(shown, names[:8]))
        return on.fail(f"unexpected properties: {listed}{' and more' if len(names) > 8 else ''}")
    return on.children((name, schema) for name in names)


def _additional(on: SchemaVisit) -> bool:
    others = on.schema["additionalProperties"]
    if not isinstance(others, bool | Mapping):
        raise Unreadable("`additionalProperties` is not a schema")
    if on.run.lenient or not isinstance(on.value, Mapping):
        return True
    properties = table_of(on.schema, "properties") if "properties" in on.schema else {}
    on.run.budget.spend(len(on.value))
    return _others(on, others, [name for name in on.value if name not in properties])


def _property_names(on: SchemaVisit) -> bool:
    if not isinstance(on.value, Mapping):
        return True
    names = on.schema["propertyNames"]
    return on.all(on.run.apply(names, name, on.at, on.found, None) for name in on.value)


def _required(on: SchemaVisit) -> bool:
    return _all_there(on, array(on.schema, "required"))


def _all_there(on: SchemaVisit, names: Sequence[Any]) -> bool:
    if not isinstance(on.value, Mapping):
        return True
    on.run.budget.spend(len(names))
    return on.all(_is_there(on, name) for name in names)


def _is_there(on: SchemaVisit, name: object) -> bool:
    if not isinstance(name, str):
        raise Unreadable("a required property is not a string")
    return name in on.value or on.fail(f"{shown(name)} is a required property")


def _dependent(word: str) -> Rule:
    """A rule that maps a property to its requirement: other properties, or a schema for the whole object."""

    def rule(on: SchemaVisit) -> bool:
        wanted = table_of(on.schema, word)
        if not isinstance(on.value, Mapping) or (word == "dependencies" and on.run.document.draft > 7):
            return True
        on.run.budget.spend(len(wanted))
        asked = (then for name, then in wanted.items() if name in on.value)
        return on.all(_all_there(on, then) if isinstance(then, ARRAY) else on.applies(then) for then in asked)

    return rule


# ---- elements and properties that no other keyword covers


def _unevaluated_items(on: SchemaVisit) -> bool:
    if not isinstance(on.value, ARRAY) or on.seen is None:
        return True
    on.run.budget.spend(len(on.value))
    schema, seen = on.schema["unevaluatedItems"], on.seen.keys
    return on.children([(index, schema) for index in range(len(on.value)) if index not in seen])


def _unevaluated(on: SchemaVisit) -> bool:
    if on.run.lenient or not isinstance(on.value, Mapping) or on.seen is None:
        return True
    on.run.budget.spend(len(on.value))
    left = [name for name in on.value if name not in on.seen.keys]
    return _others(on, on.schema["unevaluatedProperties"], left)


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
