"""Enums and tuples in plain rules."""

from typing import Any

import pytest

from caretway.schemas.plain_values import plain_enum, plain_tuple

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


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
