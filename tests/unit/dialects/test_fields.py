"""The word for a tool choice: which there are, and that a call cannot be required where there is no tool."""

import pytest

from caretway.core.errors import GatewayError
from caretway.core.request import ToolSpec
from caretway.dialects.fields import choice_mode

TOOLS = (ToolSpec("read", "", {}),)


@pytest.mark.parametrize("word", ["auto", "none", "required"])
def test_the_words(word: str) -> None:
    assert choice_mode(word, "tool_choice", TOOLS, "a word") == word


@pytest.mark.parametrize(
    ("word", "tools", "told"),
    [
        ("any", TOOLS, "use a word, not 'any'."),
        ("AUTO", TOOLS, "use a word, not 'AUTO'."),
        ("x" * 99, TOOLS, f"not '{'x' * 60}'."),
        ("required", (), "declares no tool"),
    ],
)
def test_what_is_refused(word: str, tools: tuple[ToolSpec, ...], told: str) -> None:
    with pytest.raises(GatewayError) as refused:
        choice_mode(word, "tool_choice.mode", tools, "a word")
    assert told in refused.value.message and refused.value.param == "tool_choice.mode"
