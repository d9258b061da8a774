"""The processes of a soak: the gateway and the simulator, started for it, watched through /proc, ended by their pid."""

import asyncio
import os
import re
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]
START_S: Final = 30.0
STOP_S: Final = 15.0


@dataclass(slots=True)
class Process:
    name: str
    port: int
    pid: int
    log: Path

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory_mb(self, field: str = "VmRSS") -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        raise LookupError(field)

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    async def gauges(self) -> dict[str, int]:
        """`/metrics`: what has no labels."""

        def fetch() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        text = await asyncio.to_thread(fetch)
        return {name: int(value) for name, value in re.findall(r"^caretway_(\w+) (\d+)$", text, re.MULTILINE)}


@asynccontextmanager
async def started(name: str, command: Sequence[str], folder: Path, port: str) -> AsyncIterator[Process]:
    """A process that prints its port in a line that `port` matches."""
    log = folder / f"{name}.log"
    environment = os.environ | {"PYTHONPATH": str(TESTS), "CARETWAY_ACCESS_TOKEN": "soak"}
    with log.open("wb") as errors:
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
async def simulator(heartbeat_s: float, max_streams: int, folder: Path) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "faults.simulator", str(heartbeat_s), str(max_streams)]
    async with started("simulator", command, folder, r"^(\d+)$") as process:
        yield process


@asynccontextmanager
async def gateway(upstream: int, transport: str, settings: dict[str, str], folder: Path) -> AsyncIterator[Process]:
    """`settings` are flags without their dashes."""
    with TemporaryDirectory() as data:
        flags = {"backend": "agent", "port": "0", "log-level": "warning", "data-dir": data}
        flags |= {"agent-url": f"http://127.0.0.1:{upstream}", "agent-transport": transport} | settings
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        command = [str(Path(sys.executable).parent / "caretway"), "serve", *words]
        async with started("gateway", command, folder, r"http://127\.0\.0\.1:(\d+)") as process:
            yield process
