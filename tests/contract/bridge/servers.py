"""What the tests of the MCP bridge share: definitions of real and odd servers, and the gateway in front of them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contract.gateways import Client, gateway

ODD = str(Path(__file__).with_name("odd_server.py"))


def odd(mode: str = "plain", argument: str = "", **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [ODD, mode, argument], **more}


def time_server() -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}


def git_server(repository: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", "mcp_server_git", "--repository", str(repository)]}


@asynccontextmanager
async def bridged(servers: dict[str, Any], **settings: Any) -> AsyncIterator[Client]:
    known: dict[str, Any] = {"mcp": {"servers": servers}, "mcp_start_wait": 30, "mcp_connect_timeout": 30}
    async with gateway(**known | settings) as client:
        yield client


async def health(client: Client) -> dict[str, Any]:
    told: dict[str, Any] = (await client.http.get("/health")).json()["mcp"]
    return told


async def tools(client: Client) -> dict[str, Any]:
    listed: dict[str, Any] = (await client.http.get("/v1/tools")).json()
    return listed


async def until(client: Client, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """/health.mcp, as soon as it is as it should be: what other processes do has no event here."""
    while not holds(told := await health(client)):
        await asyncio.sleep(0.02)
    return told
