"""The soak: many scenes at a time through a gateway whose network is bad, then a look at what is left behind.

    ./scripts/soak [--turns N] [--seed S] [--transport h2|http1] [--json FILE]

A scene's client, its dialect, its manner and its nonce follow from the seed and its number; so do the faults of each
connection. Which scene a fault meets depends on timing, as on a real network.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from faults import processes
from faults.judge import GOOD, Played, Verdict, judge
from faults.plan import Weather, by_seed, quiet, sometimes
from faults.player import Lines, Manner, play
from faults.processes import Process
from faults.proxy import Proxy
from faults.scenes import KINDS, Scene, scene

HEARTBEAT_S: Final = 0.5
MAX_STREAMS: Final = 4
SETTINGS: Final = {
    "silence-timeout": "3s",
    "progress-timeout": "4s",
    "tool-progress-timeout": "6s",
    "connect-timeout": "3s",
    "call-timeout": "5s",
    "parked-timeout": "20s",
    "client-heartbeat": "1s",
    "exec-heartbeat": "1s",
}
"""Limits that are minutes by default, in seconds. Everything about retries is left as it is."""
LIMIT_S: Final = 50.0
"""No answer may take longer: three times a dial (3 s), a greeting (5 s) and a wait (6 s), and some room."""
WEATHER: Final = {"h2": Weather(up=14_000, down=30_000), "http1": Weather(up=45_000, down=20_000)}
FRAIL_SHARE: Final = 0.04
"""So many scenes have their bad network on the client's side."""
CONCURRENCY: Final = 48
MAX_RSS_MB: Final = 120.0
MIN_RIGHT: Final = 0.97
KEPT_EVIDENCE: Final = 40


@dataclass(frozen=True, slots=True)
class Orders:
    turns: int
    seed: str = "1"
    transport: str = "h2"
    concurrency: int = CONCURRENCY
    faults: bool = True


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the gateway holds when it has nothing to do."""

    live: int
    parked: int
    tasks: int
    descriptors: int
    rss_mb: float

    def holds(self, other: "Footprint") -> bool:
        """The other one is no larger, memory aside."""
        return other.tasks <= self.tasks and other.descriptors <= self.descriptors


@dataclass(slots=True)
class Report:
    orders: Orders
    verdicts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """Defined errors by code."""
    by_scene: dict[str, Counter[str]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    """Fired on the way to the simulator, by kind and direction."""
    client_faults: Counter[str] = field(default_factory=Counter)
    evidence: list[dict[str, object]] = field(default_factory=list)
    posts: int = 0
    longest_s: float = 0.0
    seconds: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    carried: dict[str, int] = field(default_factory=dict)
    peak_mb: float = 0.0
    before: Footprint | None = None
    after: Footprint | None = None

    @property
    def done(self) -> int:
        return sum(self.verdicts.values())

    def share(self, verdict: Verdict) -> float:
        return self.verdicts[verdict.value] / self.done if self.done else 0.0

    def complaints(self, min_right: float = MIN_RIGHT) -> list[str]:
        """What must not be; empty when all is well."""
        found = [f"{self.verdicts[v.value]} x {v.value}" for v in Verdict if v not in GOOD and self.verdicts[v.value]]
        if self.share(Verdict.RIGHT) < min_right:
            found.append(f"only {self.share(Verdict.RIGHT):.2%} right")
        before, after = self.before, self.after
        if before is None or after is None:
            return [*found, "the gateway was not looked at"]
        if after.live or after.parked:
            found.append(f"{after.live} live and {after.parked} parked turns are left")
        for name in ("tasks", "descriptors"):
            was, is_ = getattr(before, name), getattr(after, name)
            if is_ > was:
                found.append(f"{is_} {name} are left instead of {was}")
        if after.rss_mb >= MAX_RSS_MB:
            found.append(f"{after.rss_mb:.0f} MB are left")
        return found


def cast(orders: Orders, number: int) -> tuple[Scene, Manner, Random]:
    """Who plays what in scene `number`."""
    random = Random(f"{orders.seed}/scene/{number}")
    nonce = f"n{random.getrandbits(48):012x}n"
    frail = orders.faults and random.random() < FRAIL_SHARE
    manner = Manner(
        random.choice(("chat", "responses", "messages")),
        random.random() < 0.6,
        6 if frail else random.choice((0, 2)),
        frail,
        20.0 if frail else LIMIT_S + 10,
        random.choices((0.0, 0.02, random.uniform(0.1, 1.5)), (12, 6, 2))[0],
    )
    return scene(random.choice(list(KINDS)), nonce), manner, random


@dataclass(slots=True)
class Stage:
    """Everything that is up and running."""

    gateway: Process
    simulator: Process
    upstream: Proxy
    frail: Proxy
    lines: Lines
    frail_lines: Lines


@asynccontextmanager
async def stage(orders: Orders, folder: Path) -> AsyncIterator[Stage]:
    async with processes.simulator(HEARTBEAT_S, MAX_STREAMS, folder) as simulator:
        upstream = Proxy(simulator.port)
        try:
            port = await upstream.listen()
            async with processes.gateway(port, orders.transport, SETTINGS, folder) as gateway:
                frail = Proxy(gateway.port, sometimes(f"{orders.seed}/client", 0.5, 2500))
                try:
                    lines, frail_lines = Lines(gateway.port), Lines(await frail.listen(), keep=False)
                    yield Stage(gateway, simulator, upstream, frail, lines, frail_lines)
                finally:
                    await frail.aclose()
        finally:
            await upstream.aclose()


async def soak(orders: Orders, tell: Callable[[str], None] = lambda _: None) -> Report:
    report = Report(orders)
    with TemporaryDirectory() as folder:
        async with stage(orders, Path(folder)) as on:
            await _warm_up(orders, on)
            report.before = await _settled(on, None)
            tell(f"before: {report.before}")
            if orders.faults:
                on.upstream.plan = by_seed(f"{orders.seed}/{orders.transport}", WEATHER[orders.transport])
                on.upstream.hang_up()
            began, cpu = time.monotonic(), (on.gateway.cpu_s(), on.simulator.cpu_s(), time.process_time())
            carried = dict(on.upstream.carried)
            await _play(orders, on, report, tell)
            report.seconds = time.monotonic() - began
            spent = (on.gateway.cpu_s(), on.simulator.cpu_s(), time.process_time())
            names = ("gateway", "simulator", "client and proxy")
            report.cpu_s = {name: now - then for name, now, then in zip(names, spent, cpu, strict=True)}
            report.carried = {way.value: n - carried[way] for way, n in on.upstream.carried.items()}
            for proxy, counter in ((on.upstream, report.faults), (on.frail, report.client_faults)):
                counter.update(f"{each.fault.kind.value}, {each.fault.direction.value}" for each in proxy.fired)
            on.upstream.plan = quiet
            report.peak_mb = on.gateway.memory_mb("VmHWM")
            report.after = await _settled(on, report.before)
            tell(f"after: {report.after}")
            errors = on.gateway.log.read_text(errors="replace")
            if "Traceback" in errors:
                report.verdicts[Verdict.UNDEFINED.value] += 1
                report.evidence.append({"gateway": errors[errors.index("Traceback") - 300 :][:3000]})
    return report


async def _warm_up(orders: Orders, on: Stage) -> None:
    """On a good network nothing but right answers: else the instruments are wrong, and there is nothing to measure."""
    warm = Report(Orders(orders.concurrency * 2, f"{orders.seed}/warm", faults=False))
    await _play(warm.orders, on, warm)
    if warm.verdicts[Verdict.RIGHT.value] < warm.done:
        raise RuntimeError(f"on a good network: {dict(warm.verdicts)} {dict(warm.errors)} {warm.evidence[:5]}")


async def _play(orders: Orders, on: Stage, report: Report, tell: Callable[[str], None] = lambda _: None) -> None:
    numbers = iter(range(orders.turns))
    began = told = time.monotonic()

    async def work() -> None:
        nonlocal told
        for number in numbers:
            scene_, manner, random = cast(orders, number)
            played = await play(scene_, manner, on.frail_lines if manner.frail else on.lines, random)
            _note(report, number, scene_, manner, played)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                rest = {name: n for name, n in report.verdicts.items() if name != Verdict.RIGHT.value}
                tell(
                    f"{told - began:5.0f} s {report.done:6} turns, {len(on.upstream.fired)} faults, "
                    f"{report.share(Verdict.RIGHT):.1%} right, {on.gateway.memory_mb():.0f} MB {rest or ''}"
                )

    await asyncio.gather(*(work() for _ in range(orders.concurrency)))


def _note(report: Report, number: int, scene_: Scene, manner: Manner, played: Played) -> None:
    verdict, why = judge(scene_, played, LIMIT_S)
    report.verdicts[verdict.value] += 1
    report.by_scene.setdefault(scene_.kind, Counter())[verdict.value] += 1
    report.posts += played.posts
    report.longest_s = max(report.longest_s, played.longest_s)
    if verdict is Verdict.ERROR:
        report.errors[f"{played.status} {played.code}" if played.status != 200 else f"in mid-stream {played.code}"] += 1
    elif verdict is not Verdict.RIGHT and len(report.evidence) < KEPT_EVIDENCE:
        how = f"{manner.dialect}, {'stream' if manner.stream else 'whole'}, {'frail' if manner.frail else 'steady'}"
        report.evidence.append(
            {
                "scene": number,
                "nonce": scene_.nonce,
                "kind": scene_.kind,
                "client": how,
                "verdict": verdict.value,
                "why": why,
            }
        )


async def _settled(on: Stage, wanted: Footprint | None) -> Footprint:
    """What the gateway holds when its clients are gone and its kept connections are closed: as soon as that is no more
    than `wanted`, and at the latest when its own limits have passed."""
    on.lines.close()
    on.frail_lines.close()
    until = time.monotonic() + 35.0
    while (seen := await _looked(on)).live or seen.parked:
        if time.monotonic() > until:
            return seen
        await asyncio.sleep(0.25)
    until, same = time.monotonic() + 10.0, 0
    while time.monotonic() < until:
        on.upstream.hang_up()  # each time: a call that hung in a hole is asked again on a new connection
        before, seen = seen, await _looked(on)
        same = same + 1 if before.holds(seen) and seen.holds(before) else 0
        if not on.upstream.open and (same > 4 if wanted is None else wanted.holds(seen)):
            return seen
        await asyncio.sleep(0.25)
    return seen


async def _looked(on: Stage) -> Footprint:
    gauges, gateway = await on.gateway.gauges(), on.gateway
    return Footprint(
        gauges["live_turns"], gauges["parked_turns"], gauges["tasks"], gateway.descriptors(), gateway.memory_mb()
    )
