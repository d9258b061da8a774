"""One call: whatever goes wrong, the model gets a result that says so."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import pytest
from mcp_types import CallToolResult

from caretway.core.request import Text, ToolResult
from caretway.mcp.connection import McpConnection, Progress, Unreachable
from caretway.mcp.definitions import BridgeLimits, Process, ServerDefinition
from caretway.mcp.servers import McpServer
from caretway.mcp.sign_ins import SignInState
from caretway.mcp.tools import ListedTool

SERVER = ServerDefinition("s", Process("x", env={"KEY": "hush-hush"}))


class Line:
    """A connection that does what the test wants."""

    def __init__(self, does: Any) -> None:
        self.news = asyncio.Event()
        self.lost: str | None = None
        self.left_out: Mapping[str, str] = {}
        self.sign_in: SignInState = ""
        self._does = does

    async def tools(self) -> list[ListedTool]:
        return []

    async def call(self, tool: str, arguments: dict[str, Any], progressed: Progress) -> CallToolResult:
        given: CallToolResult = await self._does(arguments, progressed)
        return given


async def run(does: Any, arguments: str = "{}", timeout: float = 5.0) -> tuple[ToolResult, bool]:
    """The result of a call to a server, and whether the call made it look at the connection again."""
    line = Line(does)

    @asynccontextmanager
    async def connect(definition: ServerDefinition) -> AsyncIterator[McpConnection]:
        if does is None:
            raise Unreachable("it is gone")
        yield cast("McpConnection", line)

    server = McpServer(replace(SERVER, call_timeout=timeout), BridgeLimits(), connect, lambda: None)
    running = asyncio.create_task(server.run())
    await server.tried.wait()
    with patch.object(line.news, "set") as looked:
        result = await server.call("t", arguments, "c")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return result, looked.called


async def echo(arguments: dict[str, Any], progressed: Progress) -> CallToolResult:
    return CallToolResult.model_validate({"content": [{"type": "text", "text": str(arguments)}]})


async def test_arguments_arrive_parsed() -> None:
    assert await run(echo, '{"a": [1]}') == (ToolResult("c", (Text("{'a': [1]}"),)), False)
    assert (await run(echo, ""))[0].text == "{}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "The arguments are not valid JSON"),
        ("[1]", "The arguments are not a JSON object"),
        ("[" * 99_999, "not valid"),
    ],
)
async def test_arguments_that_are_none(arguments: str, said: str) -> None:
    result, doubtful = await run(echo, arguments)
    assert said in result.text
    assert result.text.endswith("The tool was not run.")
    assert (result.is_error, doubtful) == (True, False)


async def test_a_server_that_is_not_there() -> None:
    result, _ = await run(None)
    assert result.text == "The MCP server `s` is not available: it is gone. The tool was not run."


async def test_a_refusal_is_passed_on_without_secrets() -> None:
    async def refuse(arguments: dict[str, Any], progressed: Progress) -> CallToolResult:
        raise RuntimeError("bad key hush-hush")

    result, doubtful = await run(refuse)
    assert result == ToolResult("c", (Text("The MCP server `s` failed to run `t`: bad key ***"),), is_error=True)
    assert doubtful


async def test_silence_ends_a_call_and_progress_does_not() -> None:
    async def hang(arguments: dict[str, Any], progressed: Progress) -> CallToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    async def work(arguments: dict[str, Any], progressed: Progress) -> CallToolResult:
        for _ in range(30):
            await asyncio.sleep(0.03)
            progressed()
        return await echo(arguments, progressed)

    result, doubtful = await run(hang, timeout=0.01)
    assert "gave no result within 0.01 s, and the call was cancelled" in result.text
    assert doubtful
    assert not (await run(work, timeout=0.6))[0].is_error
