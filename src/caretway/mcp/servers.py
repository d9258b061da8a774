"""One supervised MCP server: its tools are listed again after tools/list_changed, and every minute if it is remote; it
is restarted with exponential backoff. While it is down, its tools are not offered and calls fail with the reason.

A failing server does not affect other servers. The connection opens and closes in one task, as the SDK's task groups
require. A call always gives a result: its failures become results, so that the model can react.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from ..core.request import ToolResult
from .connection import Connector, McpConnection, innermost, words
from .definitions import BridgeLimits, Process, ServerDefinition, pause_before
from .results import failure, tool_result
from .sign_ins import SignInNeeded, SignInState
from .tools import ListedTool

log = logging.getLogger(__name__)


MAX_NOTE: Final = 500


class McpServerState(Enum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILING = "failing"
    """The server is not available and will be retried."""
    SIGNED_OUT = "signed out"
    """The server needs a sign-in; it is retried meanwhile. Its last tools are still offered, because a call's error
    tells the client how to sign in."""
    STOPPED = "stopped"


class _Lost(Exception):
    """An open connection can no longer be used."""


class McpServer:
    def __init__(
        self, definition: ServerDefinition, limits: BridgeLimits, connect: Connector, changed: Callable[[], None]
    ) -> None:
        self.definition = definition
        self.state = McpServerState.CONNECTING
        self.detail = ""
        """Why the server is not connected."""
        self.note = ""
        """A problem of a connected server, such as tools that were left out."""
        self.sign_in: SignInState = ""
        self.tools: tuple[ListedTool, ...] = ()
        self.tried = asyncio.Event()
        """Set after the first attempt, successful or not."""
        self._limits = limits
        self._connect = connect
        self._changed = changed
        self._connection: McpConnection | None = None
        self._complaint = ""

    async def run(self) -> None:
        """Supervise the server until this is cancelled. It may run again afterwards."""
        failures = 0
        self.state, self.detail = McpServerState.CONNECTING, ""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                missing: SignInNeeded | None = None
                try:
                    await self._live()
                except TimeoutError:
                    why = f"it did not answer within {self._patience:g} s"
                except Exception as failure:  # any failure of the SDK, a process or the network is retried
                    why, cause = words(failure), innermost(failure)
                    missing = cause if isinstance(cause, SignInNeeded) else None
                lasted = loop.time() - began
                failures = 1 if self._connection is not None and lasted > self._limits.longest_pause else failures + 1
                pause = pause_before(failures, self._limits)
                why = self.definition.hide(why)
                level = logging.DEBUG if why == self._complaint else logging.WARNING  # warn once
                self._complaint = why
                self.sign_in = missing.state if missing is not None else ""
                self._gone(McpServerState.FAILING if missing is None else McpServerState.SIGNED_OUT, why)
                log.log(
                    level,
                    "MCP server %s is not available: %s (next attempt in %g s)",
                    self.definition.name,
                    self.detail,
                    pause,
                )
                if missing is None:
                    await asyncio.sleep(pause)
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await missing.changed()
        finally:
            self._gone(McpServerState.STOPPED, "the gateway is stopping")

    @property
    def signed_in(self) -> bool:
        return self.sign_in == "signed in"

    @property
    def _patience(self) -> float:
        return self.definition.connect_timeout or self._limits.connect_timeout

    async def _live(self) -> None:
        async with asyncio.timeout(self._patience) as limit, self._connect(self.definition) as connection:
            self._take(await connection.tools(), connection)
            limit.reschedule(None)
            self._connection = connection
            self.state, self.detail, self._complaint = McpServerState.CONNECTED, "", ""
            self.sign_in = connection.sign_in
            log.info("MCP server %s is connected, tools: %d", self.definition.name, len(self.tools))
            self.tried.set()
            self._changed()
            await self._watch(connection)

    async def _watch(self, connection: McpConnection) -> None:
        """List the tools again after each change, and those of a remote server every `check_interval`. Raises _Lost if
        that fails or the connection ends, or SignInNeeded."""
        remote = not isinstance(self.definition.reached, Process)
        while True:
            try:
                async with asyncio.timeout(self._limits.check_interval if remote else None):
                    await connection.news.wait()
            except TimeoutError:
                pass
            connection.news.clear()
            if connection.lost is not None:
                raise _Lost(connection.lost)
            try:
                async with asyncio.timeout(self._patience):
                    tools = await connection.tools()
            except TimeoutError:
                raise _Lost("it stopped answering") from None
            except SignInNeeded:
                raise
            except Exception as failure:  # the SDK may raise any exception
                raise _Lost(words(failure)) from failure
            self._take(tools, connection)
            await asyncio.sleep(self._limits.relist_pause)

    def _take(self, tools: list[ListedTool], connection: McpConnection) -> None:
        left_out = "; ".join(f"{name}: {reason}" for name, reason in connection.left_out.items())
        self.note = f"left out: {left_out}"[:MAX_NOTE] if left_out else ""
        if tuple(tools) != self.tools:
            self.tools = tuple(tools)
            self._changed()

    def _gone(self, state: McpServerState, detail: str) -> None:
        self.state, self.detail, self.note = state, detail, ""
        if state is not McpServerState.SIGNED_OUT:
            self.tools = ()
        self._connection = None
        self.tried.set()
        self._changed()

    async def call(self, tool: str, arguments: str, call_id: str) -> ToolResult:
        """Call a tool. Each progress notification restarts the timeout, for an hour at most, or the timeout if that is
        longer. Cancelling the call informs the server."""
        name, connection = self.definition.name, self._connection
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as broken:
            return failure(call_id, f"The arguments are not valid JSON: {broken}. The tool was not run.")
        if not isinstance(parsed, dict):
            return failure(call_id, "The arguments are not a JSON object. The tool was not run.")
        if connection is None:
            return failure(call_id, f"The MCP server `{name}` is not available: {self.detail}. The tool was not run.")
        loop, limits = asyncio.get_running_loop(), self._limits
        timeout = self.definition.call_timeout or limits.call_timeout
        latest = loop.time() + max(timeout, limits.call_timeout_total)
        try:
            async with asyncio.timeout(timeout) as limit:
                given = await connection.call(
                    tool, parsed, lambda: limit.reschedule(min(latest, loop.time() + timeout))
                )
            return tool_result(call_id, given, text_bytes=limits.result_bytes, image_bytes=limits.image_bytes)
        except TimeoutError:
            log.warning("MCP server %s: %s made no progress for %g s; the call was cancelled", name, tool, timeout)
            problem = f"The MCP server `{name}` gave no result within {timeout:g} s, and the call was cancelled."
        except Exception as refused:  # an error of the server, the network or the validation
            log.info("MCP server %s: %s failed: %s", name, tool, type(refused).__name__)
            reason = self.definition.hide(connection.lost or words(refused))
            problem = f"The MCP server `{name}` failed to run `{tool}`: {reason}"
        connection.news.set()  # the supervisor checks the connection, and reconnects if it is lost
        return failure(call_id, problem)
