"""`python -m bench`: start everything, measure what was asked for, print it, write JSON and a picture."""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import uvloop

import caretway

from . import before
from .ledger import Ledger
from .load import WrongAnswer, chat, many
from .measures import acp, burst, cli, cold, growth, latency, mcp, memory, paced, sdk, tasks, text
from .peers import version
from .report import lines, machine
from .script import Order
from .sizes import FULL, QUICK, Sizes
from .targets import ALL_PEERS, NODE, House, open_house

Measure = Callable[[House, Sizes, Ledger], Awaitable[None]]
MEASURES: Final[dict[str, Measure]] = {
    "paced": paced.measure,
    "latency": latency.measure,
    "burst": burst.measure,
    "memory": memory.measure,
    "cold": cold.measure,
    "growth": growth.measure,
    "cli": cli.measure,
    "acp": acp.measure,
    "sdk": sdk.measure,
    "text": text.measure,
    "mcp": mcp.measure,
    "tasks": tasks.measure,
}
BESIDE_PEERS: Final = frozenset({"paced", "latency", "burst", "tasks"})


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller counts: under two minutes")
    parser.add_argument("--only", action="append", choices=MEASURES, help="only this measure; may be repeated")
    parser.add_argument("--without", action="append", default=[], choices=ALL_PEERS, help="leave a peer out")
    parser.add_argument("--before", metavar="REVISION", help="beside this checkout's state at a git revision; no peers")
    parser.add_argument("--output", type=Path, default=Path("bench-result.json"), help="where the JSON goes")
    arguments = parser.parse_args()
    if not sys.platform.startswith("linux"):
        print("the benchmark reads /proc and process CPU clocks: it needs Linux", file=sys.stderr)
        return 2
    chosen = arguments.only or list(MEASURES)
    wanted = [peer for peer in ALL_PEERS if peer not in arguments.without] if BESIDE_PEERS & set(chosen) else []
    earlier = before.install(arguments.before) if arguments.before else None
    if earlier is not None:
        wanted = []
    if arguments.quick and NODE in wanted:
        wanted.remove(NODE)  # the same program as on Bun, and slower
    ledger = Ledger()
    with (
        tempfile.TemporaryDirectory(prefix="caretway-bench-") as folder,
        open_house(Path(folder), wanted, earlier) as house,
    ):
        for peer, reason in house.left_out.items():
            ledger.note(f"{peer} was left out: {reason}")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_measure(house, QUICK if arguments.quick else FULL, ledger, chosen))
        names = [target.name for target in house.targets]
    print("\n".join(lines(ledger)))
    if earlier is not None:
        print("\n".join([f"\nbeside {arguments.before}", *before.compared(ledger)]))
    result = {
        "caretway": caretway.__version__,
        "machine": machine(),
        "peers": {name: version(name) for name in names if name in ALL_PEERS},
        "quick": arguments.quick,
        **ledger.json(),
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten: {arguments.output}")
    return 0


async def _measure(house: House, sizes: Sizes, ledger: Ledger, chosen: list[str]) -> None:
    await _check(house, ledger)
    for name in chosen:
        began = time.monotonic()
        print(f"measuring {name} (load {os.getloadavg()[0]:.1f}) ...", end=" ", file=sys.stderr, flush=True)
        await MEASURES[name](house, sizes, ledger)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


async def _check(house: House, ledger: Ledger) -> None:
    """Each target says the right thing both ways, or is not compared; its first, cold requests are done with here."""
    order = Order(5)
    for target in list(house.targets):
        for stream in (True, False):
            try:
                for answer in await many(target.address, chat(order, stream=stream), workers=2, requests=10):
                    answer.check(order, stream=stream)
            except WrongAnswer as wrong:
                ledger.note(f"{target.name} {'cannot stream' if stream else 'does not answer'} here: {wrong}")
                if not stream:
                    house.targets.remove(target)
                target.streams = False
                continue


if __name__ == "__main__":
    sys.exit(main())
