"""Foreign schemas: checked where they can be, never at any price."""

import pytest

from caretway.core.json_schema import SchemaChecker, Unreadable

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
