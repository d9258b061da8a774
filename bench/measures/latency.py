"""Time to the first piece and to the end, and CPU per request: streamed and whole, at 1, 16 and 64 at a time."""

import statistics

from ..agent_client import AgentReader
from ..ledger import Ledger
from ..load import Answer, chat, many
from ..script import Order
from ..sizes import Sizes
from ..targets import DIRECT_AGENT, GATEWAY, House, Target, rotated


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    for number in range(sizes.rounds):
        for target in rotated(house.targets, number):
            if target.name == GATEWAY:
                await _direct_agent(house, sizes, ledger)
            for stream in (True, False):
                if stream and not target.streams:
                    continue
                for workers, requests in sizes.slow_requests if target.slow else sizes.requests:
                    await _round(target, sizes, ledger, stream, workers, requests)


async def _direct_agent(house: House, sizes: Sizes, ledger: Ledger) -> None:
    """What the gateway's upstream takes by itself, right before the gateway is asked."""
    reader = await AgentReader.connect(house.agent.port)
    try:
        order = Order(sizes.answer_deltas)
        took = [await reader.first_piece_ms(order) for _ in range(dict(sizes.requests)[1] + 5)]
    finally:
        reader.close()
    ledger.add("stream x1: first piece ms", DIRECT_AGENT, statistics.median(took[5:]))


async def _round(target: Target, sizes: Sizes, ledger: Ledger, stream: bool, workers: int, requests: int) -> None:
    order = Order(sizes.answer_deltas)
    body = chat(order, stream=stream)
    await many(target.address, body, workers=workers, requests=workers)  # new connections, cold paths
    before = target.process.cpu_s()
    answers = await many(target.address, body, workers=workers, requests=requests)
    used = target.process.cpu_s() - before
    for answer in answers:
        answer.check(order, stream=stream)
    kind = f"{'stream' if stream else 'whole'} x{workers}"
    ledger.add(f"{kind}: CPU us per request", target.name, used / len(answers) * 1e6)
    ledger.add(f"{kind}: whole request ms", target.name, statistics.median(answer.total_ms for answer in answers))
    if stream:
        ledger.add(f"{kind}: first piece ms", target.name, percentile(answers, 0.5))
        ledger.add(f"{kind}: first piece p99 ms", target.name, percentile(answers, 0.99))


def percentile(answers: list[Answer], part: float) -> float:
    times = sorted(answer.first_ms for answer in answers)
    return times[min(len(times) - 1, int(len(times) * part))]
