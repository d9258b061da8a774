"""Starts, checks and shares the Node.js processes that run the SDK: a process is replaced if it is dead, spoiled or
above the memory limit, and stopped when idle; after repeated deaths the next start waits. Exchanges frames.

A process ends when its input ends, so no process outlives the gateway. A process above the memory limit gets no more
turns and ends after its last turn, while a new process replaces it.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ...core.errors import ErrorKind, GatewayError, gateway_stops
from ...installation import install_command
from ...processes.child import CannotStart, Child, Command, Exit
from ...processes.child_group import ChildGroup
from ...processes.lines import LineReader
from ...processes.memory import resident_bytes
from ...processes.tasks import spawn
from .frames import Frame, SdkMessage, bridge_lost, fault_of, read_frame, sdk_unfit

# ---- The command line of the SDK's Node.js process: Node's permissions (read the package, write nothing, start
# nothing), the addresses that guard.mjs permits, and a minimal environment. Pure.
#
# A server can call the SDK's built-in tools with any arguments. These limits confine the tools; the SDK does not.

HERE: Final = Path(__file__).resolve().parent
GUARD: Final = HERE / "guard.mjs"
BRIDGE: Final = HERE / "bridge.mjs"
PARTS: Final = (HERE / "attempts.mjs", HERE / "order.mjs")
"""Modules that the bridge imports."""
CURSOR_DOMAINS: Final = ("cursor.sh", "cursor.com")
PORTS: Final = {"http": 80, "https": 443}
SMALL: Final = ("--optimize-for-size", "--max-semi-space-size=8", "--no-maglev", "--max-optimized-bytecode-size=2048")
"""Node options that save memory: optimising one large function of the SDK occupies 20 MB permanently."""


@dataclass(frozen=True, slots=True)
class SdkInstall:
    node: Path
    modules: Path
    """The `node_modules` with the SDK, as a path without symbolic links, because Node's permissions are by path."""

    @property
    def entry(self) -> Path:
        return self.modules / "@cursor" / "sdk" / "dist" / "esm" / "index.js"


def egress(urls: Iterable[str], *, stand_in: bool) -> dict[str, list[str]]:
    """What the process may connect to: `own`, the host and port of each URL, and `domains`, Cursor's domains, because
    its API may name further hosts there. `stand_in`: the API is not Cursor's, so `domains` is empty."""
    places = map(urlsplit, urls)
    own = {f"{at.hostname.rstrip('.')}:{at.port or PORTS.get(at.scheme, 443)}" for at in places if at.hostname}
    return {"own": sorted(own), "domains": [] if stand_in else list(CURSOR_DOMAINS)}


def node_command(
    install: SdkInstall,
    root: Path,
    allowed: Mapping[str, list[str]],
    *,
    backend_url: str | None = None,
    ca_file: str | None = None,
    script: Path = BRIDGE,
) -> Command:
    """The command for the process. `root` is its working directory, which is empty. `backend_url` is the address of a
    stand-in; by default the SDK uses its own address."""
    # A path that does not exist serves as home, working directory, directory of temporary files and program path.
    top = Path(root.anchor)
    absent = top / "caretway-absent" / "here"
    # The SDK looks for a repository in its apparent directory, and fails if that lookup is refused.
    looked_at = [absent.parent / "*", top / "node_modules" / "@cursor" / "*", top / ".git"]
    readable = [install.modules / "*", GUARD, script, *PARTS, *looked_at]
    argv = [
        str(install.node),
        "--permission",
        *(f"--allow-fs-read={path}" for path in readable),
        "--disable-sigusr1",
        "--no-warnings",
        *SMALL,
        f"--import={GUARD.as_uri()}",
        str(script),
    ]
    environment = {
        **dict.fromkeys(("HOME", "PATH", "TMPDIR", "CURSOR_DATA_DIR"), str(absent)),
        "CARETWAY_EGRESS": json.dumps({**allowed, "absent": str(absent)}),
        "CARETWAY_SDK": install.entry.as_uri(),
        "MALLOC_ARENA_MAX": "1",  # otherwise each thread keeps its freed memory
    }
    if backend_url is not None:
        environment |= {"CURSOR_BACKEND_URL": backend_url, "CURSOR_WEBSITE_URL": backend_url}
    if ca_file is not None:
        environment["NODE_EXTRA_CA_CERTS"] = ca_file
    return Command(argv, str(root), environment)


log = logging.getLogger(__name__)

EARLY_S: Final = 10.0
"""A process that dies within this time counts as a repeated death."""
MAX_REST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BridgeSetup:
    command: Callable[[], Command]
    """Returns the command. Raises GatewayError if the SDK is not installed."""
    start_timeout: float = 60.0
    call_timeout: float = 30.0
    memory_limit: int = 600 * 2**20
    idle_timeout: float = 900.0
    stops_idle: bool = True
    frame_bytes: int = 96 * 2**20


Hear = Callable[[list[SdkMessage] | None], None]
"""Receives the bridge's messages of one run; None when the bridge is gone."""


class SdkBridge:
    """One Node.js process that runs the SDK. Call `start` first."""

    def __init__(self, setup: BridgeSetup) -> None:
        loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[Exit] = loop.create_future()
        """Done when the process has ended."""
        self.leases = 0
        self.spoiled = self.broken = False
        self.started_at = loop.time()
        self._setup = setup
        self._child: Child | None = None
        self._lines = LineReader(setup.frame_bytes)
        self._ready: asyncio.Future[str] = loop.create_future()
        self._runs: dict[int, Hear] = {}
        self._last = 0

    @property
    def pid(self) -> int:
        return self._child.pid if self._child is not None else 0

    @property
    def alive(self) -> bool:
        return not (self.gone.done() or self.spoiled or self.broken)

    async def start(self, children: ChildGroup) -> None:
        """Start the process. After a GatewayError no process is left."""
        try:
            self._child = await children.start(self._setup.command(), self)
            async with asyncio.timeout(self._setup.start_timeout):
                unfit = await asyncio.shield(self._ready)
        except (CannotStart, TimeoutError) as failure:
            await self.aclose()
            said = str(failure) or f"not ready within {self._setup.start_timeout:.0f} s"
            raise _not_started(said) from failure
        if unfit:
            await self.aclose()
            raise sdk_unfit(f"it does not do what it is asked: {unfit}")

    # ---- frames

    def listen(self, hear: Hear) -> int:
        """Register a listener for a new run. Returns the run's number."""
        self._last += 1
        self._runs[self._last] = hear
        if self.gone.done():
            asyncio.get_running_loop().call_soon(hear, None)
        return self._last

    def forget(self, run: int) -> None:
        self._runs.pop(run, None)

    def tell(self, frame: Mapping[str, Any]) -> None:
        if self._child is not None:
            self._child.write(msgspec.json.encode(frame) + b"\n")

    async def room(self) -> None:
        """Wait until the process accepts more input (backpressure)."""
        if self._child is not None:
            await self._child.writable.wait()

    async def call(self, operation: str, api_key: str = "", **fields: str) -> Any:
        """Ask the bridge one question and return its answer. Raises GatewayError."""
        answer: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()
        number = self.listen(
            lambda frames: None if answer.done() else answer.set_result(frames[0][0] if frames else None)
        )
        try:
            self.tell({"op": operation, "n": number, "key": api_key, **fields})
            async with asyncio.timeout(self._setup.call_timeout / (3 if operation == "ping" else 1)):
                frame = await answer
        except TimeoutError as late:
            if operation != "ping":
                spawn(self.prove(), "sdk-bridge-ping")
            raise GatewayError(ErrorKind.TIMEOUT, "The Cursor SDK did not answer in time.") from late
        finally:
            self.forget(number)
        if frame is None or frame.thrown:
            raise bridge_lost() if frame is None else fault_of(frame)
        return frame.value

    async def prove(self) -> None:
        """Check a silent process with a ping, and end the process if it does not answer."""
        try:
            await self.call("ping")
        except GatewayError as failure:
            self._break_off(failure)

    def _break_off(self, why: Exception) -> None:
        if self._child is not None and not self.gone.done():
            self.broken = True
            log.error("the SDK's bridge does not answer as it should, and is ended: %s", why)
            self._child.terminate()

    # ---- the child's output

    def data(self, data: bytes) -> None:
        by_run: dict[int, list[SdkMessage]] = {}
        for line in self._lines.feed(data):
            try:
                frame, message = read_frame(line)
            except ValueError as broken:
                self._break_off(broken)
                break
            if frame.n >= 0:
                by_run.setdefault(frame.n, []).append((frame, message))
            elif frame.t == "spoiled":
                self.spoiled = True  # the bridge gets no more turns
            elif not self._ready.done():
                self._ready.set_result(frame.s)
        for run, said in by_run.items():
            if (hear := self._runs.get(run)) is not None:
                hear(said)

    def ended(self, exit_: Exit) -> None:
        self.gone.set_result(exit_)
        if not self._ready.done():
            words = " ".join(exit_.stderr.split())[-500:]
            self._ready.set_exception(_not_started(f"it ended with code {exit_.code}: {words}"))
            self._ready.exception()  # mark it as retrieved: without a waiter it is not logged
        runs, self._runs = self._runs, {}
        for hear in runs.values():
            hear(None)

    async def aclose(self) -> None:
        if self._child is not None:
            await self._child.aclose()


def _not_started(why: str) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"The Cursor SDK's bridge did not start: {why}",
        hint=f"Try again; if it stays so, reinstall with `{install_command('sdk', again=True)}`.",
    )


class Bridges:
    def __init__(self, setup: BridgeSetup) -> None:
        self._setup = setup
        self._current: SdkBridge | None = None
        self._children = ChildGroup()
        self._starting: asyncio.Task[SdkBridge | GatewayError] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closed = False
        self._deaths = 0
        self._rests_until = 0.0
        self.started = 0

    @property
    def current(self) -> SdkBridge | None:
        return self._current if self._current is not None and self._current.alive else None

    async def lease(self, *, work: bool = True) -> SdkBridge:
        """A live bridge, started if there is none. Return it with `release`. Only a lease for `work` restarts the idle
        timeout."""
        if self._closed:
            raise gateway_stops()
        if work:
            self._stay()
        bridge: SdkBridge | GatewayError | None = self.current
        if bridge is None:
            if self._starting is None:
                self._check_rest()
                self._retire()
                self._starting = spawn(self._start(), "start-sdk-bridge")
            bridge = await asyncio.shield(self._starting)  # shielded: other callers share the start
        if isinstance(bridge, GatewayError):
            raise bridge
        await bridge.room()
        bridge.leases += 1
        return bridge

    def release(self, bridge: SdkBridge) -> None:
        bridge.leases -= 1
        if bridge is self._current and (memory := resident_bytes(bridge.pid) or 0) > self._setup.memory_limit:
            log.info("the SDK's bridge has grown to %d MB and is replaced", memory // 2**20)
            self._retire()
        self._end_unused(bridge)
        if bridge is self._current and not bridge.leases and self._idle is None and self._setup.stops_idle:
            self._idle = asyncio.get_running_loop().call_later(self._setup.idle_timeout, self._stop_idle)

    async def aclose(self) -> None:
        self._closed = True
        self._stay()
        if self._starting is not None:
            await asyncio.shield(self._starting)
        self._retire()
        await self._children.aclose()

    # ---- internals

    def _check_rest(self) -> None:
        """Raises GatewayError during the pause after repeated deaths."""
        left = self._rests_until - asyncio.get_running_loop().time()
        if left > 0:
            raise GatewayError(
                ErrorKind.UPSTREAM_DOWN,
                f"The Cursor SDK's bridge ended {self._deaths} times in a row. It starts again in {left + 0.5:.0f} s.",
                hint="The log has its last words. Run `caretway doctor`, or use --backend agent meanwhile.",
                retry_after=max(1.0, left),
            )

    def _died(self, bridge: SdkBridge) -> None:
        now = asyncio.get_running_loop().time()
        self._deaths = self._deaths + 1 if now - bridge.started_at < EARLY_S else 1
        if self._deaths > 1:
            self._rests_until = now + min(MAX_REST_S, 2.0 ** (self._deaths - 2))

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _stop_idle(self) -> None:
        self._idle = None
        if self._current is not None and not self._current.leases:
            log.info("the SDK's bridge is stopped: it was idle")
            self._retire()

    def _retire(self) -> None:
        """Give the current bridge no more turns, and end it if it is unused."""
        bridge, self._current = self._current, None
        if bridge is not None:
            self._end_unused(bridge)

    def _end_unused(self, bridge: SdkBridge) -> None:
        if bridge is not self._current and not bridge.leases:
            spawn(bridge.aclose(), "end-sdk-bridge")

    async def _start(self) -> SdkBridge | GatewayError:
        """Start a bridge. Returns a failure as a value, because several callers may wait for it."""
        bridge = SdkBridge(self._setup)
        try:
            await bridge.start(self._children)
        except GatewayError as failure:
            self._died(bridge)
            return failure
        finally:
            self._starting = None
        self._current = bridge
        self.started += 1
        log.info("the SDK's bridge runs as process %d", bridge.pid)
        bridge.gone.add_done_callback(lambda gone: self._gone(bridge, gone.result()))
        return bridge

    def _gone(self, bridge: SdkBridge, end: Exit) -> None:
        if bridge is self._current or bridge.broken:
            log.warning("the SDK's bridge (process %d) ended by itself, code %d: %s", bridge.pid, end.code, end.stderr)
            self._died(bridge)
        if bridge is self._current:
            self._retire()
