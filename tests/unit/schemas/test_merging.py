"""Schemas that become one: what either takes, what both say."""

from typing import Any

import pytest

from caretway.schemas.merging import both, either, is_open, key_of, types_of, with_words
from caretway.schemas.run import Budget, Unreadable

TEXT, WHOLE, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def budget() -> Budget:
    return Budget(10_000)


@pytest.mark.parametrize(
    ("branches", "wanted"),
    [
        ([], False),
        ([False], False),
        ([TEXT], TEXT),
        ([TEXT, dict(TEXT)], TEXT),
        ([TEXT, True], {}),
        ([TEXT, {"title": "anything"}], {}),
        ([TEXT, NULL], {"type": ["string", "null"]}),
        ([NULL, {"const": 1}], {"enum": [1, None], "type": ["integer", "null"]}),
        ([NULL, {"minimum": 1}], {"minimum": 1}),
        ([{"const": 1}, {"enum": [1.0, "a"]}], {"type": ["integer", "string"], "enum": [1, "a"]}),
        ([TEXT | {"maxLength": 3}, TEXT | {"maxLength": 9}], {"type": "string", "maxLength": 9}),
        ([TEXT | {"maxLength": 3}, WHOLE], {"type": ["string", "integer"], "maxLength": 3}),
        ([TEXT | {"maxLength": 3}, TEXT], TEXT),
        ([TEXT | {"format": "date"}, WHOLE], {"type": ["string", "integer"], "format": "date"}),
        ([TEXT | {"pattern": "a"}, TEXT | {"pattern": "b"}], TEXT),
        (
            [{"type": "array", "items": TEXT}, {"type": "array", "items": WHOLE}],
            {"type": "array", "items": {"type": ["string", "integer"]}},
        ),
        ([{"type": "array", "items": TEXT}, {"type": "array"}], {"type": "array"}),
        (
            [
                {"type": "object", "additionalProperties": TEXT},
                {"type": "object", "patternProperties": {"^x": WHOLE}, "additionalProperties": False},
            ],
            {"type": "object", "additionalProperties": TEXT, "patternProperties": {"^x": WHOLE}},
        ),
    ],
)
def test_either(branches: list[Any], wanted: Any) -> None:
    assert either(branches, budget()) == wanted


def test_alternatives_are_told_in_words_within_a_limit() -> None:
    many = [{"type": "object", "properties": {f"argument_{n}": TEXT}, "required": []} for n in range(200)]
    told = either(many, budget())["description"]
    assert told.startswith("One of: {argument_0?}; {argument_1?}")
    assert told.endswith("; and others.")
    assert len(told) <= 600


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (TEXT, True, TEXT),
        (True, TEXT, TEXT),
        (TEXT, False, False),
        ({"type": ["integer", "null"]}, {"type": "number"}, {"type": "integer"}),
        ({"type": "number"}, {"type": "integer"}, {"type": "integer"}),
        (TEXT, WHOLE, TEXT),
        ({"enum": [1, 2, 3]}, {"enum": [3, 2]}, {"enum": [2, 3]}),
        ({"minimum": 1, "maximum": 9}, {"minimum": 2, "maximum": 5}, {"minimum": 2, "maximum": 5}),
        ({"required": ["a"]}, {"required": ["b", "a"]}, {"required": ["a", "b"]}),
        ({"properties": {"a": TEXT}}, {"properties": {"a": {"minLength": 1}, "b": WHOLE}}, None),
        ({"description": "One."}, {"description": "Two."}, {"description": "One. Two."}),
        ({"pattern": "a"}, {"pattern": "b"}, {"pattern": "a"}),
        ({"if": TEXT, "then": TEXT}, {"if": WHOLE, "then": WHOLE, "else": NULL}, {"if": TEXT, "then": TEXT}),
        ({"additionalProperties": True}, {"additionalProperties": False}, {"additionalProperties": False}),
    ],
)
def test_both(one: Any, other: Any, wanted: Any) -> None:
    expected = wanted or (False if other is False else {"properties": {"b": WHOLE, "a": {**TEXT, "minLength": 1}}})
    assert both(one, other, budget()) == expected


def test_steps_are_counted() -> None:
    with pytest.raises(Unreadable):
        either([{"enum": ["x" * 1000]}, {"enum": ["y" * 1000]}], Budget(50))


def test_small_words() -> None:
    assert key_of(1) == key_of(1.0) != key_of(True)
    assert is_open({"title": "x"})
    assert not is_open(TEXT)
    assert types_of({"const": None}) == ["null"]
    assert types_of({}) is None
    assert with_words({"description": "Said."}, "Said.") == {"description": "Said."}
