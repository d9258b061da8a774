"""How many deltas a core can carry when they come as fast as they go: one long stream, and 64 at a time."""

from ..ledger import Ledger
from ..load import chat, many
from ..script import Order
from ..sizes import Sizes
from ..targets import House, Target, rotated


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    able = [target for target in house.targets if target.streams]
    for number in range(sizes.burst_rounds):
        for target in rotated(able, number):
            count = sizes.slow_burst_deltas if target.slow else sizes.burst_deltas
            ledger.add("burst x1: deltas per CPU second", target.name, await _rate(target, 1, count))
            streams, each = sizes.burst_many
            each = sizes.slow_burst_deltas // 10 if target.slow else each
            ledger.add(f"burst x{streams}: deltas per CPU second", target.name, await _rate(target, streams, each))


async def _rate(target: Target, streams: int, count: int) -> float:
    order = Order(count)
    before = target.process.cpu_s()
    answers = await many(target.address, chat(order, stream=True), workers=streams, requests=streams)
    used = target.process.cpu_s() - before
    for answer in answers:
        answer.check(order, stream=True)
    return streams * count / used
