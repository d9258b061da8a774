"""One tool that is spelled wrong does not cost the others: what is left out, and in which words."""

from typing import Any

import pytest

from caretway.mcp.connection import sift

GOOD: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object", "properties": {}, "required": []}}
ODD: list[tuple[str, Any, str]] = [
    ("no object at all", "tool", "not an object"),
    ("no name", {"inputSchema": {"type": "object"}}, "no name"),
    ("an empty name", {"name": "", "inputSchema": {"type": "object"}}, "no name"),
    ("no schema", {"name": "odd"}, "has no inputSchema"),
    ("null for a schema", {"name": "odd", "inputSchema": None}, "has no inputSchema"),
    ("a text for a schema", {"name": "odd", "inputSchema": "object"}, "inputSchema is not an object"),
    ("arguments that are a list", {"name": "odd", "inputSchema": {"type": "array"}}, "not of type object"),
    ("properties in a list", {"name": "odd", "inputSchema": {"type": "object", "properties": []}}, "properties"),
    ("a text that is required", {"name": "odd", "inputSchema": {"type": "object", "required": "a"}}, "requires"),
    ("a number that is required", {"name": "odd", "inputSchema": {"type": "object", "required": [1]}}, "requires"),
    ("a number for words", {**GOOD, "name": "odd", "description": 3}, "description"),
    ("notes that are none", {**GOOD, "name": "odd", "annotations": []}, "annotations"),
    ("a text for results", {**GOOD, "name": "odd", "outputSchema": "x"}, "outputSchema"),
    ("a hint that is none", {**GOOD, "name": "odd", "annotations": {"readOnlyHint": "perhaps"}}, "readOnlyHint"),
]


@pytest.mark.parametrize(("tool", "words"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_an_odd_tool_is_left_out_alone(tool: Any, words: str) -> None:
    kept, left_out = sift([GOOD, tool, GOOD | {"name": "other"}])
    assert [one["name"] for one in kept] == ["good", "other"]
    ((name, reason),) = left_out.items()
    assert name in ("odd", "tool 2")
    assert words in reason


def test_a_schema_without_a_type_is_one_of_an_object() -> None:
    kept, left_out = sift([{"name": "a", "inputSchema": {}}, {"name": "b", "inputSchema": {"properties": {}}}])
    assert [one["inputSchema"]["type"] for one in kept] == ["object", "object"]
    assert not left_out


def test_what_is_right_passes_as_it_is() -> None:
    whole = {**GOOD, "title": "t", "description": "d", "annotations": {"readOnlyHint": True}, "outputSchema": None}
    assert sift([GOOD, whole]) == ([GOOD, whole], {})
