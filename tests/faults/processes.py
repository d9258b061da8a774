"""The processes of a soak: the gateway and the simulator, started for it, watched through /proc, ended by their pid."""

import asyncio
import os
import re
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from faults.rigs import Rig

TESTS: Final = Path(__file__).resolve().parents[1]
START_S: Final = 90.0
STOP_S: Final = 15.0
ORPHAN_S: Final = 10.0
"""How long what a killed gateway started may live on."""


@dataclass(slots=True)
class Process:
    name: str
    port: int
    pid: int
    log: Path

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory_mb(self, field: str = "VmRSS") -> float:
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) / 1024
        return 0.0  # it was killed just now

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def descendants(self) -> list[int]:
        """Processes that it started, and those that these did."""
        parents = {}
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                with suppress(OSError):
                    state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
                    if state != "Z":
                        parents[int(entry)] = int(parent)
        found = [self.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found[1:]

    async def gauges(self) -> dict[str, int]:
        """`/metrics`: what has no labels."""

        def fetch() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        text = await asyncio.to_thread(fetch)
        return {name: int(value) for name, value in re.findall(r"^caretway_(\w+) (\d+)$", text, re.MULTILINE)}


@asynccontextmanager
async def started(
    name: str, command: Sequence[str], folder: Path, port: str, more: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """A process that prints its port in a line that `port` matches."""
    log = folder / f"{name}.log"
    environment = {**os.environ, "PYTHONPATH": str(TESTS), **(more or {})}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=errors, stdin=asyncio.subprocess.DEVNULL, env=environment
        )
        assert process.stdout is not None
        reader: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(START_S):
                while (line := await process.stdout.readline()) and not (found := re.search(port, line.decode())):
                    pass
            if not line:
                raise RuntimeError(f"{name} did not start: {log.read_text()[-2000:]}")
            assert found is not None
            reader = asyncio.create_task(_drain(process.stdout))
            yield Process(name, int(found[1]), process.pid, log)
        finally:
            if reader is not None:
                reader.cancel()
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


@asynccontextmanager
async def simulator(heartbeat_s: float, max_streams: int, transport: str, folder: Path) -> AsyncIterator[Process]:
    prefer = {"h2": "h2", "http1": "h1"}[transport]
    command = [sys.executable, "-m", "faults.simulator", str(heartbeat_s), str(max_streams), prefer]
    async with started("simulator", command, folder, r"^(\d+)$") as process:
        yield process


@dataclass(slots=True)
class GatewayProcess(Process):
    """One that can be killed: another one then takes its place, at the same port and with the same data."""

    again: Callable[[], Awaitable[Process]] = field(kw_only=True)
    spent_s: float = 0.0
    """CPU seconds of those that were killed."""
    orphans: list[int] = field(default_factory=list)
    """Processes that outlived the gateway that had started them."""
    left: list[str] = field(default_factory=list)
    """Files that were there after the end."""

    async def kill(self) -> None:
        helpers, self.spent_s = self.descendants(), self.spent_s + self.cpu_s()
        os.kill(self.pid, signal.SIGKILL)
        self.pid = (await self.again()).pid
        until = asyncio.get_running_loop().time() + ORPHAN_S
        while alive := [pid for pid in helpers if lives(pid)]:
            if asyncio.get_running_loop().time() > until:
                self.orphans += alive
                break
            await asyncio.sleep(0.1)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@asynccontextmanager
async def gateway(
    backend: str, rig: Rig, settings: Mapping[str, str], more: Mapping[str, str], folder: Path
) -> AsyncIterator[GatewayProcess]:
    """`settings` are flags without their dashes; `more` goes to its environment."""
    data, scratch = folder / "data", folder / "scratch"
    for each in (data, scratch):
        each.mkdir(mode=0o700)
    flags = {"backend": backend, "port": "0", "log-level": "warning", "data-dir": str(data)}
    flags |= {**settings, **rig.flags}
    environment = {"TMPDIR": str(scratch), **rig.environment, **more}
    program = str(Path(sys.executable).parent / "caretway")

    async with AsyncExitStack() as stack:

        async def start() -> Process:
            command = [program, "serve", *(word for name, value in flags.items() for word in (f"--{name}", value))]
            each = started("gateway", command, folder, r"http://127\.0\.0\.1:(\d+)", environment)
            process = await stack.enter_async_context(each)
            flags["port"] = str(process.port)
            return process

        first = await start()
        running = GatewayProcess(first.name, first.port, first.pid, first.log, again=start)
        yield running
        helpers = running.descendants()
    running.orphans += [pid for pid in helpers if lives(pid)]
    private = [data / rig.private] if rig.private else []
    running.left = [str(path) for each in (scratch, *private) for path in each.rglob("*") if not path.is_dir()]
