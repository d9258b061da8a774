"""`caretway mcp serve`: the gateway as an MCP server over stdio with the tools `ask`, `models` and `usage`. Uses a
running gateway or its own, and reports failures to the caller.

The package `mcp` speaks the protocol. This module neither inspects nor logs prompts and answers.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import asdict

from .. import __version__
from ..config import Settings
from ..core.errors import GatewayError
from ..usage.prices import PriceList, read_prices
from ..usage.queries import LedgerQueries, Span
from ..usage.writing import reading_ledger
from .ask import AnswerPiece, stream_answer
from .client_gateway import ClientGateway, client_gateway
from .process import CommandFailed
from .running import ask as ask_gateway

if TYPE_CHECKING:
    from mcp.server import MCPServer

UsageBy = Literal["all", "day", "model", "key", "client"]

MAX_DAYS: Final = 366
_DAY_S: Final = 86_400.0
_ASK: Final = "Ask a model of the user's Cursor subscription one question, and get its answer as text."
_MODELS: Final = "List the models that `ask` can use."
_USAGE: Final = "How many responses, runs and tokens the gateway counted in the last days, and what they cost."


async def serve(settings: Settings, given: Mapping[str, object]) -> None:
    """Serves until the client closes standard input."""
    async with client_gateway(settings, given) as gateway:
        await mcp_server(gateway, settings).run_stdio_async()


def mcp_server(gateway: ClientGateway, settings: Settings) -> MCPServer[Any]:
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as missing:
        raise CommandFailed("mcp serve needs the package `mcp`", "install the extra: caretway[mcp]", 2) from missing

    server: MCPServer[Any] = MCPServer("caretway", version=__version__)

    async def ask(prompt: str, model: str = "auto", system: str = "") -> str:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        answer = stream_answer(gateway.url, gateway.key, {"model": model, "messages": messages, "stream": True})
        try:
            return "".join([piece.text async for piece in answer if isinstance(piece, AnswerPiece)])
        except GatewayError as failure:
            raise ToolError(str(failure)) from failure

    async def models() -> list[dict[str, Any]]:
        listed = await asyncio.to_thread(ask_gateway, gateway.url, "/v1/models", gateway.key, timeout=60)
        if listed.status != 200:
            raise ToolError(f"The gateway did not list its models (HTTP {listed.status}).")
        kept = ("id", "name", "context_window")
        return [{key: row[key] for key in kept if row.get(key)} for row in listed.body["data"]]

    async def usage(days: int = 30, by: UsageBy = "model") -> list[dict[str, object]]:
        try:
            return await asyncio.to_thread(_totals, settings, days, by)
        except (sqlite3.Error, ValueError) as unusable:
            raise ToolError(str(unusable)) from unusable

    server.add_tool(ask, description=_ASK)
    server.add_tool(models, description=_MODELS)
    server.add_tool(usage, description=_USAGE)
    return server


def _totals(settings: Settings, days: int, by: UsageBy) -> list[dict[str, object]]:
    """Blocking. Raises sqlite3.Error, and ValueError for wrong prices."""
    now = time.time()
    span = Span(now - min(max(days, 1), MAX_DAYS) * _DAY_S, now + 1)
    prices = PriceList(read_prices(settings.prices or {}))
    with reading_ledger(settings.data_dir) as ledger:
        rows = LedgerQueries(ledger, prices.find).totals(span, by)
        return [{**asdict(row), "tokens": row.tokens, "cents": row.cents} for row in rows]
