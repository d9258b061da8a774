"""All MCP servers together: starts them in the background, lets the first requests wait at most 5 s for them, routes
calls to their server, and describes them for /health and /v1/tools."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ..core.request import ToolResult
from ..processes.child import Child
from ..processes.tasks import spawn
from .connection import Connector
from .definitions import BridgeLimits, Misfit
from .servers import McpServer, McpServerState
from .sources import FoundServers
from .tools import BridgedTool, McpCatalogue, catalogue

log = logging.getLogger(__name__)

MAX_TOLD: Final = 300
"""Characters of a tool's description for people."""


class McpBridge:
    def __init__(self, found: FoundServers, limits: BridgeLimits, connect: Connector, children: set[Child]) -> None:
        """`children`: the running processes that `connect` has started."""
        self._children = children
        self.servers = {
            definition.name: McpServer(definition, limits, connect, self._forget) for definition in found.definitions
        }
        self.misfits: Sequence[Misfit] = found.misfits
        self._limits = limits
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._picture: McpCatalogue | None = None
        self._waited = False
        self._left_out = 0

    def start(self) -> None:
        """Start all servers at once, in the background."""
        for misfit in self.misfits:
            log.warning("MCP server %s of %s cannot be used: %s", misfit.name, misfit.origin, misfit.problem)
        for name in self.servers:
            self._run(name)

    def _run(self, name: str) -> None:
        self._tasks[name] = spawn(self.servers[name].run(), f"mcp-{name}")

    async def restart(self, name: str) -> bool:
        """Stop a server and start it again; its calls fail meanwhile. Returns False if there is no such server."""
        task = self._tasks.pop(name, None)
        if task is None:
            return False
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._run(name)
        return True

    async def ready(self) -> None:
        """Let the first requests wait until every server was tried once, at most `start_wait` seconds."""
        if not self._waited:
            await self.tried(self._limits.start_wait)
            self._waited = True

    async def tried(self, patience: float, *names: str) -> None:
        """Wait until these servers (all, if none is named) were tried once, but no longer than `patience`."""
        try:
            async with asyncio.timeout(patience):
                for name in names or self.servers:
                    await self.servers[name].tried.wait()
        except TimeoutError:
            late = [name for name, server in self.servers.items() if not server.tried.is_set()]
            log.info("not waiting any longer for MCP servers: %s", ", ".join(late))

    @property
    def catalogue(self) -> McpCatalogue:
        if self._picture is None:
            self._picture = catalogue((server.definition, server.tools) for server in self.servers.values())
        return self._picture

    def _forget(self) -> None:
        self._picture, self._left_out = None, 0

    def left_out(self, count: int) -> None:
        self._left_out = count

    async def call(self, tool: BridgedTool, arguments: str, call_id: str) -> ToolResult:
        return await self.servers[tool.server].call(tool.tool.name, arguments, call_id)

    async def aclose(self) -> None:
        """Stop all servers. No process is left, even if this is cancelled."""
        ending = spawn(self._end(), "mcp-end")
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            for child in list(self._children):
                child.kill()
            await ending
            raise

    async def _end(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A server that is cancelled while it connects does not wait for the end of its process.
        await asyncio.gather(*[child.aclose() for child in list(self._children)])

    # ---- descriptions for clients and people

    def counts(self) -> dict[str, int]:
        connected = sum(server.state is McpServerState.CONNECTED for server in self.servers.values())
        return {"servers": connected, "tools": len(self.catalogue.tools)}

    def problems(self) -> list[dict[str, str]]:
        """Every server that is not available, by name, with the reason."""
        absent = [
            {"server": name, "state": server.state.value, "detail": server.detail}
            for name, server in self.servers.items()
            if server.state is not McpServerState.CONNECTED
        ]
        unusable = [{"server": one.name, "state": "unusable", "detail": one.problem} for one in self.misfits]
        found = (
            absent
            + unusable
            + [
                {"server": name, "state": server.state.value, "detail": server.note}
                for name, server in self.servers.items()
                if server.note
            ]
        )
        if self._left_out:
            every, taken = len(self.catalogue.tools), len(self.catalogue.tools) - self._left_out
            detail = f"a request offers {taken} of {every} tools: Cursor takes no more; choose with `allow` and `deny`"
            found.append({"server": "all", "state": "too many tools", "detail": detail})
        return found

    def health(self) -> Mapping[str, object]:
        return {"enabled": True, **self.counts(), "problems": self.problems()}

    def described_servers(self) -> list[dict[str, object]]:
        """Each server with its tools, for people."""
        servers: list[dict[str, object]] = [
            {
                "name": name,
                "state": server.state.value,
                "sign_in": server.sign_in,
                "detail": server.detail,
                "note": "; ".join(filter(None, ("signed in" if server.signed_in else "", server.note))),
                "tools": [{"name": tool.name, "description": tool.description[:MAX_TOLD]} for tool in server.tools],
            }
            for name, server in self.servers.items()
        ]
        return servers + [
            {"name": one.name, "state": "unusable", "sign_in": "", "detail": one.problem, "note": "", "tools": []}
            for one in self.misfits
        ]

    def listing(self) -> Mapping[str, object]:
        return {
            "object": "list",
            "data": [
                {
                    "id": tool.id,
                    "name": tool.tool.name,
                    "server": tool.server,
                    "description": tool.tool.description,
                    "inputSchema": tool.tool.schema,
                }
                for tool in self.catalogue.tools.values()
            ],
            "mcp": {**self.counts(), "problems": self.problems()},
        }
