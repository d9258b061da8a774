"""What the official SDK costs as a backend, beside an earlier revision and beside `agent`, in one alternating run.

`python -m bench.sdk --before PYTHON`, the interpreter of a venv with that revision and `cursor-sdk`. Every way has a
gateway and a simulator of its own; each figure is taken from one after the other, in changing order: what else runs on
the machine counts for all. HTTP/2, everything on loopback.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .processes import Watched, free_port, launch
from .targets import gateway_command, stub
from .tool_loop import tool_loop
from .watchers import opened

WARM_UP: Final = 4
ROUNDS: Final = 40
STEPS: Final = 6
LOOPS: Final = 4
SETTLE_S: Final = 3.0
OF_A_RUN: Final = ("AgentService/Run", "AgentService/RunSSE", "BidiService/BidiAppend", "/_sim/")
ANALYTICS: Final = "Analytics"
MODEL: Final = "sim-auto"
ONE: Final = 'sim: call left {{"k": "{0}"}}'
TWO: Final = 'sim: call left {{"k": "{0}"}} & right {{"k": "{0}"}}'
TOOLS: Final[list[dict[str, Any]]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"k": {}}}}}
    for name in ("left", "right")
]


@dataclass(slots=True)
class Way:
    name: str
    gateway: Watched
    simulator: Watched
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figure: str, value: float) -> None:
        self.figures.setdefault(figure, []).append(value)

    async def chat(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> tuple[float, float, bytes]:
        """Seconds to the first text, seconds to the end, the body."""
        body = json.dumps({"model": MODEL, "messages": messages, **more}).encode()
        began = time.perf_counter()
        reader, writer = await opened(self.gateway.port, "POST", "/v1/chat/completions", body)
        data, first = b"", 0.0
        while not complete(data):
            more_data = await reader.read(65536)
            if not more_data:
                break
            data += more_data
            if not first and b'"content":"' in data.replace(b'"content":""', b""):
                first = time.perf_counter() - began
        writer.close()
        return first, time.perf_counter() - began, data

    def side_calls(self) -> Counter[str]:
        """By path; those of runs are left out."""
        counts: dict[str, int] = json.loads(get(self.simulator.port, "/_sim/calls"))
        return Counter({path: n for path, n in counts.items() if not any(part in path for part in OF_A_RUN)})

    def bridge_kib(self) -> int:
        """Resident, of all processes but the gateway's own."""
        return self.gateway.rss_kib() - own_kib(self.gateway.process.pid)


def complete(data: bytes) -> bool:
    head, _, body = data.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        return data.endswith(b"0\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return bool(length) and len(body) >= int(length)


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return bytes(answer.read())


def own_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def first_token(way: Way) -> None:
    cpu = way.gateway.cpu_s()
    first, _, data = await way.chat([user("sim: say hello to everybody")], stream=True)
    if not first:
        raise RuntimeError(f"{way.name}: {data[-300:]!r}")
    way.add("first token, ms", first * 1000)
    way.add("CPU of a turn, ms", (way.gateway.cpu_s() - cpu) * 1000)


def script(step: str, steps: int) -> str:
    """What the simulated model is told to do."""
    return "\n".join([*map(step.format, range(steps)), "sim: say done"])


async def tool_steps(way: Way, figure: str, step: str) -> None:
    loop = await tool_loop(way.gateway, MODEL, script(step, STEPS), STEPS, tools=TOOLS)
    for took in loop.times_ms:
        way.add(figure, took)


async def refusal(way: Way) -> None:
    _, took, _ = await way.chat([user("sim: fail unavailable before")])
    way.add("refusal told, s", took)


async def converse(way: Way, count: int) -> None:
    for n in range(count):
        _, _, data = await way.chat([user(f"sim: say conversation {n} of many")])
        if b"of many" not in data:
            raise RuntimeError(f"{way.name}: {data[-300:]!r}")


async def settled_kib(way: Way) -> int:
    """The least of what is seen for a while: garbage comes and goes."""
    seen = []
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        seen.append(way.bridge_kib())
        await asyncio.sleep(0.25)
    return min(seen)


async def memory(way: Way, few: int, many: int) -> None:
    await converse(way, few)
    first = await settled_kib(way)
    await converse(way, many - few)
    last = await settled_kib(way)
    way.add(f"SDK's process after {few}, MB", first / 1024)
    way.add(f"SDK's process after {many}, MB", last / 1024)
    way.add("kB for a conversation", (last - first) / (many - few))


def turned(ways: Sequence[Way], by: int) -> list[Way]:
    by %= len(ways)
    return [*ways[by:], *ways[:by]]


async def measure(ways: Sequence[Way], asked: argparse.Namespace) -> None:
    for way in ways:
        _, took, _ = await way.chat([user("sim: say first")])
        way.add("first answer after a cold start, s", took)
        for _ in range(WARM_UP):
            await way.chat([user("sim: say warm")])
    told = {way.name: way.side_calls() for way in ways}
    for n in range(ROUNDS):
        for way in turned(ways, n):
            await first_token(way)
    for way in ways:
        called = way.side_calls() - told[way.name]
        analytics = sum(n for path, n in called.items() if ANALYTICS in path)
        way.add("side calls of a turn", (called.total() - analytics) / ROUNDS)
        way.add("analytics calls of a turn", analytics / ROUNDS)
        print(f"{way.name}: {ROUNDS} turns made {dict(called)}", file=sys.stderr)
    for n in range(LOOPS):
        for way in turned(ways, n):
            await tool_steps(way, "tool step, announced, ms", TWO)
            await tool_steps(way, "tool step, not announced, ms", ONE)
    for way in ways:
        await refusal(way)
    for way in ways:
        if way.name != "agent":
            await memory(way, asked.few, asked.many if way.name == "sdk" else asked.many_before)


def lines(ways: Sequence[Way]) -> Iterator[str]:
    yield f"{'':38}{''.join(f'{way.name:>22}' for way in ways)}"
    for figure in dict.fromkeys(name for way in ways for name in way.figures):
        row = [way.figures.get(figure, []) for way in ways]
        yield f"{figure:38}{''.join(f'{spread(values):>22}' for values in row)}"


def spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else "-"
    ranked = sorted(values)
    return f"{statistics.median(ranked):.1f} (p95 {ranked[int(len(ranked) * 0.95)]:.1f})"


def sdk_gateway(
    name: str, simulator: Watched, folder: Path, backend: str = "sdk", python: str = sys.executable
) -> Watched:
    port = free_port()
    command = gateway_command(port, folder, "--backend", backend, "--agent-url", simulator.url, python=python)
    return launch(name, command, port, folder, health="/healthz", environment={"CURSOR_API_KEY": "bench"})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sdk", description=__doc__)
    parser.add_argument("--before", metavar="PYTHON", help="the interpreter of an earlier revision")
    parser.add_argument("--few", type=int, default=100, help="conversations before memory is looked at [default: 100]")
    parser.add_argument("--many", type=int, default=1000, help="and again after so many [default: 1000]")
    parser.add_argument("--many-before", type=int, default=300, help="the same for the earlier one [default: 300]")
    asked = parser.parse_args()
    arms = {"before": (asked.before, "sdk")} if asked.before else {}
    arms |= {"sdk": (sys.executable, "sdk"), "agent": (sys.executable, "agent")}
    with tempfile.TemporaryDirectory(prefix="caretway-bench-") as name, ExitStack() as stack:
        ways = []
        for arm, (python, backend) in arms.items():
            simulator = stub("counting_simulator", Path(name))
            stack.callback(simulator.stop)
            gateway = sdk_gateway(arm, simulator, Path(name), backend, python)
            stack.callback(gateway.stop)
            ways.append(Way(arm, gateway, simulator))
        asyncio.run(measure(ways, asked))
        print("\n".join(lines(ways)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
