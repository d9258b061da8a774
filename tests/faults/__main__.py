"""`./scripts/soak`: what is asked for, and the table at the end."""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from faults.cluster import ClusterOrders, soak_cluster
from faults.cluster import table as cluster_table
from faults.judge import Verdict
from faults.rigs import RIGS
from faults.soak import Footprint, Orders, Report, soak
from faults.upstreams import RUNS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description="Play scenes through a bad network and judge them."
    )
    parser.add_argument("--backend", choices=sorted(RIGS), default="agent", help="of the gateway [default: agent]")
    parser.add_argument("--turns", type=int, default=2000, metavar="N", help="scenes to play [default: 2000]")
    parser.add_argument("--seed", default="1", metavar="S", help="of scenes and faults [default: 1]")
    transports = {name: None for rig in RIGS.values() for name in rig.weather}
    parser.add_argument(
        "--transport", choices=transports, help="of the backend; all, one after the other, if not given"
    )
    parser.add_argument("--concurrency", type=int, default=0, metavar="N", help="scenes at a time")
    parser.add_argument(
        "--no-faults", action="store_true", help="a good network, to see that the instruments are right"
    )
    parser.add_argument(
        "--cluster",
        choices=("none", "kill", "redis", "rolling"),
        help="three gateways behind a balancer, and what happens to them meanwhile",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    asked = parser.parse_args()
    if asked.cluster:
        return _cluster(ClusterOrders(asked.turns, asked.cluster, asked.seed, asked.concurrency or 24))
    if asked.transport and asked.transport not in RIGS[asked.backend].weather:
        parser.error(f"the transports of {asked.backend} are {', '.join(RIGS[asked.backend].weather)}")
    reports = []
    for transport in [asked.transport] if asked.transport else RIGS[asked.backend].weather:
        orders = Orders(asked.turns, asked.seed, transport, asked.concurrency, not asked.no_faults, asked.backend)
        reports.append(asyncio.run(soak(orders, lambda line: print(line, file=sys.stderr, flush=True))))
        print("\n".join(table(reports[-1])), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps([figures(report) for report in reports], indent=1) + "\n")
    return 1 if any(report.complaints() for report in reports) else 0


def _cluster(orders: ClusterOrders) -> int:
    report = asyncio.run(soak_cluster(orders, lambda line: print(line, file=sys.stderr, flush=True)))
    print("\n".join(cluster_table(report)), flush=True)
    return 1 if report.complaints() else 0


def table(report: Report) -> Iterator[str]:
    orders, done = report.orders, max(report.done, 1)
    way = f"{orders.backend} over {orders.transport}"
    yield f"\nsoak: {orders.turns} turns on {way}, seed {orders.seed}, {orders.at_a_time} at a time"
    yield f"  {report.seconds:.0f} s, {report.posts} requests, longest answer {report.longest_s:.1f} s"
    yield f"  faults behind it         {sum(report.faults.values())}: {listed(report.faults)}"
    if report.killed:
        yield f"  killed                   {sum(report.killed.values())}: {listed(report.killed)}"
    yield f"  faults to the client     {sum(report.client_faults.values())}: {listed(report.client_faults)}"
    for verdict in Verdict:
        count = report.verdicts[verdict.value]
        more = f": {listed(report.errors)}" if verdict is Verdict.ERROR and count else ""
        yield f"  {verdict.value:24} {count:6}  {count / done:7.2%}{more}"
    yield f"  CPU seconds: {', '.join(f'{name} {value:.0f}' for name, value in report.cpu_s.items())}"
    runs = report.carried.get(RUNS, 0)
    yield f"  {RUNS:24} {runs:6}  {1000 * runs / done:.0f} per 1,000 turns"
    yield f"  carried: {report.carried}; gateway's peak {report.peak_mb:.0f} MB"
    yield f"  before {report.before}"
    yield f"  after  {report.after}"
    for kind, verdicts in sorted(report.by_scene.items()):
        if set(verdicts) - {Verdict.RIGHT.value}:
            yield f"    {kind:20} {listed(verdicts)}"
    for piece in report.evidence[:20]:
        yield f"    {piece}"
    complaints = report.complaints()
    yield f"  {'FAILED: ' + '; '.join(complaints) if complaints else 'all is well'}"


def listed(counts: "Counter[str]") -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def figures(report: Report) -> dict[str, object]:
    told = {each.name: _plain(getattr(report, each.name)) for each in fields(report)}
    return told | {
        "right_share": report.share(Verdict.RIGHT),
        "faults_fired": sum(report.faults.values()),
        "client_faults_fired": sum(report.client_faults.values()),
        "complaints": report.complaints(),
    }


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return asdict(value) if isinstance(value, Orders | Footprint) else value


if __name__ == "__main__":
    sys.exit(main())
