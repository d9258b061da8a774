"""The gateway as an MCP server of its own, judged by the official client."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

FLAGS = ("-m", "caretway", "mcp", "serve", "--backend", "simulator", "--data-dir")


@asynccontextmanager
async def session(data: Path) -> AsyncIterator[ClientSession]:
    command = StdioServerParameters(command=sys.executable, args=[*FLAGS, str(data)])
    async with stdio_client(command) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        yield client


def words(result: Any) -> str:
    return "".join(part.text for part in result.content)


async def test_the_official_client_lists_and_calls_the_gateways_own_tools(tmp_path: Path) -> None:
    async with session(tmp_path) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == {"ask", "models", "usage"}
        assert listed["ask"].input_schema["required"] == ["prompt"]
        answer = await client.call_tool("ask", {"prompt": "sim: say good morning", "model": "sim-auto"})
        assert (words(answer), answer.is_error) == ("good morning", False)
        told = await client.call_tool("ask", {"prompt": "sim: system", "system": "be brief"})
        assert not told.is_error
        models = await client.call_tool("models", {})
        assert models.structured_content is not None
        assert "sim-auto" in [row["id"] for row in models.structured_content["result"]]
        async with asyncio.timeout(30):  # the ledger is written by a thread of its own
            while True:
                usage = await client.call_tool("usage", {"days": 1, "by": "all"})
                assert not usage.is_error and usage.structured_content is not None
                if usage.structured_content["result"] and usage.structured_content["result"][0]["responses"] >= 2:
                    break
                await asyncio.sleep(0.05)


async def failure(client: ClientSession, tool: str, arguments: dict[str, Any]) -> str:
    """What the client is told. The package decides which failures are the protocol's."""
    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as refused:
        return str(refused)
    assert result.is_error
    return words(result)


FAILURES: list[tuple[str, dict[str, Any]]] = [
    ("ask", {"prompt": "sim: fail usage_limit"}),
    ("ask", {}),
    ("usage", {"by": "nonsense"}),
    ("nothing", {}),
]


async def test_a_failure_is_told_and_the_server_lives_on(tmp_path: Path) -> None:
    async with session(tmp_path) as client:
        for tool, arguments in FAILURES:
            assert tool in await failure(client, tool, arguments)
            answer = await client.call_tool("ask", {"prompt": "sim: say still here"})
            assert words(answer) == "still here"
