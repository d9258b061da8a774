"""Foreign schemas: checked where they can be, never at any price."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from caretway.core.request import ToolSpec
from caretway.schemas.check import (
    CORRECTIONS,
    MAX_CHECKED_CALLS,
    MAX_CHECKED_CHARS,
    ArgumentCheck,
    SchemaChecker,
    misfit,
)
from caretway.schemas.run import Unreadable

LOOKUP = ToolSpec(
    "lookup",
    schema={
        "type": "object",
        "properties": {"key": {"type": "string"}, "depth": {"type": "integer"}},
        "required": ["key"],
        "additionalProperties": False,
    },
)
ANY = ToolSpec("any")
BROKEN = ToolSpec("broken", schema={"$ref": "#/nowhere"})

CASES = [
    (LOOKUP, '{"key": "a"}', ""),
    (LOOKUP, '{"key": "a", "depth": 2}', ""),
    (LOOKUP, "{}", "key"),
    (LOOKUP, "", "key"),
    (LOOKUP, '{"key": 1}', "$.key"),
    (LOOKUP, '{"key": "a", "more": 1}', "more"),
    (LOOKUP, "[1]", "not an object"),
    (LOOKUP, "{", "not JSON"),
    (ANY, '{"whatever": 1}', ""),
    (ANY, "[]", "not an object"),
    (BROKEN, '{"a": 1}', ""),
    (LOOKUP, '{"key": "' + "a" * MAX_CHECKED_CHARS + '", "more": 1}', ""),
]


@pytest.mark.seed("F24")
@pytest.mark.parametrize(("tool", "arguments", "says"), CASES, ids=[f"{tool.name} {a[:20]}" for tool, a, _ in CASES])
def test_what_fits(tool: ToolSpec, arguments: str, says: str) -> None:
    problem = misfit(tool, arguments)
    assert says in problem if says else problem == ""


def test_the_model_is_told_once() -> None:
    check = ArgumentCheck([LOOKUP], CORRECTIONS)
    assert check.correction("lookup", '{"key": "a"}') == ""
    assert "do not fit" in check.correction("lookup", "{}")
    assert check.correction("lookup", "{}") == "", "the second time it goes out"
    assert ArgumentCheck([LOOKUP]).correction("lookup", "{}") == ""


def test_a_tool_that_nobody_offered_is_not_judged() -> None:
    assert ArgumentCheck([LOOKUP]).problem("other", "{") == ""


def test_the_work_of_one_response_is_bounded() -> None:
    check = ArgumentCheck([LOOKUP])
    problems = [check.problem("lookup", "{}") for _ in range(MAX_CHECKED_CALLS + 5)]
    assert [bool(problem) for problem in problems] == [True] * MAX_CHECKED_CALLS + [False] * 5


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_problems_say_where() -> None:
    checker = SchemaChecker(NUMBER)
    assert checker.first({"n": 1}) is None
    problem = checker.first({"n": "x"})
    assert problem is not None
    assert (problem.path, problem.json_path) == (("n",), "$.n")
    assert len(list(checker.problems({"m": 1}))) == 2


def test_regular_expressions_are_not_run() -> None:
    hostile = {"type": "string", "pattern": "^(a+)+$"}
    assert SchemaChecker(hostile).first("a" * 64 + "!") is None
    table = {"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False}
    assert SchemaChecker(table).first({"a" * 64 + "!": 1}) is None


def test_a_reference_does_not_lead_around_that() -> None:
    hidden = {"$ref": "#/x", "x": {"pattern": {}, "patternProperties": {"^(a+)+$": {"type": "string"}}}}
    assert SchemaChecker(hidden).first({"a" * 64 + "!": 1}) is None
    assert SchemaChecker(hidden).patterns
    unevaluated = {"$ref": "#/x", "x": {"patternProperties": {"^(a+)+$": {}}}, "unevaluatedProperties": False}
    assert SchemaChecker(unevaluated).first({"a" * 64 + "!": 1}) is None


def test_data_that_looks_like_a_keyword_is_data() -> None:
    assert SchemaChecker({"enum": [{"pattern": "a"}]}).first({"pattern": "a"}) is None


def test_rules_that_turn_on_a_pattern_are_known() -> None:
    assert SchemaChecker({"not": {"pattern": "^a"}}).inverts
    assert not SchemaChecker(NUMBER).patterns


def test_a_property_may_be_called_pattern() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}
    assert SchemaChecker(schema).first({"pattern": "x"}) is None
    assert SchemaChecker(schema).first({"pattern": 1}) is not None


def test_references_that_double_at_every_level_are_given_up() -> None:
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    schema = {"$ref": "#/$defs/l0", "$defs": levels | {"l40": {"type": "integer"}}}
    with pytest.raises(Unreadable, match="too many steps"):
        SchemaChecker(schema).first(1)


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#/nowhere"}, {"$ref": "https://example.com/schema"}, {"type": 7}, {"$ref": "#"}],
    ids=["no such place", "another host", "no schema", "endless"],
)
def test_what_cannot_be_used_is_unreadable(schema: dict[str, object]) -> None:
    with pytest.raises(Unreadable):
        SchemaChecker(schema).first({"a": 1})


# ---- every step is counted


def _doubled(word: str) -> dict[str, object]:
    levels = {f"l{n}": {word: [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    return {"$ref": "#/$defs/l0", "$defs": levels | {"l40": {"type": "integer"}}}


def _deep(levels: int, inside: object) -> object:
    for _ in range(levels):
        inside = [inside, "x" * 10_000]
    return inside


HOSTILE: dict[str, Callable[[], tuple[dict[str, object], object]]] = {  # made when they are needed: they are large
    "unique objects": lambda: ({"uniqueItems": True}, [{"a": n} for n in range(100_000)]),
    "numbers with one hash": lambda: ({"uniqueItems": True}, [n * (2**61 - 1) for n in range(100_000)]),
    "unique and deep": lambda: ({"uniqueItems": True}, [_deep(80, n) for n in range(50)]),
    "references that double": lambda: (_doubled("allOf"), 1),
    "references that double, for a verdict": lambda: (_doubled("anyOf"), "x"),
    "a large enum for each of many": lambda: ({"items": {"anyOf": [{"enum": list(range(3000))}, {}]}}, [-1] * 3000),
    "long texts alike": lambda: (
        {"items": {"not": {"enum": ["x" * 500 + str(n) for n in range(999)]}}},
        ["x" * 503] * 3000,
    ),
    "many schemas, a large value": lambda: ({"anyOf": [{"type": "string"}] * 9000}, list(range(100_000))),
    "what was seen": lambda: (
        {"anyOf": [{"properties": {str(n): {} for n in range(900)}}] * 10, "unevaluatedProperties": False},
        {str(n): 1 for n in range(900)},
    ),
    "places without end": lambda: ({"$defs": {str(n): {"$id": f"http://a/{n}"} for n in range(9000)}}, 1),
    "tuples for each of many": lambda: ({"items": {"prefixItems": [{}] * 9000}}, [[1, 2, 3]] * 30_000),
    "required by many": lambda: ({"items": {"required": [str(n) for n in range(5000)]}}, [{}] * 5000),
    "long names": lambda: ({"$ref": "#/" + "a/" * 100_000}, 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_takes_long(name: str) -> None:
    schema, value = HOSTILE[name]()
    took = []
    for _ in range(5):  # the least of them: a neighbour on the same core costs us time that is not ours
        checker = SchemaChecker(schema)
        began = time.thread_time()
        with suppress(Unreadable):
            checker.problems(value)
        took.append(time.thread_time() - began)
    assert min(took) < 0.1


def test_the_budget_is_the_checkers_and_not_the_values() -> None:
    checker = SchemaChecker({"items": {"type": "integer"}}, steps=100)
    for _ in range(5):
        assert checker.first([1, 2, 3]) is None
    with pytest.raises(Unreadable, match="too many steps"):
        checker.first([1] * 10)


def test_a_message_shows_little_of_a_large_value() -> None:
    for value in ("x" * 10_000, ["x" * 10_000] * 10, {"x" * 10_000: 1}, 10**4000):
        problem = SchemaChecker({"type": "null"}).first(value)
        assert problem is not None
        assert len(problem.message) < 120


# ---- the same verdicts as a foreign judge

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([0.5, 1.0, 2.0])
    | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SMALL = st.integers(0, 3)
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minimum": SMALL,
        "exclusiveMaximum": SMALL,
        "multipleOf": st.integers(1, 3),
        "minLength": SMALL,
        "maxLength": SMALL,
        "minItems": SMALL,
        "maxItems": SMALL,
        "uniqueItems": st.booleans(),
        "minProperties": SMALL,
        "maxProperties": SMALL,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
    },
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    any_schema = inner | st.booleans()
    several = st.lists(any_schema, min_size=1, max_size=3)
    by_name = st.dictionaries(NAMES, any_schema, max_size=3)
    grown = st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": any_schema,
            "if": any_schema,
            "then": any_schema,
            "else": any_schema,
            "items": any_schema,
            "prefixItems": several,
            "contains": any_schema,
            "minContains": SMALL,
            "maxContains": SMALL,
            "properties": by_name,
            "additionalProperties": any_schema,
            "propertyNames": any_schema,
            "dependentSchemas": by_name,
            "unevaluatedProperties": any_schema,
            "unevaluatedItems": any_schema,
            "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
        },
    )
    return grown | inner


SCHEMAS = st.builds(
    lambda schema, a, b: {**schema, "$defs": {"a": a, "b": b}},
    st.recursive(LEAVES, _larger, max_leaves=6),
    LEAVES,
    LEAVES,
)


@given(schema=SCHEMAS, value=VALUES)
def test_like_a_foreign_judge(schema: dict[str, Any], value: object) -> None:
    judge = jsonschema.Draft202012Validator(schema)
    try:
        mine = SchemaChecker(schema).first(value) is None
    except Unreadable:
        assume(False)
    assert mine == judge.is_valid(value)
    assert mine == (not SchemaChecker(schema).problems(value))


DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
OLDER: list[tuple[dict[str, object], object, bool]] = [
    ({"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": True}, 1, False),
    ({"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": False}, 1, True),
    ({"$schema": DRAFT_7, "items": [{"type": "null"}]}, [1], False),
    ({"$schema": DRAFT_7, "items": [{}], "additionalItems": False}, [1, 2], False),
    ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1}, False),
    ({"$schema": DRAFT_7, "dependencies": {"a": {"required": ["b"]}}}, {"a": 1}, False),
    (
        {"$schema": DRAFT_7, "$ref": "#/definitions/n", "type": "string",
         "definitions": {"n": {"type": "integer"}}},
        1,
        True,
    ),
    ({"$id": "http://a/root", "$ref": "other", "$defs": {"o": {"$id": "other", "type": "null"}}}, 1, False),
    ({"$ref": "#there", "$defs": {"o": {"$anchor": "there", "type": "null"}}}, None, True),
    ({"$defs": {"a/b": {"type": "null"}}, "$ref": "#/$defs/a~1b"}, 1, False),
    ({"properties": {"n": {"$dynamicRef": "#node"}}, "$dynamicAnchor": "node", "type": "object"}, {"n": 1}, False),
    ({"multipleOf": 0.01}, 4.02, True),
    ({"multipleOf": 0.01}, 4.025, False),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "fits"), OLDER)
def test_older_drafts_and_odd_places(schema: dict[str, object], value: object, fits: bool) -> None:
    assert (SchemaChecker(schema).first(value) is None) is fits
