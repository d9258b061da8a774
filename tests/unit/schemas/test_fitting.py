"""Schemas fitted to a model's family: the simulator's rules take them, and they take what the client's own take."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from caretway.core.request import ToolSpec
from caretway.schemas import fitting
from caretway.schemas.fitting import (
    NO_RULES,
    RULES,
    STRICTEST,
    fit_schema,
    fit_tools,
    plain_enum,
    plain_tuple,
    rules_for,
)
from caretway.schemas.run import Budget
from caretway_sim import admission, catalogue
from unit.backends.builtin_tools.client_tools import CLIENTS, MADE_LISTS, tools_of

Schema = dict[str, Any]
TEXT, WHOLE, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def args(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties}


def takes(schema: Any, value: Any) -> bool:
    of = validator_for(schema, default=Draft202012Validator)
    return bool(of(schema).is_valid(value))


ANY = "any maker"
EVERY = {**RULES, ANY: STRICTEST}


def refused(schema: Mapping[str, Any], family: Any) -> str:
    return admission.refused(schema, family, strict=family == ANY)


def test_a_model_belongs_to_a_family() -> None:
    for model, family in (
        *((base.id, base.family) for base in catalogue.BASES),
        ("claude-fable-5-thinking-high", "fable"),
        ("cursor-grok-4.5-high-fast", "grok"),
        ("GEMINI-3-flash", "gemini"),
        ("affable-1", ""),
    ):
        assert rules_for(model) is RULES.get(family, NO_RULES), model


PET = {"oneOf": [args(kind={"const": "cat"}, lives=WHOLE), args(kind={"const": "dog"}, name=TEXT)]}
CASES: list[tuple[str, str, Schema, Schema, str]] = [
    ("optional", "fable", {"anyOf": [TEXT, NULL], "default": None}, {"type": ["string", "null"], "default": None}, "u"),
    (
        "optional enum",
        "fable",
        {"anyOf": [{"enum": ["a", "b"]}, NULL]},
        {"enum": ["a", "b", None], "type": ["string", "null"]},
        "u",
    ),
    ("two types", "fable", {"anyOf": [WHOLE, TEXT]}, {"type": ["integer", "string"]}, "u"),
    ("literals", "fable", {"anyOf": [{"const": "a"}, {"const": "b"}]}, {"type": "string", "enum": ["a", "b"]}, "u"),
    ("a whole number is a number", "fable", {"anyOf": [WHOLE, {"type": "number"}]}, {"type": "number"}, "u"),
    ("the widest bounds", "fable", {"oneOf": [WHOLE | {"minimum": 3}, WHOLE | {"minimum": 1}]}, {"minimum": 1}, "u"),
    (
        "alternatives with a name",
        "fable",
        PET,
        {
            "type": "object",
            "properties": {"kind": {"type": "string", "enum": ["cat", "dog"]}, "lives": WHOLE, "name": TEXT},
            "description": "One of: {kind?: cat, lives?}; {kind?: dog, name?}.",
        },
        "u",
    ),
    (
        "all of",
        "fable",
        {"allOf": [args(a=TEXT) | {"required": ["a"]}, args(b=WHOLE) | {"required": ["b"]}]},
        args(a=TEXT, b=WHOLE) | {"required": ["a", "b"]},
        "u",
    ),
    (
        "one of two arguments",
        "fable",
        args(a=TEXT, b=TEXT) | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        args(a=TEXT, b=TEXT) | {"description": "One of: {a}; {b}."},
        "u",
    ),
    ("anything is one of them", "fable", {"anyOf": [TEXT, {}]}, {}, "u"),
    ("nothing is one of them", "fable", {"anyOf": [TEXT, False]}, TEXT, "u"),
    ("not, without unions", "fable", {"not": {"type": "null"}}, {"not": {"type": "null"}}, ""),
    ("not, with unions", "fable", {"type": "string", "not": {"anyOf": [{"const": "a"}, {"const": "b"}]}}, TEXT, "u"),
    ("if, with unions", "fable", {"if": {"anyOf": [TEXT, NULL]}, "then": TEXT}, {}, "u"),
    ("an enum of numbers stays", "fable", {"enum": [1, 2]}, {"enum": [1, 2]}, ""),
    ("a union stays", "grok", {"anyOf": [TEXT, NULL]}, {"anyOf": [TEXT, NULL]}, ""),
    ("a union stays", "gpt", {"anyOf": [TEXT, NULL]}, {"anyOf": [TEXT, NULL]}, ""),
    ("an enum of texts stays", "grok", {"enum": ["a"]}, {"enum": ["a"]}, ""),
    (
        "an enum of numbers",
        "gemini",
        {"type": "integer", "enum": [1, 2, 4], "description": "How many."},
        {"type": "integer", "minimum": 1, "maximum": 4, "description": "How many. One of: 1, 2, 4."},
        "e",
    ),
    ("parts of numbers", "kimi", {"enum": [0.5, 2]}, {"type": "number", "minimum": 0.5, "maximum": 2}, "e"),
    ("an enum with null", "grok", {"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}, "e"),
    ("a number", "gemini", {"const": 3}, {"type": "integer", "minimum": 3, "maximum": 3}, "e"),
    ("true", "gemini", {"const": True}, {"type": "boolean", "description": "Always true."}, "e"),
    (
        "one of several numbers",
        "gemini",
        {"oneOf": [{"const": 1}, {"const": 2}]},
        {"anyOf": [{"minimum": 1, "maximum": 1}, {"minimum": 2, "maximum": 2}]},
        "e",
    ),
    (
        "a tuple",
        "kimi",
        {"type": "array", "prefixItems": [TEXT, WHOLE], "minItems": 2, "maxItems": 2},
        {"items": {"anyOf": [TEXT, WHOLE]}, "minItems": 2, "description": "In this order: string; integer."},
        "t",
    ),
    (
        "a tuple of drafts before 2020",
        "grok",
        {"type": "array", "items": [WHOLE, WHOLE], "additionalItems": False},
        {"items": WHOLE, "maxItems": 2},
        "t",
    ),
    ("a tuple stays", "fable", {"type": "array", "prefixItems": [TEXT]}, {"prefixItems": [TEXT]}, ""),
    ("words of nobody", "fable", {"type": "string", "x-hint": {"anyOf": [1]}}, TEXT, "w"),
    ("names are no words", "fable", args(anyOf=TEXT, enum=TEXT), args(anyOf=TEXT, enum=TEXT), ""),
    ("values are no words", "fable", {"default": {"anyOf": [1]}}, {"default": {"anyOf": [1]}}, ""),
]
CHANGES = {"u": "unions", "e": "enums", "t": "tuples", "w": "annotations"}


def within(wanted: Any, found: Any) -> bool:
    """Everything that is wanted is found."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and within(of, found[key]) for key, of in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(within, wanted, found))
    return bool(wanted == found)


@pytest.mark.parametrize(("name", "family", "schema", "wanted", "changes"), CASES, ids=[row[0] for row in CASES])
def test_fitting(name: str, family: Any, schema: Schema, wanted: Schema, changes: str) -> None:
    def alone(inner: Schema) -> Schema:
        return args(x=inner)

    def listed(inner: Schema) -> Schema:
        return args(x={"type": "array", "items": inner})

    for outer in (alone, listed):
        fitted, changed = fit_schema(outer(schema), RULES.get(family, NO_RULES))
        assert within(outer(wanted), fitted), fitted
        assert refused(fitted, family) == ""
        assert set(changed) == {CHANGES[change] for change in changes}
        if not changes:
            assert fitted == outer(schema)


MIXED: list[tuple[str, Schema, Schema]] = [
    (
        "an optional enum",
        {"anyOf": [{"enum": ["a", "b"]}, NULL]},
        {"type": ["string", "null"], "description": "One of: a, b, null."},
    ),
    (
        "a tuple of two types",
        {"type": "array", "prefixItems": [TEXT, WHOLE], "minItems": 2, "maxItems": 2},
        {"items": {"type": ["string", "integer"]}, "description": "In this order: string; integer."},
    ),
    (
        "values of several kinds",
        {"enum": ["a", 1, 3, None]},
        {"type": ["string", "integer", "null"], "minimum": 1, "maximum": 3, "description": "One of: a, 1, 3, null."},
    ),
    ("texts", {"enum": ["a", "b"]}, {"enum": ["a", "b"]}),
]


@pytest.mark.parametrize(("schema", "wanted"), [row[1:] for row in MIXED], ids=[row[0] for row in MIXED])
def test_what_one_rule_brings_the_other_takes_away(schema: Schema, wanted: Schema) -> None:
    fitted, _ = fit_schema(args(x=schema), STRICTEST)
    assert within(args(x=wanted), fitted), fitted
    assert refused(fitted, ANY) == ""


TREE = {
    "$defs": {"Node": args(value=WHOLE, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})},
    **args(tree={"$ref": "#/$defs/Node", "description": "the tree"}),
}


@pytest.mark.parametrize("family", EVERY)
def test_references_are_resolved(family: str) -> None:
    fitted, changed = fit_schema(TREE, EVERY[family])
    assert "references" in changed
    again = {"type": "object", "description": "Again what stands around it."}
    assert within(
        args(tree=args(value=WHOLE, children={"type": "array", "items": again}) | {"description": "the tree"}), fitted
    )
    assert "$ref" not in str(fitted)
    assert "$defs" not in fitted


@pytest.mark.parametrize("reference", ["https://elsewhere/x", "#/nowhere", "#gone", 7, "#/properties/a/\u0000"])
def test_a_reference_to_nothing_is_anything(reference: object) -> None:
    fitted, changed = fit_schema(args(a={"$ref": reference}, b={"anyOf": [TEXT, NULL]}), RULES["fable"])
    assert fitted["properties"]["a"] == {}
    assert changed == ("references", "unions")


BOOK = {"title": "t", "size": 3, "level": 2, "pet": {"kind": "cat"}}
VALID: list[tuple[str, str, dict[str, Any]]] = [
    ("pydantic", "book", BOOK),
    ("pydantic", "book", BOOK | {"size": "L", "note": None, "color": None, "pet": {"kind": "dog", "name": "Rex"}}),
    ("pydantic", "book", BOOK | {"point": [1.5, 2], "pair": ["a", 1], "answer": 1, "labels": {"x": None, "y": 2}}),
    ("pydantic", "book", BOOK | {"answer": None, "tree": {"value": 1, "children": [{"value": 2, "children": []}]}}),
    ("pydantic", "strict_book", {"note": None, "level": None}),
    ("pydantic", "strict_book", {"note": "n", "level": 2}),
    ("zod", "plan", {"mode": "slow", "step": {"op": "add", "text": "x"}, "count": 4, "flag": True, "range": [1, 2]}),
    ("zod", "plan", {"mode": "fast", "step": {"op": "drop", "index": 0}, "both": {"a": "x", "b": 1}, "maybe": None}),
    ("zod", "plan", {"mode": "fast", "step": {"op": "drop", "index": 0}, "again": {"op": "add", "text": "y"}}),
    ("zod", "either_argument", {"pattern": "x"}),
    ("zod", "either_argument", {"file": "f", "pos": [1, "a", True]}),
    ("cline", "read_files", {"files": [{"path": "a", "start_line": None}]}),
    ("kilo", "read_file", {"files": [{"path": "a", "line_ranges": [[1, 2]]}]}),
]


@pytest.mark.parametrize(("client", "name", "value"), VALID)
def test_what_the_client_takes_can_be_said(client: str, name: str, value: Any) -> None:
    own = next(tool.schema for tool in tools_of(client) if tool.name == name)
    assert takes(own, value)
    for family, rules in EVERY.items():
        assert takes(fit_schema(own, rules)[0], value), family


@pytest.mark.parametrize("client", [*CLIENTS, *MADE_LISTS])
def test_the_tools_of_clients_are_taken(client: str) -> None:
    for family in (*EVERY, "gpt", "composer"):
        fitted = fit_tools(tools_of(client), EVERY.get(family, NO_RULES))
        for before, after in zip(tools_of(client), fitted.tools, strict=True):
            assert refused(after.schema, family) == ""
            validator_for(after.schema, default=Draft202012Validator).check_schema(dict(after.schema))
            assert (after.name, after.description) == (before.name, before.description)
            assert (after.schema == before.schema) == (f"{after.name} (" not in fitted.changes)


def test_nothing_is_done_for_other_families() -> None:
    tools = tools_of("pydantic")
    assert fit_tools(tools, NO_RULES).tools is tools


def doubling(depth: int) -> Schema:
    """Small, and endless when it is written out."""
    defs = {f"d{n}": args(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"}) for n in range(depth)}
    return args(x={"$ref": "#/$defs/d0"}, y=TEXT) | {"$defs": defs | {f"d{depth}": TEXT}, "required": ["y"]}


def nested(depth: int, word: str = "anyOf") -> Schema:
    schema: Schema = TEXT
    for _ in range(depth):
        schema = {word: [schema, args(a=schema)]}
    return args(x=schema)


HOSTILE: list[Callable[[], Schema]] = [  # made when they are needed: they are large
    lambda: doubling(40),
    lambda: nested(14),
    lambda: nested(14, "allOf"),
    lambda: args(x={"anyOf": [args(**{f"p{n}": TEXT}) for n in range(8_000)]}),
    lambda: args(x={"anyOf": [{"enum": list(range(30_000))}, {"enum": list(range(30_000, 60_000))}]}),
    lambda: args(**{f"p{n}": {"enum": [n]} for n in range(30_000)}),
]


@pytest.mark.parametrize("made", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("family", ["fable", "gemini", ANY])
def test_what_takes_too_long_becomes_a_list_of_names(made: Callable[[], Schema], family: Any) -> None:
    schema = made()
    budget = Budget(fitting.MAX_STEPS)
    fitted, changed = fit_schema(schema, EVERY[family], budget)
    assert refused(fitted, family) == ""
    assert changed
    if budget.left < 0:
        assert changed == ("arguments only",)
        assert fitted["type"] == "object"
        assert list(fitted["properties"]) == list(schema["properties"])[:200]


def test_deep_schemas_end(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Schema = {"anyOf": [TEXT, NULL]}
    for _ in range(fitting.MAX_DEPTH * 2):
        deep = args(x=deep)
    for family in ("fable", ANY):
        fitted, changed = fit_schema(deep, EVERY[family])
        assert "depth" in changed
        assert refused(fitted, family) == ""
    monkeypatch.setattr(fitting, "MAX_DEPTH", sys.getrecursionlimit())
    assert refused(fit_schema(deep, RULES["fable"])[0], "fable") == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": 7, "anyOf": [TEXT]},
        {"$schema": "http://json-schema.org/draft-03/schema#", "anyOf": [TEXT]},
        {"anyOf": 7},
        {"anyOf": [7]},
        {"anyOf": []},
        {"properties": {"a": 7}},
        {"items": 7, "allOf": {}},
        {"type": 7, "anyOf": [{"type": []}, {"required": 7}]},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_broken_schemas_are_made_harmless(schema: Schema) -> None:
    for family in ("fable", "gemini", ANY):
        assert refused(fit_schema(schema, EVERY[family])[0], family) == ""


def test_the_budget_is_for_the_whole_list() -> None:
    """Hostile tools take their own share; the list has an end, and what comes after is still offered."""
    tools = [ToolSpec(f"t{n}", "", doubling(40)) for n in range(6)]
    fitted = fit_tools([*tools, ToolSpec("last", "", args(a={"anyOf": [TEXT, NULL]}))], RULES["fable"])
    assert [tool.schema["type"] for tool in fitted.tools] == ["object"] * 7
    assert fitted.tools[-1].schema == args(a={})
    assert "last (arguments only)" in fitted.changes


def test_what_is_told_has_a_limit() -> None:
    tools = [ToolSpec(f"tool_{n}" * 20, "", args(a={"anyOf": [TEXT, NULL]})) for n in range(300)]
    told = fit_tools(tools, RULES["fable"]).changes
    assert len(told) <= fitting.MAX_TOLD
    assert told.startswith("fitted for fable: ")


# ---------------------------------------------------------------------------------------------- any schema, any value

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["x", "y", 0.5, 2.0]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])
LEAVES: st.SearchStrategy[Any] = st.one_of(
    TYPES.map(lambda one: {"type": one}),
    st.lists(SCALARS, min_size=1, max_size=3).map(lambda several: {"enum": several}),
    SCALARS.map(lambda one: {"const": one}),
    st.sampled_from([{}, True, {"type": "integer", "minimum": 1}, {"type": ["string", "null"]}, {"$ref": "#/$defs/D"}]),
)


def closed(properties: Schema) -> Schema:
    """Alternatives say which arguments they have."""
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": [*properties][:1]}


def tuple_of(elements: list[Any]) -> Schema:
    return {"type": "array", "prefixItems": elements, "minItems": 1, "maxItems": len(elements)}


def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(["anyOf", "oneOf", "allOf"]), several).map(lambda two: {two[0]: two[1]}),
        st.dictionaries(NAMES, inner, max_size=3).map(closed),
        inner.map(lambda one: {"type": "array", "items": one}),
        several.map(tuple_of),
        inner.map(lambda one: {"not": one}),
        st.tuples(inner, inner).map(lambda two: {"if": two[0], "then": two[1]}),
        st.tuples(LEAVES, several).map(lambda two: two[0] if two[0] is True else {**two[0], "anyOf": two[1]}),
    )


SCHEMAS = st.recursive(LEAVES, nest, max_leaves=8)


@given(st.dictionaries(NAMES, SCHEMAS, max_size=3), SCHEMAS, st.dictionaries(NAMES, VALUES, max_size=3))
def test_whatever_a_client_takes_can_be_said(properties: Schema, shared: Any, value: Schema) -> None:
    own = closed(properties) | {"$defs": {"D": shared if "$ref" not in str(shared) else {}}}
    good = takes(own, value)
    for family in ("fable", "gemini", ANY):
        fitted, _ = fit_schema(own, EVERY[family])
        assert refused(fitted, family) == ""
        assert not good or takes(fitted, value), fitted


WORDS = st.sampled_from(
    [
        *("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "items", "prefixItems", "properties", "required"),
        *("type", "enum", "const", "$ref", "$defs", "additionalProperties", "minimum", "description"),
        *("patternProperties", "$id", "id", "$anchor", "unevaluatedProperties", "contains", "x-odd"),
    ]
)
JUNK = st.recursive(
    SCALARS | st.sampled_from(["#", "#/$defs/a", "object"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(WORDS, JUNK, max_size=5))
@example({"then": {"enum": [None]}})
def test_any_json_becomes_a_schema_that_is_taken(junk: Schema) -> None:
    for family in ("fable", "gemini", ANY):
        assert refused(fit_schema(junk, EVERY[family])[0], family) == ""


# ---- enums and tuples


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (TEXT, None),
        ({"enum": ["a", "b"]}, None),
        ({"const": "a"}, None),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"enum": [None]}, {"type": "null"}),
        ({"const": {"a": 1}}, {"type": "object", "description": 'Always {"a": 1}.'}),
        (
            {"enum": [1, "a"], "anyOf": [TEXT, WHOLE]},
            {"anyOf": [TEXT, WHOLE], "type": ["integer", "string"], "description": "One of: 1, a."},
        ),
    ],
)
def test_enums(schema: dict[str, Any], wanted: dict[str, Any] | None) -> None:
    assert plain_enum(schema) == wanted


def test_a_long_enum_is_told_within_a_limit() -> None:
    made = plain_enum({"enum": list(range(10_000))})
    assert made is not None
    assert (made["minimum"], made["maximum"]) == (0, 9_999)
    assert len(made["description"]) <= 400


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "array", "items": TEXT}, None),
        ({"type": "array", "prefixItems": []}, {"type": "array"}),
        ({"type": "array", "items": 7}, None),
        ({"prefixItems": [TEXT], "items": False}, {"items": TEXT, "maxItems": 1}),
        ({"prefixItems": [TEXT], "items": WHOLE}, {"items": {"anyOf": [TEXT, WHOLE]}}),
        ({"items": [TEXT, TEXT], "additionalItems": False, "maxItems": 1}, {"items": TEXT, "maxItems": 1}),
        ({"prefixItems": [{"title": "X"}]}, {"items": {"title": "X"}}),
    ],
)
def test_tuples(schema: dict[str, Any], wanted: dict[str, Any] | None) -> None:
    made = plain_tuple(schema)
    if made is not None:
        made.pop("description", None)
    assert made == wanted
