"""What real clients sent (tests/data/messages): every body is accepted, and no field is dropped in silence.

The bodies are handed over as dictionaries that remember which of their keys were asked for. A key that nobody read must
be named in `ignored`, or stand in the list below with the reason why silence is right.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from caretway.core.errors import GatewayError
from caretway.core.request import Role, ToolCall, ToolResult, TurnRequest
from caretway.dialects.anthropic_messages import AnthropicMessages

CAPTURES = sorted((Path(__file__).parents[3] / "data" / "messages").glob("*/*.json"))

SILENT = {
    "metadata": "read only where no header names the client's session",
    "context_management.edits[].keep": "thinking of earlier answers is never sent to Cursor",
    "system[].cache_control": "a hint for Anthropic's own cache",
    "messages[].content[].cache_control": "a hint for Anthropic's own cache",
    "tools[].cache_control": "a hint for Anthropic's own cache",
    "tools[].eager_input_streaming": "arguments are passed on as soon as they are there",
}
PASSED_ON_WHOLE = ("tools[].input_schema", "messages[].content[].input")
"""Handed over as they are; `test_accepted` compares them."""


class Watched(dict[str, Any]):
    """A JSON object that remembers what was read of it."""

    def __init__(self, members: dict[str, Any]) -> None:
        super().__init__(members)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


def watched(value: Any) -> Any:
    if isinstance(value, dict):
        return Watched({key: watched(inner) for key, inner in value.items()})
    return [watched(inner) for inner in value] if isinstance(value, list) else value


def unread(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for inner in value:
            yield from unread(inner, f"{at}[]")
    elif isinstance(value, Watched):
        for key, inner in value.items():
            path = f"{at}.{key}" if at else key
            if key not in value.read:
                yield path
            elif path not in PASSED_ON_WHOLE:
                yield from unread(inner, path)


def load(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    captured = msgspec.json.decode(path.read_bytes())
    return captured["body"], captured["headers"]


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def offered(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [tool for tool in body.get("tools", []) if tool["name"] != "DeferredToolPlaceholder"]


WHOLE = [path for path in CAPTURES if "thread" not in load(path)[0]]
THREADS = [path for path in CAPTURES if path not in WHOLE]


def decoded(path: Path) -> tuple[dict[str, Any], TurnRequest]:
    body, headers = load(path)
    return body, AnthropicMessages().decode(body, headers)


def test_the_captures_are_there() -> None:
    assert {path.parent.name for path in CAPTURES} == {"anthropic-python", "claude-code", "langchain", "vercel-ai"}
    assert len(THREADS) == 2


@pytest.mark.parametrize("path", WHOLE, ids=name)
def test_no_field_is_dropped_in_silence(path: Path) -> None:
    raw, headers = load(path)
    body = watched(raw | {"tools": offered(raw)} if "tools" in raw else raw)
    request = AnthropicMessages().decode(body, headers)
    lost = {field for field in unread(body) if field not in SILENT}
    assert (lost, request.ignored) == (set(), ())


@pytest.mark.parametrize("path", WHOLE, ids=name)
def test_accepted(path: Path) -> None:
    body, request = decoded(path)
    assert request.model == body["model"]
    assert request.stream == body.get("stream", False)
    tools = offered(body)
    assert [tool.name for tool in request.tools] == [tool["name"] for tool in tools]
    assert [tool.schema for tool in request.tools] == [tool["input_schema"] for tool in tools]
    assert [tool.description for tool in request.tools] == [tool.get("description", "") for tool in tools]
    texts: list[str] = [block["text"] for block in body.get("system", [])]
    calls: list[tuple[str, str, Any]] = []
    results: list[tuple[str, str, bool]] = []
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "text":
                texts.append(block["text"])
            elif block["type"] == "tool_use":
                calls.append((block["id"], block["name"], block["input"]))
            elif block["type"] == "thinking":
                assert block["signature"] == "", "ours, given back"
            else:
                assert block["type"] == "tool_result"
                inner: Any = block["content"]
                text = inner if isinstance(inner, str) else "".join(part["text"] for part in inner)
                results.append((block["tool_use_id"], text, "is_error" in block and block["is_error"] is True))
    parts = [part for message in request.messages for part in message.parts]
    assert "".join(message.text for message in request.messages) == "".join(texts)
    assert [
        (part.id, part.name, msgspec.json.decode(part.arguments)) for part in parts if isinstance(part, ToolCall)
    ] == calls
    assert [(part.call_id, part.text, part.is_error) for part in parts if isinstance(part, ToolResult)] == results


@pytest.mark.parametrize("path", THREADS, ids=name)
def test_a_thread_is_refused_in_the_words_the_sdk_understands(path: Path) -> None:
    body, headers = load(path)
    with pytest.raises(GatewayError) as refused:
        AnthropicMessages().decode(body, headers)
    status, answer = AnthropicMessages().error(refused.value)
    error = msgspec.json.decode(answer)["error"]
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["details"] == {
        "error_code": "thread_unsupported_request",
        "should_retry": False,
        "unsupported": ["thread"],
    }


def test_claude_code() -> None:
    _, request = decoded(next(path for path in CAPTURES if name(path) == "claude-code/tool-003-POST-v1_messages"))
    roles = [message.role for message in request.messages]
    assert roles == [Role.SYSTEM] * 3 + [Role.USER, Role.SYSTEM, Role.ASSISTANT, Role.TOOL]
    assert request.effort == "high"
    assert request.echo == {"thinking": True}
    assert {"Bash", "Read", "WebSearch"} <= {tool.name for tool in request.tools}


def test_choices() -> None:
    seen = {(request.tool_choice.mode, request.tool_choice.parallel) for _, request in map(decoded, WHOLE)}
    assert seen == {("auto", True), ("required", False), ("named", True)}
