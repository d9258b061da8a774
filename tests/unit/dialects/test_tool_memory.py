"""A list of tools is read once, and what was read is the same object for as long as the list comes again."""

from typing import Any

import pytest

from caretway.core.errors import GatewayError
from caretway.dialects.anthropic_messages import AnthropicMessages
from caretway.dialects.fields import MAX_LIST_BYTES, MAX_TOOL_LISTS, ToolMemory
from caretway.dialects.openai_chat import OpenAIChat


def chat(*names: str, **more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name, "parameters": {"minimum": 1}}} for name in names]
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools} | more


def test_equal_lists_are_one_object() -> None:
    dialect = OpenAIChat()
    first, again = dialect.decode(chat("a", "b"), {}), dialect.decode(chat("a", "b", tool_choice="required"), {})
    assert again.tools is first.tools
    assert (first.tool_choice.mode, again.tool_choice.mode) == ("auto", "required")
    assert OpenAIChat().decode(chat("a", "b"), {}).tools is not first.tools  # accounts share no object
    other = dialect.decode(chat("b", "a"), {}).tools
    assert [tool.name for tool in other] == ["b", "a"]


@pytest.mark.parametrize("value", [1.0, True, "1"])
def test_lists_that_are_nearly_equal_are_two(value: object) -> None:
    dialect = OpenAIChat()
    dialect.decode(chat("a"), {})
    changed = chat("a")
    changed["tools"][0]["function"]["parameters"]["minimum"] = value
    found = dialect.decode(changed, {}).tools[0].schema["minimum"]
    assert (type(found), found) == (type(value), value)


def test_a_wrong_list_is_refused_every_time() -> None:
    dialect = OpenAIChat()
    for _ in range(2):
        with pytest.raises(GatewayError, match="used twice"):
            dialect.decode(chat("a", "a"), {})


def test_a_choice_or_a_change_leaves_the_memory_alone() -> None:
    """The names that are left out belong to a request."""
    dialect = AnthropicMessages()
    tools = [{"name": "a", "input_schema": {}}, {"type": "web_search_20250305", "name": "web_search"}]
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": tools,
    }
    plain = dialect.decode(body, {})
    chosen = dialect.decode(body | {"tool_choice": {"type": "tool", "name": "web_search"}}, {})
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "a"}}
    later = {"role": "system", "content": [removal]}
    changed = dialect.decode(body | {"messages": [*body["messages"], later]}, {})
    again = dialect.decode(body, {})
    assert changed.tools == ()
    assert again.tools is plain.tools is chosen.tools
    assert again.ignored == plain.ignored


def test_the_memory_is_bounded() -> None:
    memory, read = ToolMemory[object](), list[int]()

    def ask(declared: object, number: int) -> object:
        def once() -> object:
            read.append(number)
            return object()

        return memory.read(declared, once)

    for number in range(MAX_TOOL_LISTS):
        ask([number], number)
    ask([0], 0)  # used again: the newest now
    ask(["one more"], 99)
    assert read == [*range(MAX_TOOL_LISTS), 99]
    ask([0], 0)
    assert read[-1] == 99
    ask([1], 1)
    assert read[-1] == 1  # the least recently used one was dropped
    long = ["x" * MAX_LIST_BYTES]
    assert ask(long, 7) is not ask(long, 7)
