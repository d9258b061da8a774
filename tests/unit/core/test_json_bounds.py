"""How much is in a JSON text, against what a decoder makes of it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.json_bounds import (
    MAX_DIGITS,
    MAX_LEVELS,
    canonical_json,
    count_values,
    crowded,
    has_long_numbers,
    most_values,
    nested_deeply,
    structures,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('{ "b": [1, 2], "a": {"d": null, "c": true} }', '{"a":{"c":true,"d":null},"b":[1,2]}'),
        ('"\\u00e9\\/"', '"é/"'),
        ("[1.0, 1e3, -0.0, 1.5, 1e300]", "[1,1000,0,1.5,1e300]"),
        ("[18446744073709551616]", "[18446744073709551616]"),
        ("[1e400]", "[1e400]"),
        ("{oops ", "{oops"),
        ("NaN", "NaN"),
        ('"\\ud800"', '"\\ud800"'),
        ('"\ud800"', '"\ud800"'),
        ("[" * 20_000, "[" * 20_000),
    ],
)
def test_spelling(text: str, canonical: str) -> None:
    assert canonical_json(text) == canonical


@given(st.text())
def test_any_text_has_one_and_it_stays(text: str) -> None:
    once = canonical_json(text)
    assert canonical_json(once) == once


TEXT = st.text(st.sampled_from('a"\\[{,]}\n€😀')) | st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def _made(value: Any) -> tuple[int, int]:
    """(values that a decoder makes, empty containers among them)"""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 1, 0
    inside = [_made(inner) for inner in value]
    return 1 + sum(count for count, _ in inside), (not value) + sum(empty for _, empty in inside)


@given(value=JSON, size=st.integers(2, 9))
def test_what_stands_outside_strings(value: Any, size: int) -> None:
    text = msgspec.json.encode(value)
    whole = b"".join(structures(text)).replace(b" ", b"")
    assert b"".join(structures(text, size)).replace(b" ", b"") == whole
    made, empty = _made(value)
    assert made <= count_values(text) <= made + empty
    assert most_values(text) + 1 >= count_values(text)


def test_brackets_in_strings_do_not_count() -> None:
    text = msgspec.json.encode({"code": 'if (a["x"]) { b[1] = [2, 3]; } \\' * 1000})
    assert count_values(text) == 2
    assert most_values(text) > 5000


@pytest.mark.parametrize(
    ("text", "too_much"),
    [
        ("[" + "[]," * 60_000 + "1]", True),
        ("[" + "1," * 40_000 + "1]", False),
        ('"' + "x" * 500_000 + '"', False),
        ("[" + "9" * 5000 + "," + "1" * 200_000 + "]", True),
        ('{"a": "b"}', False),
    ],
)
def test_crowded(text: str, too_much: bool) -> None:
    assert crowded(text) is crowded(text.encode()) is too_much


@given(st.integers(MAX_DIGITS, 5000), st.integers(0, 200))
def test_a_long_number_is_seen_wherever_it_is(digits: int, at: int) -> None:
    assert has_long_numbers(b"[" + b" " * at + b"7" * digits + b"]")


@pytest.mark.parametrize("levels", [MAX_LEVELS, MAX_LEVELS + 1])
def test_levels(levels: int) -> None:
    deep = levels > MAX_LEVELS
    assert nested_deeply("[" * levels + "]" * levels) is deep
    assert nested_deeply("[" * levels) is deep, "it need not end"
    assert nested_deeply('{"a":' * levels + "1" + "}" * levels) is deep
    assert not nested_deeply("[" + "[]," * levels + "1]"), "beside each other"
    assert not nested_deeply(msgspec.json.encode({"code": '["' * levels}).decode()), "in a string"
    assert not nested_deeply('["\ud800' + "[" * levels + '"]')
