"""One spelling for JSON that means the same, and no text that it fails on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.canonical import canonical_json


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
