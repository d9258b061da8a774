"""CPU per delta of streams that come as models speak: 20 streams, 40 deltas a second each, whoever is in the middle."""

import asyncio
from dataclasses import replace

from ..ledger import Ledger
from ..load import Client, chat
from ..script import Order
from ..sizes import Sizes
from ..targets import UNGATHERED, House, Target, rotated

STAGGER_S = 0.0013
"""Streams do not begin together, and so no target can gather deltas of several streams in one read by luck."""


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    with house.fresh_gateway("--agent-quirks", "gather=0") as alone:
        able = [target for target in house.targets if target.streams] + [replace(alone, name=UNGATHERED)]
        for number in range(sizes.rounds):
            for target in rotated(able, number):
                ledger.add("paced: CPU us per delta", target.name, await cpu_per_delta(target, sizes))


async def cpu_per_delta(target: Target, sizes: Sizes) -> float:
    order = Order(sizes.paced_deltas, sizes.paced_gap_us)
    body = chat(order, stream=True)
    clients = [await Client.connect(target.address) for _ in range(sizes.paced_streams)]
    before = target.process.cpu_s()

    async def one(client: Client, delay: float) -> None:
        await asyncio.sleep(delay)
        (await client.ask(body)).check(order, stream=True)

    try:
        await asyncio.gather(*(one(client, number * STAGGER_S) for number, client in enumerate(clients)))
        used = target.process.cpu_s() - before
    finally:
        for client in clients:
            client.close()
    return used / (sizes.paced_streams * sizes.paced_deltas) * 1e6
