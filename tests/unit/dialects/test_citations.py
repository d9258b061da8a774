"""A citation is a page's own address in the text, once."""

import pytest

from caretway.core.events import WebSource
from caretway.dialects.citations import cited

A, B = WebSource("https://a.example/x"), WebSource("https://b.example")

TEXTS = [
    ("nothing", []),
    ("[a](https://a.example/x) and https://b.example.", [A, B]),
    ("https://b.example, https://a.example/x and https://a.example/x", [B, A]),
    ("https://a.example/xy https://a.example/x/y https://a.example/x.html https://b.example?q=1", []),
    ("https://a.example/xy, then https://a.example/x", [A]),
]


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_cited(text: str, wanted: list[WebSource]) -> None:
    found = cited(text, [A, B, A])
    assert [one.source for one in found] == wanted
    assert [text[one.start : one.end] for one in found] == [source.url for source in wanted]
