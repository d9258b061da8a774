"""The conversation with two tool steps on real sockets, cut at every frame, message and append boundary and at every
seventh byte, in both directions, over both transports, in three dialects. A sample over HTTP/2 is in the first tier.

The connections of a case are its own, so the greeting is cut too. Each call reaches the client exactly once in every
case; at least 99 % end with the right answer, the others with an error that says what happened.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final

import pytest

from caretway_sim import Simulator
from caretway_sim.manners import CLASSIC
from contract.gateways import gateway_to
from faults.boundaries import Tape
from faults.judge import GOOD, Verdict, judge
from faults.plan import Direction, Fault, Kind
from faults.player import Lines, Manner, play
from faults.proxy import Proxy
from faults.scenes import scene

LIMIT_S: Final = 20.0
KINDS: Final = (Kind.RESET, Kind.TRUNCATE, Kind.HALF_CLOSE)
"""Cuts, by turns. What takes time (stalls, holes) is the soak's."""
SAMPLE: Final = 24
BENCHES: Final = 6

DIALECTS = pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
TRANSPORTS = pytest.mark.parametrize("transport", ["h2", "http1"])
DIRECTIONS = pytest.mark.parametrize("direction", list(Direction), ids=[way.value for way in Direction])


class Bench:
    """A gateway behind a proxy, and one scene after the other."""

    def __init__(self, proxy: Proxy, lines: Lines, dialect: str) -> None:
        self._proxy = proxy
        self._lines = lines
        self._dialect = dialect
        self._played = 0

    async def record(self) -> Tape:
        """A conversation that is left alone."""
        tape = Tape()
        self._proxy.watch = tape.note
        try:
            assert await self.case(None) == (Verdict.RIGHT, "")
        finally:
            self._proxy.watch = None
        return tape

    async def case(self, fault: Fault | None) -> tuple[Verdict, str]:
        self._played += 1
        played = scene("two steps", f"n{self._played:012x}n")
        self._proxy.surprise(fault)
        seen = await play(played, Manner(self._dialect, True, patience=LIMIT_S + 5), self._lines, Random(0))
        self._proxy.surprise(None)
        await self._proxy.retire()
        return judge(played, seen, LIMIT_S)


@asynccontextmanager
async def bench(transport: str, dialect: str) -> AsyncIterator[Bench]:
    simulator = Simulator(heartbeat_s=1.0, manners=CLASSIC)  # its bytes do not depend on how fast a client is
    try:
        proxy = Proxy(await simulator.listen("127.0.0.1", 0))
        try:
            port = await proxy.listen()
            settings = {"silence_timeout": 5.0, "client_heartbeat": 1.0, "exec_heartbeat": 1.0}
            quirks = {"sibling_quiet": 0.02}
            async with gateway_to(simulator, port, transport, agent_quirks=quirks, **settings) as client:
                lines = Lines(int(client.gateway.base_url.rpartition(":")[2]))
                yield Bench(proxy, lines, dialect)
                lines.close()
        finally:
            await proxy.aclose()
    finally:
        await simulator.aclose()


async def sweep(transport: str, dialect: str, direction: Direction, choose: Callable[[list[int]], list[int]]) -> None:
    """Cut at the chosen ones of all places, on several benches at a time: a case is mostly waiting."""
    verdicts: Counter[str] = Counter()
    bad: list[str] = []
    async with AsyncExitStack() as stack:
        benches = [await stack.enter_async_context(bench(transport, dialect)) for _ in range(BENCHES)]
        tape = await benches[0].record()
        places = choose(sorted({*tape.boundaries(direction), *range(0, tape.size(direction), 7)}))
        cases = iter([Fault(KINDS[n % len(KINDS)], direction, place) for n, place in enumerate(places)])

        async def work(on: Bench) -> None:
            for fault in cases:
                verdict, why = await on.case(fault)
                verdicts[verdict.value] += 1
                if verdict not in GOOD:
                    bad.append(f"{fault.kind.value} {direction.value} at {fault.at}: {verdict.value}: {why}")

        await asyncio.gather(*(work(on) for on in benches))
    told = f"{len(bad)} of {len(places)} cases: {dict(verdicts)}\n" + "\n".join(bad[:15])
    print(told)
    assert not bad, told
    assert verdicts[Verdict.RIGHT.value] >= 0.99 * len(places), told


@DIALECTS
@DIRECTIONS
async def test_a_sample(dialect: str, direction: Direction) -> None:
    random = Random(f"h2 {dialect} {direction.value}")
    await sweep("h2", dialect, direction, lambda places: random.sample(places, SAMPLE))


@pytest.mark.all
@pytest.mark.timeout(1200)
@TRANSPORTS
@DIALECTS
@DIRECTIONS
async def test_everywhere(transport: str, dialect: str, direction: Direction) -> None:
    await sweep(transport, dialect, direction, lambda places: places)
