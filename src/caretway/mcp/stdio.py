"""An MCP server as a child process: limits its environment, the length of lines, lines that are not messages, and
read-ahead (backpressure); gives the last stderr line as reason; stops it by closing stdin, SIGTERM, then SIGKILL.

The SDK interprets the messages.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from ..processes.child import CannotStart, Child, Command, Exit, Pipe, start_child
from ..processes.lines import LineReader, TooLong
from ..processes.tasks import spawn
from .definitions import BridgeLimits, Process

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

log = logging.getLogger(__name__)

INHERITED: Final = frozenset(
    {
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
        *("TMPDIR", "TEMP", "TMP"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
    }
)
"""The variables that every server inherits. Keys and tokens are not inherited: a definition must name them."""

_AHEAD: Final = 256
"""Lines that are read ahead of the session."""
_COMPLAINT_CHARS: Final = 500
_STDERR_GRACE_S: Final = 0.2
_CLOSED: Final[Mapping[Pipe, str]] = {"stdout": "it closed its output", "stdin": "it closed its input"}
"""Pipe -> the reason when it closes. The exit code, which often follows a moment later, replaces the reason."""


class Broken(Exception):
    """The process broke the protocol or ended."""


def server_environment(process: Process, environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name in INHERITED} | dict(process.env)


class ServerProcess:
    """Reads one process (a `ChildSink`). `over` is True after its last line; `reason` holds the cause."""

    def __init__(self, limits: BridgeLimits, children: set[Child]) -> None:
        self.over = False
        self.reason = ""
        self._limits = limits
        self._children = children
        self._lines: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._reader = LineReader(limits.message_bytes)
        self._hopeless = False
        self._child: Child | None = None

    async def start(self, process: Process, environment: Mapping[str, str]) -> None:
        command = Command((process.command, *process.args), process.cwd, environment)
        try:
            self._child = await start_child(
                command, self, closed=self._closed, grace=self._limits.stop_grace, among=self._children
            )
        except CannotStart as failure:
            raise Broken(str(failure)) from failure

    # ---- callbacks from the child

    def data(self, data: bytes) -> None:
        if self.over:
            return  # discard the output: a process that is blocked in a write cannot stop
        for line in self._reader.feed(data):
            if isinstance(line, TooLong):
                self.give_up(f"it wrote {line}")
                return
            self._lines.append(line)
        if len(self._lines) > _AHEAD and self._child is not None:
            self._child.pause()
        self._news.set()

    def ended(self, exit_: Exit) -> None:
        if self.reason in _CLOSED.values():
            self.reason = ""
        self.end(_ending(exit_.code))

    def _closed(self, pipe: Pipe) -> None:
        self.end(_CLOSED[pipe])

    # ---- for the tasks of `stdio_streams`

    def end(self, reason: str) -> None:
        self.over = True
        self.reason = self.reason or reason
        self._news.set()
        if self._child is not None:
            self._child.resume()
            self._child.writable.set()  # nothing waits to write any more

    def give_up(self, reason: str) -> None:
        """Kill a server that breaks the protocol, without a grace period."""
        self._hopeless = True
        self._lines.clear()
        self.end(reason)

    async def line(self) -> bytes | None:
        """The next line; None after the last line."""
        while not self._lines:
            if self.over:
                return None
            self._news.clear()
            await self._news.wait()
        if len(self._lines) <= _AHEAD // 2 and self._child is not None:
            self._child.resume()
        return self._lines.popleft()

    async def write(self, data: bytes) -> None:
        assert self._child is not None
        await self._child.writable.wait()
        if self.over:
            raise Broken(self.reason)
        self._child.write(data)

    async def why(self) -> str:
        """The reason with the last line of stderr, which may arrive after the exit."""
        assert self._child is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_STDERR_GRACE_S):
                await self._child.wait()
        last = next((line for line in reversed(self._child.stderr.splitlines()) if line.strip()), "")
        return f"{self.reason}; its output: {last.rstrip()[:_COMPLAINT_CHARS]}" if last else self.reason

    async def stop(self) -> None:
        """Close the process's input, then send SIGTERM to the whole group, then SIGKILL."""
        assert self._child is not None
        self.end("it was stopped")
        self._child.close_stdin()
        grace = self._limits.stop_grace
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self._hopeless else grace):
                await self._child.wait()
        with suppress(TimeoutError):  # only the operating system can delay a killed process
            async with asyncio.timeout(3 * grace):
                await self._child.aclose()


def _ending(code: int) -> str:
    if code < 0:
        return f"it was killed by signal {-code}"
    return f"it ended with exit code {code}"


@asynccontextmanager
async def stdio_streams(
    process: Process,
    environment: Mapping[str, str],
    limits: BridgeLimits,
    ended: Callable[[str], None],
    children: set[Child],
) -> AsyncIterator["TransportStreams"]:
    """The streams for an SDK session. `ended` receives the reason when the process can no longer be used. `children`
    holds the process while it runs, because a cancelled caller may not wait for its end."""
    import anyio
    from mcp.shared.message import SessionMessage

    running = ServerProcess(limits, children)
    await running.start(process, environment)
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        spawn(_carry_in(running, to_session, limits, ended), "mcp-stdout"),
        spawn(_carry_out(running, from_session), "mcp-stdin"),
    ]
    try:
        yield from_server, to_server
    finally:
        for task in tasks:
            task.cancel()
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()
        # A separate task ends the process even if the caller stops waiting.
        await asyncio.shield(spawn(running.stop(), "mcp-stop"))


async def _carry_in(
    running: ServerProcess, to_session: Any, limits: BridgeLimits, ended: Callable[[str], None]
) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    noise = 0
    async with to_session:
        while (line := await running.line()) is not None:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                noise += 1
                if noise == 1:
                    log.info("an MCP server writes lines to its output that are not messages; they are ignored")
                if noise > limits.noise_lines:
                    running.give_up(f"it wrote more than {limits.noise_lines} lines that are not messages")
                continue
            try:
                await to_session.send(SessionMessage(message))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                running.end("its session is closed")
        ended(await running.why())


async def _carry_out(running: ServerProcess, from_session: Any) -> None:
    async with from_session:
        async for message in from_session:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await running.write(data.encode() + b"\n")
            except Broken:
                return
