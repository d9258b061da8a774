"""Parameters of models, as their makers spell them."""

import pytest

from caretway.core.model_parameters import window

WINDOWS = [
    ("200k", 200_000),
    ("272K", 272_000),
    ("1m", 1_000_000),
    ("1234567k", None),
    ("k", None),
    ("x", None),
    ("2\u00b2k", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "tokens"), WINDOWS)
def test_window(text: str, tokens: int | None) -> None:
    assert window(text) == tokens
