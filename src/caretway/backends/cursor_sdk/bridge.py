"""The SDK's bridge processes: started under Node's permissions (no other files, no processes), leased to turns,
replaced when dead or above the memory limit, stopped when idle, killed with their group.

One that has outgrown the limit gets no more turns and ends with its last one, while a new one takes its place. The
SDK's package is imported here and in options.py, and only when a bridge is wanted.
"""

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ...core.errors import ErrorKind, GatewayError, gateway_stops
from ...processes.group import signal_group
from ...tasks import spawn
from . import supervisor
from .callbacks import CallbackServer
from .layout import Layout, bridge_environment

log = logging.getLogger(__name__)

PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
CLOSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class BridgeSetup:
    layout: Layout
    environment: Mapping[str, str]
    """The gateway's own; the bridge gets a small part of it."""
    backend_url: str | None = None
    ca_file: str | None = None
    start_timeout: float = 60.0
    memory_limit: int = 600 * 2**20
    idle_timeout: float | None = 900.0
    """None: never stopped for want of work."""


def bridge_command(layout: Layout) -> list[str]:
    """Node and its script themselves: the package's own launcher is a shell that leaves node behind when it ends.

    Switching the agent's built-in tools off, and its sandbox on, is a request to Cursor: the bridge still reads, writes
    and runs what the server asks for. Node's own permissions are what holds it: its files and ours, and no processes.
    """
    import cursor_sdk

    vendor = (Path(cursor_sdk.__file__).parent / "_vendor" / "bridge").resolve()
    node, script = vendor / "bin" / "node", vendor / "dist" / "bin" / "cursor-sdk-bridge.js"
    if missing := [path for path in (node, script) if not path.is_file()]:
        raise GatewayError(
            ErrorKind.UNSUPPORTED,
            f"The installed cursor-sdk has no bridge for this platform: {missing[0]} is missing.",
            hint="Reinstall it with `pip install --force-reinstall 'caretway[sdk]'`, or use --backend agent.",
        )
    # It looks for a repository around its working directory, and takes a refusal to look for a failure.
    looked_for = [parent / ".git" for parent in layout.root.parents]
    readable = [f"{vendor}/*", f"{layout.root}/*", "/dev/urandom", *looked_for]
    permissions = [f"--allow-fs-read={path}" for path in readable]
    # Addons: its database is one. Processes are not allowed, and so the SDK's own sandbox, which needs them, is off.
    return [str(node), "--permission", "--allow-addons", *permissions, f"--allow-fs-write={layout.root}/*", str(script)]


class SdkBridge:
    """One bridge process and the SDK's client of it."""

    def __init__(self, client: Any, http: Any) -> None:
        self.client = client
        self.gone = asyncio.get_running_loop().create_future()
        """Done, with its last words, when the process has ended."""
        self.pid = 0
        self.leases = 0
        self.retired = False
        self._http = http
        self._closing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return not self.gone.done()

    def memory(self) -> int | None:
        """Resident bytes; None where the system does not say."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
        except (OSError, ValueError, IndexError):
            return None

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = spawn(self._close(), "close-sdk-bridge")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        owned = self.client._owned_bridge
        try:
            async with asyncio.timeout(CLOSE_S):
                try:
                    await self.client.aclose()
                except _no_goodbye() as unable:
                    # The SDK says goodbye with an httpx client of its own, which wants one more package for a SOCKS
                    # proxy, and fails on a proxy's address that it cannot read. That is before anything is closed; its
                    # words may hold a password.
                    log.info("the SDK's bridge is ended without a goodbye: %s", type(unable).__name__)
                    await _end_without_goodbye(owned)
                await self._http.aclose()
        except TimeoutError:
            log.warning("the SDK's bridge did not close within %.0f s", CLOSE_S)
        finally:
            if self.pid and self.alive:
                signal_group(self.pid, signal.SIGKILL)


def _no_goodbye() -> tuple[type[Exception], ...]:
    import httpx

    return ImportError, ValueError, httpx.InvalidURL


async def _end_without_goodbye(owned: Any) -> None:
    """What the SDK does after its goodbye: the process ends, and so does the server for tools, which nobody used."""
    process, tools = owned.process, owned._tool_callback_server
    if process.returncode is None:
        process.terminate()
        await process.wait()
    if tools is not None:
        tools.close()


class Bridges:
    def __init__(self, setup: BridgeSetup, callbacks: CallbackServer) -> None:
        self._setup = setup
        self._callbacks = callbacks
        self._current: SdkBridge | None = None
        self._others: set[SdkBridge] = set()
        self._starting: asyncio.Task[SdkBridge | GatewayError] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._serving = False
        self._closed = False
        self.started = 0

    @property
    def current(self) -> SdkBridge | None:
        bridge = self._current
        return bridge if bridge is not None and bridge.alive else None

    async def lease(self, *, work: bool = True) -> SdkBridge:
        """A live bridge, started if there is none. Give it back with `release`. Only work keeps it from being idle."""
        if self._closed:
            raise gateway_stops()
        if work and self._idle is not None:
            self._idle.cancel()
            self._idle = None
        bridge = self.current
        if bridge is None:
            if self._starting is None:
                self._retire()
                self._starting = spawn(self._start(), "start-sdk-bridge")
            started = await asyncio.shield(self._starting)  # it serves others too: nobody's cancellation stops it
            if isinstance(started, GatewayError):
                raise started
            bridge = started
        bridge.leases += 1
        return bridge

    def release(self, bridge: SdkBridge) -> None:
        bridge.leases -= 1
        if bridge is self._current and (memory := bridge.memory()) is not None and memory > self._setup.memory_limit:
            log.info("the SDK's bridge has grown to %d MB and is replaced", memory // 2**20)
            self._retire()
        if bridge.retired and not bridge.leases:
            spawn(self._end(bridge), "end-sdk-bridge")
        elif bridge is self._current and not bridge.leases and self._idle is None:
            self._rest()

    async def aclose(self) -> None:
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
        if self._starting is not None:
            await asyncio.shield(self._starting)
        self._retire()
        await asyncio.gather(*(self._end(bridge) for bridge in list(self._others)))

    # ---- within

    def _rest(self) -> None:
        if self._setup.idle_timeout is not None:
            self._idle = asyncio.get_running_loop().call_later(self._setup.idle_timeout, self._stop_idle)

    def _stop_idle(self) -> None:
        self._idle = None
        bridge = self._current
        if bridge is not None and not bridge.leases:
            log.info("the SDK's bridge is stopped: nobody used it for a while")
            self._retire()
            spawn(self._end(bridge), "end-sdk-bridge")

    def _retire(self) -> None:
        """The current bridge gets no more turns."""
        bridge, self._current = self._current, None
        if bridge is not None:
            bridge.retired = True
            self._others.add(bridge)
            if not bridge.alive and not bridge.leases:
                spawn(self._end(bridge), "end-sdk-bridge")

    async def _end(self, bridge: SdkBridge) -> None:
        await bridge.aclose()
        self._others.discard(bridge)

    async def _start(self) -> SdkBridge | GatewayError:
        """A failure is given to all who wait for the bridge, and so is a value here."""
        try:
            if not self._serving:
                self._setup.layout.make()
                await self._callbacks.start()
                self._serving = True
            self._current = bridge = await self._launch()
            self.started += 1
            log.info("the SDK's bridge runs as process %d", bridge.pid)
            return bridge
        except GatewayError as failure:
            return failure
        finally:
            self._starting = None

    async def _launch(self) -> SdkBridge:
        import cursor_sdk
        import httpx

        setup, layout = self._setup, self._setup.layout
        token = secrets.token_urlsafe(16)
        life: asyncio.Future[Life] = asyncio.get_running_loop().create_future()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            said, _, pid = (await reader.readline()).decode("ascii", "replace").strip().partition(" ")
            if secrets.compare_digest(said, token) and pid.isdigit() and not life.done():
                life.set_result(Life(int(pid), reader, writer))
            else:
                writer.close()

        watching = await asyncio.start_server(connected, "127.0.0.1", 0)
        plan = {
            "command": bridge_command(layout),
            "replace": {
                "--tool-callback-url": self._callbacks.url,
                "--tool-callback-auth-token": self._callbacks.token,
            },
            "env": bridge_environment(
                setup.environment,
                layout,
                backend_url=setup.backend_url,
                ca_file=setup.ca_file,
                sdk_version=version("cursor-sdk"),
            ),
            "cwd": str(layout.scratch),
            "port": watching.sockets[0].getsockname()[1],
            "token": token,
        }
        plan_file = layout.root / f"plan-{token}.json"
        _write_private(plan_file, json.dumps(plan))
        # Runs and parked calls hold a connection each; the user's proxies have no business on the loopback interface.
        http = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_connections=None))
        try:
            client = await cursor_sdk.AsyncClient.launch_bridge(
                [sys.executable, "-I", "-S", supervisor.__file__, str(plan_file)],
                workspace=layout.scratch,
                state_root=layout.state,
                timeout=setup.start_timeout,
                http_client=http,
                allow_api_key_env_fallback=False,
            )
        except (cursor_sdk.CursorAgentError, OSError) as failure:
            await http.aclose()
            raise GatewayError(
                ErrorKind.UPSTREAM_DOWN,
                f"The Cursor SDK's bridge did not start: {' '.join(str(failure).split())[:500]}",
                hint="Try again; if it stays so, reinstall with `pip install --force-reinstall 'caretway[sdk]'`.",
            ) from failure
        finally:
            plan_file.unlink(missing_ok=True)
            watching.close()
        bridge = SdkBridge(client, http)
        try:
            async with asyncio.timeout(setup.start_timeout):
                held = await life  # sent before the line that the SDK waited for
        except TimeoutError as lost:
            await bridge.aclose()
            raise GatewayError(ErrorKind.UPSTREAM_DOWN, "The Cursor SDK's bridge ended while it started.") from lost
        bridge.pid = held.pid
        spawn(self._watch(bridge, held), "watch-sdk-bridge")
        return bridge

    async def _watch(self, bridge: SdkBridge, life: "Life") -> None:
        """Until the watching program says that the bridge ended, or is gone itself."""
        try:
            last_words = await life.reader.read()
        except OSError:
            last_words = b""
        bridge.gone.set_result(last_words.decode("utf-8", "replace"))
        life.writer.close()
        with suppress(OSError):
            await life.writer.wait_closed()
        if not bridge.retired and not self._closed:
            log.warning("the SDK's bridge (process %d) ended by itself: %s", bridge.pid, last_words[-500:])
        signal_group(bridge.pid, signal.SIGKILL)  # nothing of the group outlives its watcher
        if bridge is self._current:
            self._retire()


@dataclass(frozen=True, slots=True)
class Life:
    """The connection that the watching program holds."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
