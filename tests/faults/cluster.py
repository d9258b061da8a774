"""The soak of a cluster: redis-server, haproxy (round robin) and three gateways in front of one simulator, and tool
loops through the balancer while gateways are killed or stopped in turn, or Redis is restarted.

    ./scripts/soak --cluster kill|redis|rolling [--turns N] [--seed S] [--concurrency N]

The client repeats as the official SDKs do: twice, whatever broke. Every loop must come out right: none is lost, no call
is run twice, none hears another's words.
"""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, Literal

from balancer import balancer
from faults import processes
from faults.http import Got
from faults.judge import Verdict, judge
from faults.player import Lines, Manner, play
from faults.processes import Process, started
from faults.scenes import scene
from faults.soak import SETTINGS
from redis_server import RedisServer, free_port

Trouble = Literal["none", "kill", "redis", "rolling"]
REPLICAS: Final = 3
EVERY_S: Final = 5.0
LIMIT_S: Final = 60.0
LOOPS: Final = ("one call", "two steps", "three steps", "twins", "redirected", "asked again", "call in turn two")
FINISHED: Final = "no known conversation begins like this"
"""Of a replay that is none of a running turn: its last answer was over, and Redis did not know of it in time."""
KEY: Final = "cw-soak-0123456789abcdef01"


@dataclass(frozen=True, slots=True)
class ClusterOrders:
    turns: int
    trouble: Trouble = "kill"
    seed: str = "1"
    concurrency: int = 24


@dataclass(slots=True)
class ClusterReport:
    orders: ClusterOrders
    verdicts: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    """Answers to tool results, by how they were had."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Of replays."""
    repeats: Counter[str] = field(default_factory=Counter)
    """Why the client asked again."""
    troubles: Counter[str] = field(default_factory=Counter)
    evidence: list[str] = field(default_factory=list)
    posts: int = 0
    longest_s: float = 0.0
    seconds: float = 0.0

    @property
    def done(self) -> int:
        return sum(self.verdicts.values())

    def complaints(self) -> list[str]:
        found = [f"{n} x {name}" for name, n in self.verdicts.items() if name != Verdict.RIGHT.value]
        if self.orders.trouble == "rolling":
            if self.repeats["cut"]:
                found.append(f"{self.repeats['cut']} answers were cut")
            if replayed := sum(n for why, n in self.reasons.items() if why != FINISHED):
                found.append(f"{replayed} replays")
        return found


def table(report: ClusterReport) -> Iterator[str]:
    orders, steps = report.orders, sum(report.steps.values()) or 1
    yield f"\nsoak of a cluster: {orders.turns} tool loops, {orders.trouble}, seed {orders.seed}, {REPLICAS} gateways"
    yield f"  {report.seconds:.0f} s, {report.posts} requests, longest answer {report.longest_s:.1f} s"
    yield f"  troubles    {listed(report.troubles)}"
    yield f"  repeated    {listed(report.repeats)}"
    yield "  steps       " + ", ".join(f"{name} {n} ({n / steps:.1%})" for name, n in report.steps.most_common())
    yield f"  replays     {listed(report.reasons)}"
    for verdict in Verdict:
        yield f"  {verdict.value:16} {report.verdicts[verdict.value]:6}"
    yield from (f"    {each}" for each in report.evidence[:20])
    complaints = report.complaints()
    yield f"  {'FAILED: ' + '; '.join(complaints) if complaints else 'all is well'}"


def listed(counts: "Counter[str]") -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


class Cluster:
    """Everything that is up and running."""

    def __init__(
        self,
        balancer_port: int,
        upstream: int,
        redis: RedisServer,
        replicas: list[Process],
        again: Callable[[int], Awaitable[None]],
    ) -> None:
        self.balancer_port = balancer_port
        self.upstream = upstream
        """The simulator's port."""
        self.redis = redis
        self.replicas = replicas
        self._again = again

    async def kill(self, number: int) -> None:
        os.kill(self.replicas[number].pid, signal.SIGKILL)
        await self._again(number)

    async def roll(self, number: int) -> None:
        pid = self.replicas[number].pid
        os.kill(pid, signal.SIGTERM)
        while processes.lives(pid):
            await asyncio.sleep(0.05)
        await self._again(number)


@asynccontextmanager
async def cluster(folder: Path, **flags: str) -> AsyncIterator[Cluster]:
    redis = RedisServer(folder)
    async with AsyncExitStack() as stack:
        redis.start()
        stack.callback(redis.stop, signal.SIGKILL)
        simulator = await stack.enter_async_context(processes.simulator(0.5, 100, "h2", folder))
        ports = [free_port() for _ in range(REPLICAS)]
        running: list[Process] = []
        settings = {
            **SETTINGS,
            "backend": "agent",
            "agent-url": f"http://127.0.0.1:{simulator.port}",
            "agent-transport": "h2",
            "log-level": "warning",
            "cluster": redis.url,
            "cluster-drain": "20s",
            "shutdown-grace": "20s",
            **flags,
        }
        environment = {"CARETWAY_ACCESS_TOKEN": "soak", "CARETWAY_CLUSTER_KEY": KEY}
        program = str(Path(sys.executable).parent / "caretway")

        async def start(number: int) -> Process:
            data = folder / f"data-{number}"
            data.mkdir(mode=0o700, exist_ok=True)
            given = {**settings, "port": str(ports[number]), "data-dir": str(data)}
            command = [program, "serve", *(word for name, value in given.items() for word in (f"--{name}", value))]
            each = started(f"gateway-{number}", command, folder, r"http://127\.0\.0\.1:(\d+)", environment)
            return await stack.enter_async_context(each)

        async def again(number: int) -> None:
            running[number] = await start(number)

        running += await asyncio.gather(*(start(number) for number in range(REPLICAS)))
        balanced = stack.enter_context(balancer(ports))
        yield Cluster(balanced, simulator.port, redis, running, again)


async def soak_cluster(orders: ClusterOrders, tell: Callable[[str], None] = lambda _: None) -> ClusterReport:
    report = ClusterReport(orders)
    with TemporaryDirectory() as folder:
        async with cluster(Path(folder)) as on:
            lines = Lines(on.balancer_port)
            await _play(ClusterOrders(orders.concurrency, "none", f"{orders.seed}/warm"), ClusterReport(orders), lines)
            began = time.monotonic()
            trouble = asyncio.create_task(_trouble(orders, on, report, tell))
            try:
                await _play(orders, report, lines, tell)
            finally:
                report.seconds = time.monotonic() - began
                trouble.cancel()
                await asyncio.wait([trouble])
                lines.close()
            if not trouble.cancelled() and (failure := trouble.exception()) is not None:
                raise failure
            for replica in range(REPLICAS):
                text = (Path(folder) / f"gateway-{replica}.log").read_text(errors="replace")
                if "Traceback" in text:
                    report.verdicts[Verdict.UNDEFINED.value] += 1
                    report.evidence.append(text[max(0, text.index("Traceback") - 300) :][:3000])
    return report


async def _trouble(orders: ClusterOrders, on: Cluster, report: ClusterReport, tell: Callable[[str], None]) -> None:
    number, due = 0, 0.0
    while orders.trouble != "none":
        began = time.monotonic()
        if orders.trouble == "redis":
            while report.done < orders.turns * (number + 1) // 3:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(on.redis.restart)
            report.troubles["restarts of Redis"] += 1
            if number == 1:
                return
        else:
            await asyncio.sleep(max(0.0, due - began))
            due = time.monotonic() + EVERY_S
            if orders.trouble == "kill":
                report.troubles["gateways killed"] += 1
                await on.kill(number % REPLICAS)
            else:
                report.troubles["gateways stopped and started"] += 1
                await on.roll(number % REPLICAS)
        number += 1
        tell(f"{orders.trouble} {number}, {time.monotonic() - began:.1f} s, {report.done} loops")


async def _play(
    orders: ClusterOrders, report: ClusterReport, lines: Lines, tell: Callable[[str], None] = lambda _: None
) -> None:
    numbers = iter(range(orders.turns))

    def heard(got: Got, repeated: str) -> None:
        if repeated:
            ours = not got.status or "x-request-id" in got.headers
            report.repeats[repeated if ours else f"{repeated} of the balancer"] += 1
            if orders.trouble == "rolling":
                tell(f"{time.strftime('%X')} repeated: {repeated}, {got.headers}")
        elif (session := got.headers.get("x-caretway-session", "")) not in ("", "fresh"):
            passed = "x-caretway-passed-to" in got.headers
            report.steps[f"{session}, passed on" if passed else session] += 1
            if session == "replayed":
                report.reasons[got.headers.get("x-caretway-session-reason", "?")] += 1

    async def work() -> None:
        for number in numbers:
            random = Random(f"{orders.seed}/scene/{number}")
            nonce = f"n{random.getrandbits(48):012x}n"
            manner = Manner(
                random.choice(("chat", "responses", "messages")),
                random.random() < 0.7,
                retries=2,
                like_sdk=True,
                patience=LIMIT_S,
                tool_seconds=random.choices((0.0, 0.02, random.uniform(0.1, 1.5)), (8, 6, 4))[0],
            )
            scene_ = scene(random.choice(LOOPS), nonce)
            played = await play(scene_, manner, lines, random, heard)
            verdict, why = judge(scene_, played, LIMIT_S)
            report.verdicts[verdict.value] += 1
            report.posts += played.posts
            report.longest_s = max(report.longest_s, played.longest_s)
            if verdict is not Verdict.RIGHT:
                how = f"{manner.dialect}, {'stream' if manner.stream else 'whole'}"
                report.evidence.append(f"{number} {nonce} {scene_.kind}, {how}: {verdict.value}: {why}")
                tell(report.evidence[-1])

    await asyncio.gather(*(work() for _ in range(orders.concurrency)))
