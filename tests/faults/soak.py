"""The soak: many scenes at a time through a gateway whose network is bad, then a look at what is left behind.

    ./scripts/soak [--backend NAME] [--turns N] [--seed S] [--transport NAME] [--json FILE]

A scene's client, its dialect, its manner and its nonce follow from the seed and its number; so do the faults of each
connection. Which scene a fault meets depends on timing, as on a real network. Where the backend has processes of its
own, they are killed as well, and so is the gateway (rigs.py).
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from faults import processes
from faults.judge import GOOD, Played, Verdict, judge
from faults.plan import sometimes
from faults.player import Lines, Manner, play
from faults.processes import GatewayProcess
from faults.proxy import Proxy
from faults.rigs import RIGS, Rig, kills
from faults.scenes import Scene, scene
from faults.upstreams import Upstream, upstream

HEARTBEAT_S: Final = 0.5
SETTINGS: Final = {
    "silence-timeout": "3s",
    "progress-timeout": "4s",
    "connect-timeout": "3s",
    "call-timeout": "5s",
    "parked-timeout": "20s",
}
"""Limits that are minutes by default, in seconds. Everything about retries is left as it is."""
FRAIL_SHARE: Final = 0.04
"""So many scenes have their bad network on the client's side."""
KEPT_EVIDENCE: Final = 40
SETTLED_S: Final = 180.0
"""A gateway on `sdk` asks 160 s after a run, for the last time, what Cursor billed for it."""


@dataclass(frozen=True, slots=True)
class Orders:
    turns: int
    seed: str = "1"
    transport: str = "h2"
    concurrency: int = 0
    """0: as many scenes at a time as the backend is meant to carry here."""
    faults: bool = True
    backend: str = "agent"

    @property
    def rig(self) -> Rig:
        return RIGS[self.backend]

    @property
    def at_a_time(self) -> int:
        return self.concurrency or self.rig.concurrency


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the gateway holds when it has nothing to do."""

    live: int
    parked: int
    tasks: int
    descriptors: int
    processes: int
    rss_mb: float

    def holds(self, other: "Footprint") -> bool:
        """The other one is no larger, memory aside."""
        mine, others = (self.tasks, self.descriptors, self.processes), (other.tasks, other.descriptors, other.processes)
        return all(its <= own for own, its in zip(mine, others, strict=True))


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
    killed: Counter[str] = field(default_factory=Counter)
    orphans: int = 0
    """Processes that outlived a killed gateway."""
    left: list[str] = field(default_factory=list)
    """Files that were there after the end."""
    spoilt: list[str] = field(default_factory=list)
    """Files of the user's that are no longer as they were."""
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

    def complaints(self, min_right: float = 0.0) -> list[str]:
        """What must not be; empty when all is well."""
        found = [f"{self.verdicts[v.value]} x {v.value}" for v in Verdict if v not in GOOD and self.verdicts[v.value]]
        if self.share(Verdict.RIGHT) < (min_right or self.orders.rig.min_right):
            found.append(f"only {self.share(Verdict.RIGHT):.2%} right")
        before, after = self.before, self.after
        if before is None or after is None:
            return [*found, "the gateway was not looked at"]
        if after.live or after.parked:
            found.append(f"{after.live} live and {after.parked} parked turns are left")
        for name in ("tasks", "descriptors", "processes"):
            was, is_ = getattr(before, name), getattr(after, name)
            if is_ > was:
                found.append(f"{is_} {name} are left instead of {was}")
        if after.rss_mb >= self.orders.rig.max_rss_mb:
            found.append(f"{after.rss_mb:.0f} MB are left")
        if self.orphans:
            found.append(f"{self.orphans} processes outlived a gateway")
        if self.left:
            found.append(f"{len(self.left)} files are left: {self.left[:3]}")
        if self.spoilt:
            found.append(f"{len(self.spoilt)} files of the user's are changed: {self.spoilt[:3]}")
        return found


def cast(orders: Orders, number: int) -> tuple[Scene, Manner, Random]:
    """Who plays what in scene `number`."""
    random = Random(f"{orders.seed}/scene/{number}")
    nonce = f"n{random.getrandbits(48):012x}n"
    frail = orders.faults and random.random() < FRAIL_SHARE
    manner = Manner(
        random.choice(("chat", "responses", "messages")),
        random.random() < 0.6,
        retries=6 if frail else random.choice((0, 2)),
        frail=frail,
        patience=20.0 if frail else orders.rig.limit_s + 10,
        tool_seconds=random.choices((0.0, 0.02, random.uniform(0.1, 1.5)), (12, 6, 2))[0],
        stubborn=orders.faults and orders.rig.kills_gateway,
    )
    return scene(random.choice(orders.rig.scenes), nonce), manner, random


@dataclass(slots=True)
class Stage:
    """Everything that is up and running."""

    gateway: GatewayProcess
    upstream: Upstream
    frail: Proxy
    lines: Lines
    frail_lines: Lines


@asynccontextmanager
async def stage(orders: Orders, folder: Path) -> AsyncIterator[Stage]:
    async with upstream(orders.rig, orders.transport, folder, HEARTBEAT_S) as behind:
        settings = {**SETTINGS, **behind.flags}
        async with processes.gateway(orders.backend, orders.rig, settings, behind.environment, folder) as gateway:
            frail = Proxy(gateway.port, sometimes(f"{orders.seed}/client", 0.5, 2500))
            try:
                lines, frail_lines = Lines(gateway.port), Lines(await frail.listen(), keep=False)
                yield Stage(gateway, behind, frail, lines, frail_lines)
            finally:
                await frail.aclose()


async def soak(orders: Orders, tell: Callable[[str], None] = lambda _: None) -> Report:
    report = Report(orders)
    with TemporaryDirectory() as folder:
        async with stage(orders, Path(folder)) as on:
            await _warm_up(orders, on)
            report.before = await _settled(on, None)
            tell(f"before: {report.before}")
            if orders.faults:
                on.upstream.begin(f"{orders.seed}/{orders.transport}")
            began, cpu = time.monotonic(), (on.gateway.cpu_s(), on.upstream.cpu_s(), time.process_time())
            carried = on.upstream.carried()
            killer = asyncio.create_task(_kill(orders, on, report, tell)) if orders.faults else None
            await _play(orders, on, report, tell)
            if killer is not None:
                await killer
            report.seconds = time.monotonic() - began
            spent = (on.gateway.spent_s + on.gateway.cpu_s(), on.upstream.cpu_s(), time.process_time())
            names = ("gateway", "simulator", "client and proxy")
            report.cpu_s = {name: now - then for name, now, then in zip(names, spent, cpu, strict=True)}
            report.carried = {way: n - carried[way] for way, n in on.upstream.carried().items()}
            report.faults = on.upstream.fired()
            report.client_faults.update(
                f"{each.fault.kind.value}, {each.fault.direction.value}" for each in on.frail.fired
            )
            on.upstream.end()
            report.peak_mb = on.gateway.memory_mb("VmHWM")
            report.after = await _settled(on, report.before)
            tell(f"after: {report.after}")
            errors = on.gateway.log.read_text(errors="replace")
            if "Traceback" in errors:
                report.verdicts[Verdict.UNDEFINED.value] += 1
                report.evidence.append({"gateway": errors[max(0, errors.index("Traceback") - 300) :][:3000]})
        report.orphans, report.left = len(on.gateway.orphans), on.gateway.left
        report.spoilt = on.upstream.spoilt()
    return report


async def _kill(orders: Orders, on: Stage, report: Report, tell: Callable[[str], None]) -> None:
    for turns, kind in kills(orders.rig, orders.turns):
        while report.done < turns:
            await asyncio.sleep(0.02)
        if kind == "gateway":
            await on.gateway.kill()
        else:
            while not (helpers := on.gateway.descendants()):  # one that was killed is not there again at once
                if report.done >= orders.turns:
                    return
                await asyncio.sleep(0.02)
            for pid in helpers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        report.killed[kind] += 1
        tell(f"killed: {kind} after {report.done} turns")


async def _warm_up(orders: Orders, on: Stage) -> None:
    """On a good network nothing but right answers: else the instruments are wrong, and there is nothing to measure."""
    warm = Report(replace(orders, turns=orders.at_a_time * 2, seed=f"{orders.seed}/warm", faults=False))
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
                    f"{told - began:5.0f} s {report.done:6} turns, {sum(on.upstream.fired().values())} faults, "
                    f"{report.share(Verdict.RIGHT):.1%} right, {on.gateway.memory_mb():.0f} MB {rest or ''}"
                )

    await asyncio.gather(*(work() for _ in range(orders.at_a_time)))


def _note(report: Report, number: int, scene_: Scene, manner: Manner, played: Played) -> None:
    verdict, why = judge(scene_, played, report.orders.rig.limit_s)
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
    until, same = time.monotonic() + SETTLED_S, 0
    while time.monotonic() < until:
        on.upstream.hang_up()  # each time: a call that hung in a hole is asked again on a new connection
        on.frail.hang_up()  # a stalled connection outlives the client that opened it
        before, seen = seen, await _looked(on)
        same = same + 1 if before.holds(seen) and seen.holds(before) else 0
        if not on.upstream.open and (same > 4 if wanted is None else wanted.holds(seen)):
            return seen
        await asyncio.sleep(0.25)
    return seen


async def _looked(on: Stage) -> Footprint:
    gauges, gateway = await on.gateway.gauges(), on.gateway
    return Footprint(
        gauges["live_turns"],
        gauges["parked_turns"],
        gauges["tasks"],
        gateway.descriptors(),
        len(gateway.descendants()),
        gateway.memory_mb(),
    )
