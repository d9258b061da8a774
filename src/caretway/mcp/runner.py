"""Runs one MCP tool call, which always gives a result. Each progress notification restarts its timeout, for an hour at
most, or the timeout if that is longer. Cancelling the call informs the server.

Broken arguments, an absent server and other failures become results, so that the model can react.
"""

import asyncio
import json
import logging
from collections.abc import Callable

from ..core.request import ToolResult
from .connection import McpConnection, words
from .definitions import BridgeLimits, ServerDefinition
from .results import failure, tool_result

log = logging.getLogger(__name__)


async def run_call(
    connection: McpConnection | None,
    definition: ServerDefinition,
    tool: str,
    arguments: str,
    call_id: str,
    limits: BridgeLimits,
    timeout: float,
    why_gone: Callable[[], str],
) -> tuple[ToolResult, bool]:
    """(the result, whether the connection may be broken)."""
    name = definition.name
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as broken:
        return failure(call_id, f"The arguments are not valid JSON: {broken}. The tool was not run."), False
    if not isinstance(parsed, dict):
        return failure(call_id, "The arguments are not a JSON object. The tool was not run."), False
    if connection is None:
        return failure(call_id, f"The MCP server `{name}` is not available: {why_gone()}. The tool was not run."), False
    loop = asyncio.get_running_loop()
    latest = loop.time() + max(timeout, limits.call_timeout_total)
    try:
        async with asyncio.timeout(timeout) as limit:
            given = await connection.call(tool, parsed, lambda: limit.reschedule(min(latest, loop.time() + timeout)))
        return tool_result(call_id, given, text_bytes=limits.result_bytes, image_bytes=limits.image_bytes), False
    except TimeoutError:
        log.warning("MCP server %s: %s made no progress for %g s; the call was cancelled", name, tool, timeout)
        problem = f"The MCP server `{name}` gave no result within {timeout:g} s, and the call was cancelled."
        return failure(call_id, problem), True
    except Exception as refused:  # an error of the server, the network or the validation
        reason = definition.hide(connection.lost or words(refused))
        log.info("MCP server %s: %s failed: %s", name, tool, type(refused).__name__)
        return failure(call_id, f"The MCP server `{name}` failed to run `{tool}`: {reason}"), True
