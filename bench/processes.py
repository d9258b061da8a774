"""Processes under measurement: started on a free port, watched through /proc and their CPU clocks, ended by pid.

CPU is the sum of the process CPU clocks of the whole tree, so threads and children of a peer are counted too.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SCHED_CLOCK: Final = 2
STOP_PATIENCE_S: Final = 10.0


class TargetFailed(RuntimeError):
    """A process under measurement did not come up, or did not do what it was asked."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Watched:
    """A running process."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tree(self) -> list[int]:
        """The process and everything below it."""
        found, queue = [], [self.process.pid]
        while queue:
            pid = queue.pop()
            found.append(pid)
            try:
                threads = os.listdir(f"/proc/{pid}/task")
                queue += [int(c) for t in threads for c in Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
            except OSError:
                continue  # it ended meanwhile
        return found

    def cpu_s(self) -> float:
        total = 0.0
        for pid in self.tree():
            try:
                total += process_cpu_s(pid)
            except OSError:
                continue
        return total

    def own_cpu_s(self) -> float:
        """Without its children: where the work of another program is not to be counted."""
        return process_cpu_s(self.process.pid)

    def rss_kib(self) -> int:
        return sum(_status_kib(pid, "VmRSS") for pid in self.tree())

    def peak_kib(self) -> int:
        return sum(_status_kib(pid, "VmHWM") for pid in self.tree())

    def pss_kib(self) -> int:
        """Memory that is this tree's own: shared pages are counted by their share."""
        total = 0
        for pid in self.tree():
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total

    def stop(self) -> None:
        pids = self.tree()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.wait()


def process_cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | _SCHED_CLOCK)


def _status_kib(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def launch(
    name: str,
    command: Sequence[str],
    port: int,
    folder: Path,
    *,
    health: str = "/health",
    environment: Mapping[str, str] | None = None,
    patience_s: float = 30.0,
) -> Watched:
    """Start and wait until `health` answers at all."""
    log = folder / f"{name}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
        )
    watched = Watched(name, process, port, log)
    try:
        wait_for(watched, health, patience_s)
    except TargetFailed:
        watched.stop()
        raise
    return watched


def wait_for(watched: Watched, health: str, patience_s: float, *, pause_s: float = 0.005) -> None:
    until = time.monotonic() + patience_s
    while not answers(watched.port, health):
        if watched.process.poll() is not None or time.monotonic() > until:
            tail = watched.log.read_text(errors="replace")[-600:]
            raise TargetFailed(f"{watched.name} did not come up within {patience_s:g} s: {tail}")
        time.sleep(pause_s)


def answers(port: int, path: str) -> bool:
    """Whether there is any answer at `path`; with an empty path, whether somebody listens."""
    try:
        if not path:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return True
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status)
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, OSError):
        return False


@dataclass(frozen=True, slots=True)
class Pair:
    gateway: Watched
    simulator: Watched
    folder: Path
    """Theirs, and gone with them."""


@contextmanager
def gateway_and_simulator() -> Iterator[Pair]:
    """A gateway on `agent` in front of a simulator, with nothing of the user's."""
    caretway = [sys.executable, "-m", "caretway"]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        home = {"HOME": name, "XDG_CONFIG_HOME": name, "CURSOR_API_KEY": "crsr_bench"}
        port, own = free_port(), free_port()
        simulate = [*caretway, "simulate", "--port", str(port)]
        simulator = launch("simulator", simulate, port, folder, health="/_sim/stats")
        stack.callback(simulator.stop)
        where = ["--agent-url", simulator.url, "--port", str(own), "--data-dir", name]
        serve = [*caretway, "serve", "--backend", "agent", "--log-level", "error", *where]
        gateway = launch("gateway", serve, own, folder, health="/healthz", environment=home)
        stack.callback(gateway.stop)
        yield Pair(gateway, simulator, folder)
