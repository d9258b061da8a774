"""Black holes with the limits that everybody has: an answer or an error within a minute, and the next request at once.

The only test here that really waits: what is promised is a time.
"""

import asyncio
from random import Random
from typing import Final

import pytest

from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE
from contract.gateways import gateway_to
from faults.boundaries import Tape
from faults.judge import GOOD, Verdict, judge
from faults.plan import Direction, Fault, Kind
from faults.player import Lines, Manner, play
from faults.proxy import Proxy
from faults.scenes import scene

ANSWER_S: Final = 60.0
NEXT_S: Final = 5.0
MOMENTS: Final = (
    ("long text", Direction.DOWN, 0.5),
    ("two steps", Direction.DOWN, 0.3),
    ("two steps", Direction.DOWN, 0.8),
    ("two steps", Direction.UP, 0.1),
    ("two steps", Direction.UP, 0.5),
    ("two steps", Direction.UP, 0.75),
)
"""In which conversation, and after which part of its bytes: in the middle of text, while a call is written, after the
results; with the prompt, with the first results, with the last."""
HOLES: Final = (Kind.BLACK_HOLE, Kind.ONE_WAY)


async def fall_in(transport: str, kind: Kind, moment: tuple[str, Direction, float]) -> str:
    """What is wrong with one case; empty when nothing is."""
    name, direction, share = moment
    simulator, tape = Simulator(manners=LIVE_AT_ONCE), Tape()
    proxy = Proxy(await simulator.listen("127.0.0.1", 0), watch=tape.note)
    try:
        async with gateway_to(simulator, await proxy.listen(), transport) as client:
            lines = Lines(int(client.gateway.base_url.rpartition(":")[2]))
            told: list[str] = []
            # Once before anything is measured: the list of models is asked for then, and never again.
            await play(scene("text", f"n{9:012x}n"), Manner("chat", True, patience=ANSWER_S), lines, Random(0))
            before = tape.size(direction)
            for number, limit in enumerate((NEXT_S, ANSWER_S, NEXT_S)):  # on a good network, in the hole, after it
                hit = number == 1
                if hit:
                    await proxy.retire()
                proxy.surprise(Fault(kind, direction, int((tape.size(direction) - before) * share)) if hit else None)
                played = scene(name, f"n{number:012x}n")
                seen = await play(played, Manner("chat", True, patience=limit + 10), lines, Random(0))
                verdict, why = judge(played, seen, limit)
                told.append(f"{verdict.value} after {seen.longest_s:.1f} s {why}")
                if verdict not in (GOOD if hit else (Verdict.RIGHT,)) or len(proxy.fired) != min(number, 1):
                    return f"{transport}, {kind.value}, {moment}, {len(proxy.fired)} fired: {told}"
            lines.close()
            print(transport, kind.value, moment, told)
            return ""
    finally:
        await proxy.aclose()
        await simulator.aclose()


@pytest.mark.all
@pytest.mark.timeout(300)
async def test_a_minute_at_most() -> None:
    cases = [(way, kind, moment) for way in ("h2", "http1") for kind in HOLES for moment in MOMENTS]
    bad = [wrong for wrong in await asyncio.gather(*(fall_in(*case) for case in cases)) if wrong]
    assert not bad, "\n".join(bad)
