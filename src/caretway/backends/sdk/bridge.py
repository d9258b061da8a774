"""The Node.js processes that run the SDK: started and checked, shared by many turns, replaced when dead, spoiled or
above the memory limit, stopped when idle; one that keeps dying is not started again for a while. Frames in and out.

A process ends when its input does, so none outlives the gateway, however that ends. One that has outgrown the limit
gets no more turns and ends with its last one, while a new one takes its place.
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

# ---- Decides how the SDK's Node.js process is started: Node's permissions (reads its package, writes nothing, starts
# nothing), the addresses that guard.mjs lets it connect to, and an environment made of nothing but that. Pure.
#
# A server can ask the SDK's built-in tools for anything. What they may do is decided here, and not by the SDK.

HERE: Final = Path(__file__).resolve().parent
GUARD: Final = HERE / "guard.mjs"
BRIDGE: Final = HERE / "bridge.mjs"
PARTS: Final = (HERE / "attempts.mjs", HERE / "order.mjs")
"""Of the bridge."""
CURSOR_DOMAINS: Final = ("cursor.sh", "cursor.com")
PORTS: Final = {"http": 80, "https": 443}
SMALL: Final = ("--optimize-for-size", "--max-semi-space-size=8", "--no-maglev", "--max-optimized-bytecode-size=2048")
"""Less memory, for a process that mostly waits: to optimise a large function of the SDK takes 20 MB for good."""


@dataclass(frozen=True, slots=True)
class SdkInstall:
    node: Path
    modules: Path
    """The `node_modules` with the SDK and what it needs. Without symbolic links: permissions are given by path."""

    @property
    def entry(self) -> Path:
        return self.modules / "@cursor" / "sdk" / "dist" / "esm" / "index.js"


def egress(urls: Iterable[str], *, stand_in: bool) -> dict[str, list[str]]:
    """What may be connected to: the addresses in the settings, and Cursor's domains if the API is Cursor's own: it may
    name further hosts of those."""
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
    """`root` is where the process is started: a directory of its own, empty. `backend_url` is for stand-ins; without
    one the SDK knows its own address."""
    # Nobody makes this: home, working directory, temporary files, and programs, which are looked for upwards from here.
    top = Path(root.anchor)
    absent = top / "caretway-absent" / "here"
    # Where it believes to be it also looks for a repository, and takes a refusal to look for a failure.
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
        "MALLOC_ARENA_MAX": "1",  # else each thread of glibc's keeps what it once needed
    }
    if backend_url is not None:
        environment |= {"CURSOR_BACKEND_URL": backend_url, "CURSOR_WEBSITE_URL": backend_url}
    if ca_file is not None:
        environment["NODE_EXTRA_CA_CERTS"] = ca_file
    return Command(argv, str(root), environment)


log = logging.getLogger(__name__)

EARLY_S: Final = 10.0
"""A process that ends by itself sooner than this died of how it was started."""
MAX_REST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BridgeSetup:
    command: Callable[[], Command]
    """Raises GatewayError when the SDK is not there."""
    start_timeout: float = 60.0
    call_timeout: float = 30.0
    memory_limit: int = 600 * 2**20
    idle_timeout: float = 900.0
    stops_idle: bool = True
    frame_bytes: int = 96 * 2**20


Hear = Callable[[list[SdkMessage] | None], None]
"""Is told what the bridge says of one run; None: the bridge is gone."""


class SdkBridge:
    """One process. `start` it first."""

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
        """Raises GatewayError; then no process is left behind."""
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
        """The number of a new run."""
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
        """Until it takes more (backpressure)."""
        if self._child is not None:
            await self._child.writable.wait()

    async def call(self, operation: str, api_key: str = "") -> Any:
        """One question about an account. Raises GatewayError."""
        answer: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()
        number = self.listen(
            lambda frames: None if answer.done() else answer.set_result(frames[0][0] if frames else None)
        )
        try:
            self.tell({"op": operation, "n": number, "key": api_key})
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
        """A run or a question hears nothing: the process answers before the next attempt is given up, or is ended."""
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
                self.spoiled = True  # it gets no more turns
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
            self._ready.exception()  # its waiters get it; without any it is not logged
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
        """A live bridge, started if there is none. Give it back with `release`. Only work keeps it from being idle."""
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
            bridge = await asyncio.shield(self._starting)  # it serves others too: nobody's cancellation stops it
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

    # ---- within

    def _check_rest(self) -> None:
        """Raises while a bridge that keeps dying is paused, longer each time."""
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
        """The current bridge gets no more turns."""
        bridge, self._current = self._current, None
        if bridge is not None:
            self._end_unused(bridge)

    def _end_unused(self, bridge: SdkBridge) -> None:
        if bridge is not self._current and not bridge.leases:
            spawn(bridge.aclose(), "end-sdk-bridge")

    async def _start(self) -> SdkBridge | GatewayError:
        """A failure is given to all who wait for the bridge, and so is a value here."""
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
