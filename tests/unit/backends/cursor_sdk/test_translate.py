"""The SDK's records become events: each kind of record, its odd forms, and the ends of a run."""

from types import SimpleNamespace
from typing import Any

import pytest

from caretway.backends.cursor_sdk.translate import Translator, client_tool, title
from caretway.core.errors import ErrorKind
from caretway.core.events import (
    AgentActivity,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
    TurnFailed,
    Usage,
    UsageReported,
)


def message(kind: str, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(sdk_message=SimpleNamespace(type=kind, **fields), result=None)


def said(*texts: str) -> SimpleNamespace:
    blocks = [SimpleNamespace(text=text) for text in texts]
    return message("assistant", message=SimpleNamespace(content=blocks))


def used(taken: int, given: int, thought: int | None = None) -> SimpleNamespace:
    usage = SimpleNamespace(
        input_tokens=taken, output_tokens=given, cache_read_tokens=3, cache_write_tokens=0, reasoning_tokens=thought
    )
    return message("usage", usage=usage)


def tool(name: str, call: str, status: str, **arguments: Any) -> SimpleNamespace:
    return message("tool_call", name=name, call_id=call, status=status, args=arguments)


def custom(call: str, status: str, name: str = "left") -> SimpleNamespace:
    return tool("mcp", call, status, providerIdentifier="custom-user-tools", toolName=name, args={})


def ended(status: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(sdk_message=None, result={"status": f"RUN_LIFECYCLE_STATUS_{status}", **more})


def fed(*records: SimpleNamespace) -> list[Event]:
    translator = Translator()
    return [event for record in records for event in translator.feed(record)]


def test_words_and_thoughts() -> None:
    assert fed(message("status", status="RUNNING"), message("thinking", text="hm"), said("a", "", "b")) == [
        ReasoningDelta("hm"),
        TextDelta("a"),
        TextDelta("b"),
    ]
    assert fed(message("thinking", text=""), message("task"), message("something new")) == []


def test_a_keep_alive_is_nothing() -> None:
    assert fed(SimpleNamespace(sdk_message=None, result=None)) == []


def test_usage_comes_with_the_end_and_is_added_up() -> None:
    usage, end = fed(used(10, 2), used(20, 3, thought=1), ended("FINISHED"))
    assert isinstance(usage, UsageReported)
    known = usage.usage
    assert (known.input_tokens, known.output_tokens, known.cache_read_tokens, known.reasoning_tokens) == (30, 5, 6, 1)
    assert not known.estimated
    assert end == TurnEnded()


def test_usage_in_the_result_alone() -> None:
    (usage, _) = fed(ended("FINISHED", usage={"inputTokens": "18", "outputTokens": "6"}))
    assert isinstance(usage, UsageReported)
    assert (usage.usage.input_tokens, usage.usage.cache_read_tokens) == (18, None)  # nobody said zero
    odd = fed(ended("FINISHED", usage={"inputTokens": "9" * 5000, "outputTokens": "\u00b2"}))
    assert odd == [UsageReported(Usage(1, 1, estimated=True)), TurnEnded()]
    assert fed(ended("FINISHED", usage={})) == [UsageReported(Usage(1, 1, estimated=True)), TurnEnded()]


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (ended("ERROR", errorMessage="Usage limit reached"), ErrorKind.QUOTA),
        (ended("ERROR", errorMessage="[unavailable] Service unavailable"), ErrorKind.UPSTREAM_DOWN),
        (ended("ERROR"), ErrorKind.UPSTREAM_ERROR),
        (ended("EXPIRED"), ErrorKind.UPSTREAM_ERROR),
        (ended("CANCELLED"), ErrorKind.CANCELLED),
    ],
)
def test_runs_that_fail(record: SimpleNamespace, kind: ErrorKind) -> None:
    (failed,) = fed(record)
    assert isinstance(failed, TurnFailed)
    assert failed.error.kind is kind


def test_the_agents_own_tools_are_shown_once() -> None:
    translator = Translator()
    running = tool("shell", "c1", "running", command="id")
    assert translator.feed(running) == [AgentActivity("shell id")]
    assert translator.feed(running) == []
    assert translator.running == {"c1"}
    assert translator.feed(tool("shell", "c1", "completed", command="id")) == []
    assert translator.running == set()
    assert fed(tool("getMcpTools", "c2", "running")) == []


def test_client_calls_are_announced_and_not_shown() -> None:
    translator = Translator()
    assert translator.feed(custom("c1", "running")) == []
    assert translator.announced == {"c1"}
    translator.feed(custom("c1", "completed"))
    assert translator.announced == set()


@pytest.mark.parametrize(
    ("name", "arguments", "tool_name"),
    [
        ("mcp", {"providerIdentifier": "custom-user-tools", "toolName": "left"}, "left"),
        ("mcp", {"providerIdentifier": "another", "toolName": "left"}, None),
        ("mcp", None, None),
        ("mcp", {"providerIdentifier": "custom-user-tools", "toolName": 3}, None),
        ("shell", {"command": "id"}, None),
    ],
)
def test_the_meta_tool_is_unwrapped(name: str, arguments: Any, tool_name: str | None) -> None:
    assert client_tool(name, arguments) == tool_name


def test_titles_are_short() -> None:
    assert title("read", {"path": "/a"}) == "read /a"
    assert title("todo", None) == "todo"
    assert len(title("shell", {"command": "x" * 1000})) == 200
