"""Which MCP servers the settings mean, and whether the gateway offers their tools: never to other people's accounts,
since the servers use the owner's files and credentials.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .config import Settings, process_environment, process_home

if TYPE_CHECKING:
    from .mcp_bridge.bridge import McpBridge
    from .processes.child import Child


def offers_mcp(settings: Settings) -> bool:
    return settings.mcp_offer != "never" and settings.auth_mode != "passthrough"


def mcp_bridge(settings: Settings, only: str = "") -> "McpBridge | None":
    """The MCP servers in the settings (or only the one named `only`), not yet started; None if there are none."""
    if not (settings.mcp or settings.mcp_config or settings.mcp_import):
        return None
    from .mcp_bridge.definitions import BridgeLimits
    from .mcp_bridge.sources import SourceContext
    from .mcp_bridge.sources import find as find_mcp_servers

    found = find_mcp_servers(
        settings.mcp or {},
        settings.mcp_config,
        settings.mcp_import,
        SourceContext(process_environment(), process_home(), settings.workspace or Path.cwd()),
    )
    if only:
        found = replace(found, definitions=tuple(one for one in found.definitions if one.name == only))
    if not found.definitions and not found.misfits:
        return None
    from .mcp_bridge.bridge import McpBridge
    from .mcp_bridge.connection import connector

    limits = BridgeLimits(
        connect_timeout=settings.mcp_connect_timeout,
        call_timeout=settings.mcp_call_timeout,
        result_bytes=settings.mcp_result_bytes,
        max_tools=settings.mcp_max_tools,
        start_wait=settings.mcp_start_wait,
        first_pause=settings.mcp_retry_pause,
    )
    children: set[Child] = set()
    return McpBridge(found, limits, connector(process_environment(), limits, children), children)


@asynccontextmanager
async def open_mcp_bridge(settings: Settings, only: str = "") -> AsyncIterator["McpBridge | None"]:
    """Only the MCP servers: connected in the background, stopped at the end."""
    bridge = mcp_bridge(settings, only)
    if bridge is None:
        yield None
        return
    bridge.start()
    try:
        yield bridge
    finally:
        await bridge.aclose()
