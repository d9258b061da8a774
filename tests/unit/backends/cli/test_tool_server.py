"""What the MCP server with a client's tools says to each message."""

from typing import Any

import pytest

from caretway.backends.cli.tool_server import NEWEST, McpUse, listed_tools, reply, tool_answer
from caretway.core.request import Image, Text, ToolResult, ToolSpec

TOOLS = listed_tools([ToolSpec("look", "Looks.", {"type": "object", "properties": {}}), ToolSpec("bare")])


def asked(method: str, **params: Any) -> Any:
    return reply({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, TOOLS, "1.2.3")


def test_tools_have_schemas_that_are_objects() -> None:
    listed = asked("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["look", "bare"]
    assert all(tool["inputSchema"]["type"] == "object" for tool in listed)


@pytest.mark.parametrize(("wanted", "spoken"), [("2025-06-18", "2025-06-18"), ("1999-01-01", NEWEST), (None, NEWEST)])
def test_versions(wanted: str | None, spoken: str) -> None:
    assert asked("initialize", protocolVersion=wanted)["result"]["protocolVersion"] == spoken


def test_calls() -> None:
    assert asked("tools/call", name="look", arguments={"a": 1}) == McpUse(7, "look", {"a": 1})
    assert asked("tools/call", name="look", _meta={"progressToken": 3}) == McpUse(7, "look", {}, 3)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (None, -32600),
        ([], -32600),
        ({"id": 1, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": "x"}}, -32602),
    ],
)
def test_refusals(message: object, code: int) -> None:
    answer = reply(message, TOOLS, "1")
    assert isinstance(answer, dict)
    assert answer["error"]["code"] == code


@pytest.mark.parametrize(
    "message", [{"jsonrpc": "2.0", "method": "notifications/initialized"}, {"jsonrpc": "2.0", "id": 1}]
)
def test_what_needs_no_answer(message: object) -> None:
    assert reply(message, TOOLS, "1") is None


def test_results() -> None:
    given = ToolResult("c", (Text("a"), Image(b"x", "image/png")), is_error=True)
    assert tool_answer(given, (Text("stop"),)) == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "eA==", "mimeType": "image/png"},
            {"type": "text", "text": "\n\n[The user adds:]\nstop"},
        ],
        "isError": True,
    }
    assert tool_answer(ToolResult("c", ()))["content"] == [{"type": "text", "text": ""}]
