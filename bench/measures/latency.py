"""Time to the first piece and to the end, and CPU per request: streamed and whole, at 1, 8, 16 and 64 at a time; how
many requests a second are answered with a p99 below 10 ms; memory before and at most."""

import statistics

from ..agent_client import AgentReader
from ..ledger import Ledger
from ..load import chat, many
from ..script import Order
from ..sizes import Sizes
from ..targets import DIRECT_AGENT, GATEWAY, House, Target, rotated

PROMPT_MS = 10.0


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    for target in house.targets:
        ledger.add("memory: RSS MiB before the load", target.name, target.process.rss_kib() / 1024)
    for number in range(sizes.rounds):
        for target in rotated(house.targets, number):
            if target.name == GATEWAY:
                await _direct_agent(house, sizes, ledger)
            for stream in (True, False):
                if stream and not target.streams:
                    continue
                for workers, requests in sizes.slow_requests if target.slow else sizes.requests:
                    await _round(target, sizes, ledger, stream, workers, requests)
    for target in house.targets:
        ledger.add("memory: RSS MiB at most", target.name, target.process.peak_kib() / 1024)


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
    whole = [answer.total_ms for answer in answers]
    ledger.add(f"{kind}: whole request ms", target.name, statistics.median(whole))
    ledger.add(f"{kind}: whole request p99 ms", target.name, percentile(whole, 0.99))
    if stream:
        first = [answer.first_ms for answer in answers]
        ledger.add(f"{kind}: first piece ms", target.name, percentile(first, 0.5))
        ledger.add(f"{kind}: first piece p99 ms", target.name, percentile(first, 0.99))
        return
    took = max(answer.ended for answer in answers) - min(answer.asked for answer in answers)
    ledger.add(f"{kind}: requests per s", target.name, len(answers) / took)
    if percentile(whole, 0.99) < PROMPT_MS:
        ledger.add(f"{kind}: requests per s with p99 < 10 ms", target.name, len(answers) / took)


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]
