"""A stdio server's process: starts it in a group of its own, carries messages in both directions, ends the whole group.

Everything is bounded: the length of a line, lines that are no messages, what is read ahead, what is kept of its
complaints, and the time it gets to stop. What the messages mean is the SDK's business.
"""

import asyncio
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from ..tasks import spawn
from .definitions import BridgeLimits, Process

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

log = logging.getLogger(__name__)

INHERITED: Final = frozenset(
    {
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "COMSPEC", "WINDIR"),
    }
)
"""What every server gets of our environment. Keys and tokens are not in it: those a server is given by name."""

_AHEAD: Final = 256
"""Lines that are read before the session asked for them."""
_COMPLAINTS: Final = 20
_COMPLAINT_BYTES: Final = 500
_LAST_WORDS_S: Final = 0.2
NO_OUTPUT: Final = "it closed its output"
NO_INPUT: Final = "it closed its input"
_VAGUE: Final = (NO_OUTPUT, NO_INPUT)
"""The pipes of a process often close a moment before its end is known, and that says more."""


_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)


class Broken(Exception):
    """The process does not keep to the protocol, or is gone."""


def server_environment(process: Process, environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name in INHERITED} | dict(process.env)


class Lines:
    """Bytes -> whole lines, drip-fed. Raises Broken as soon as a line is longer than allowed."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[bytes]:
        head, newline, tail = data.partition(b"\n")
        self._length += len(head)
        if self._length > self._longest:
            raise Broken(f"it wrote a line of more than {self._longest} bytes")
        self._rest.append(head)
        if not newline:
            return []
        lines = [b"".join(self._rest), *tail.split(b"\n")]
        rest = lines.pop()
        self._rest, self._length = [rest], len(rest)
        return [line for line in (one.strip() for one in lines) if line]


class ServerProcess(asyncio.SubprocessProtocol):
    """The event loop's side of one process. `ended` is set when nothing more will come, `reason` says why."""

    def __init__(self, limits: BridgeLimits) -> None:
        self.exited = asyncio.Event()
        self.news = asyncio.Event()
        self.fell_silent = asyncio.Event()
        """Nothing more will be heard of its complaints."""
        self.writable = asyncio.Event()
        self.writable.set()
        self.lines: deque[bytes] = deque()
        self.ended = False
        self.reason = ""
        self.complaints: deque[str] = deque(maxlen=_COMPLAINTS)
        self._limits = limits
        self._out = Lines(limits.message_bytes)
        self._complaint = b""
        self._held = False
        self._hopeless = False
        self._transport: asyncio.SubprocessTransport | None = None

    # ---- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport) or hasattr(transport, "get_pid")
        self._transport = transport  # type: ignore[assignment]  # uvloop's is one in all but ancestry

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._complain(data)
            return
        if self.ended:
            return  # read on and forget: a process that is stuck writing cannot notice that it should stop
        try:
            self.lines.extend(self._out.feed(data))
        except Broken as broken:
            self.give_up(str(broken))
            return
        if len(self.lines) > _AHEAD and not self._held:
            self._held = True
            self._stdout().pause_reading()
        self.news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self.end(NO_OUTPUT)
        elif fd == 0:
            self.end(NO_INPUT)
        else:
            self.fell_silent.set()

    def process_exited(self) -> None:
        code = self._transport.get_returncode() if self._transport is not None else None
        if self.reason in _VAGUE:
            self.reason = ""
        self.end(_ending(code))
        self.exited.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("it is gone")
        self.exited.set()

    # ---- for the tasks beside it

    def end(self, reason: str) -> None:
        self.ended = True
        self.reason = self.reason or reason
        self.writable.set()
        self.news.set()
        if self._held and self._transport is not None:
            self._held = False
            self._stdout().resume_reading()

    def give_up(self, reason: str) -> None:
        """It does not keep to the protocol: no use in asking it politely to stop."""
        self._hopeless = True
        self.lines.clear()
        self.end(reason)

    async def line(self) -> bytes | None:
        """The next line; None when there are no more."""
        while not self.lines:
            if self.ended:
                return None
            self.news.clear()
            await self.news.wait()
        if self._held and len(self.lines) <= _AHEAD // 2:
            self._held = False
            self._stdout().resume_reading()
        return self.lines.popleft()

    async def write(self, data: bytes) -> None:
        await self.writable.wait()
        if self.ended:
            raise Broken(self.reason)
        self._stdin().write(data)

    async def why(self) -> str:
        """Its last words are often the reason, and may come after its end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self.fell_silent.wait()
                await self.exited.wait()
        last = next((line for line in reversed(self.complaints) if line.strip()), "")
        return f"{self.reason}; it said: {last}" if last else self.reason

    async def stop(self) -> None:
        """Its input is closed, then the whole group is told to stop, then it is killed. Leaves nothing behind."""
        transport = self._transport
        assert transport is not None
        self.end("it was stopped")
        with suppress(OSError, RuntimeError):
            self._stdin().close()
        pid = transport.get_pid()
        for number in (None, signal.SIGTERM, _KILL):
            if number is not None:
                self._signal(pid, number)
            elif self._hopeless:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.stop_grace):
                    await self.exited.wait()
                break
        # Its own children may have outlived it: a wrapper such as npx, or a server that does not mind them.
        self._signal(pid, _KILL)
        with suppress(OSError):
            transport.close()

    def _signal(self, pid: int, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                if self._transport is not None:
                    self._transport.kill()
            else:
                os.killpg(pid, number)

    def _complain(self, data: bytes) -> None:
        *lines, rest = (self._complaint + data).split(b"\n")
        self._complaint = rest[:_COMPLAINT_BYTES]
        self.complaints.extend(line[:_COMPLAINT_BYTES].decode("utf-8", "replace").rstrip() for line in lines)

    def _stdin(self) -> asyncio.WriteTransport:
        pipe: Any = self._transport.get_pipe_transport(0) if self._transport is not None else None
        if pipe is None:
            raise Broken(NO_INPUT)
        return pipe  # type: ignore[no-any-return]  # typed as the base of all transports

    def _stdout(self) -> Any:
        assert self._transport is not None
        return self._transport.get_pipe_transport(1) or _NoPipe()


class _NoPipe:
    """The pipe is closed already."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"it was killed by signal {-code}"
    return f"it ended with exit code {code}"


@asynccontextmanager
async def stdio_streams(
    process: Process,
    environment: Mapping[str, str],
    limits: BridgeLimits,
    ended: Callable[[str], None],
) -> AsyncIterator["TransportStreams"]:
    """The streams that an SDK session speaks over. `ended` hears why the process is of no use any more."""
    import anyio
    from mcp.shared.message import SessionMessage

    loop = asyncio.get_running_loop()
    try:
        _, running = await loop.subprocess_exec(
            lambda: ServerProcess(limits),
            process.command,
            *process.args,
            env=dict(environment),
            cwd=process.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else failure
        raise Broken(f"`{process.command}` cannot be started: {reason}") from failure
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
        # A task of its own: whoever is in a hurry may stop waiting, the process ends all the same.
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
                    log.info("an MCP server writes lines to its output that are no messages; they are left out")
                if noise > limits.noise_lines:
                    running.give_up(f"it wrote more than {limits.noise_lines} lines that are no messages")
                continue
            try:
                await to_session.send(SessionMessage(message))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                running.end("nobody listens to it any more")
        ended(await running.why())


async def _carry_out(running: ServerProcess, from_session: Any) -> None:
    async with from_session:
        async for message in from_session:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await running.write(data.encode() + b"\n")
            except Broken:
                return
