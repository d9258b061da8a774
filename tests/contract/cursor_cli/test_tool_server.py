"""The MCP server on which cursor-agent calls clients' tools, judged by the official MCP client; what strangers get."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from caretway.backends.cli.tool_server import MAX_BODY_BYTES, Answer, McpUse, ToolServer, listed_tools
from caretway.core.request import ToolSpec

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}}}


class FakeTurn:
    def __init__(self) -> None:
        self.tools: Sequence[Mapping[str, Any]] = listed_tools(
            [ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {}}})]
        )
        self.seen = 0
        self.uses: list[McpUse] = []
        self.arrived = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()

    def listed(self) -> None:
        self.seen += 1

    async def called(self, use: McpUse) -> Answer:
        self.uses.append(use)
        self.arrived.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"content": [{"type": "text", "text": f"seen {use.arguments}"}], "isError": False}


@asynccontextmanager
async def serving(sign_of_life: float = 10.0) -> AsyncIterator[tuple[ToolServer, FakeTurn, str]]:
    server, turn = ToolServer("1", sign_of_life=sign_of_life), FakeTurn()
    try:
        yield server, turn, await server.open(turn)
    finally:
        await server.aclose()


async def test_the_official_client_lists_and_calls_and_waits() -> None:
    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)
        if progress >= 2:
            turn.go_on.set()

    async with (
        serving(sign_of_life=0.05) as (_, turn, url),
        streamable_http_client(url) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == ["look"]
        assert turn.seen == 1
        given = await session.call_tool("look", {"at": "x"}, progress_callback=on_progress)
        assert not given.is_error
        assert given.content[0].model_dump()["text"] == "seen {'at': 'x'}"
        assert told[:2] == [1, 2], "signs of life, so that no client gives up"


async def test_who_hangs_up_does_not_want_the_result() -> None:
    async with serving() as (_, turn, url), httpx.AsyncClient(trust_env=False, verify=False) as http:
        calling = asyncio.create_task(http.post(url, json=CALL))
        await turn.arrived.wait()
        calling.cancel()
        await asyncio.wait_for(turn.cancelled.wait(), 10)


async def test_each_turn_has_its_own_address_and_only_while_it_lasts() -> None:
    async with serving() as (server, turn, url), httpx.AsyncClient(trust_env=False, verify=False) as http:
        other = FakeTurn()
        second = await server.open(other)
        assert second != url and len(url.split("/")[3]) >= 32
        ping: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await http.post(second, json=ping)).status_code == 200
        assert (turn.seen, other.seen) == (0, 1)
        server.close(second)
        assert (await http.post(second, json=ping)).status_code == 404
        for path in ("/", "/mcp", url[len("http://127.0.0.1:") :].partition("/")[2] + "x"):
            assert (
                await http.post(httpx.URL(url).copy_with(path=f"/{path.lstrip('/')}"), json=ping)
            ).status_code == 404


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_methods(method: str) -> None:
    async with serving() as (_, _, url), httpx.AsyncClient(trust_env=False, verify=False) as http:
        answer = await http.request(method, url)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"


async def test_odd_bodies() -> None:
    async with serving() as (_, turn, url), httpx.AsyncClient(trust_env=False, verify=False) as http:
        for body in (b"", b"{", b"[1]", b"\xff", b"[" * 5000):
            assert (await http.post(url, content=body)).json()["error"]["code"] == -32600
        with pytest.raises(httpx.HTTPError):
            await http.post(url, content=b" " * (MAX_BODY_BYTES + 1))
        assert (await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202
        assert not turn.uses
