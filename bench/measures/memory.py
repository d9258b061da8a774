"""Memory of the gateway: idle, per open stream (a slope between two counts on fresh processes), per parked turn."""

import asyncio

from ..ledger import Ledger
from ..load import Client, chat, many
from ..script import HOLD, PARK, TOOL, Order
from ..sizes import Sizes
from ..targets import GATEWAY, House, Target

TOOLS = [{"type": "function", "function": {"name": TOOL, "parameters": {"type": "object", "properties": {}}}}]
ROOM = ("--max-concurrent", "4096", "--max-connections", "4096", "--max-parked", "4096")
AT_ONCE = 50


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    few, many_ = sizes.held
    held = [await _held(house, ledger, count) for count in (few, many_)]
    per_stream = (held[1] - held[0]) / (many_ - few)
    ledger.add("memory: KiB per held stream", GATEWAY, per_stream)
    ledger.add("memory: held streams per 100 MB", GATEWAY, 100 * 1000 / 1.024 / per_stream)
    with house.fresh_gateway(*ROOM) as gateway:
        await _warm(gateway)
        before = gateway.process.pss_kib()
        for _ in range(sizes.parked):
            client = await Client.connect(gateway.address)
            answer = await client.ask(chat(PARK, stream=False, tools=TOOLS))
            client.close()
            assert answer.json()["choices"][0]["finish_reason"] == "tool_calls", answer.raw
        ledger.add(f"memory: MiB for {sizes.parked} parked turns", GATEWAY, (gateway.process.pss_kib() - before) / 1024)


async def _held(house: House, ledger: Ledger, count: int) -> float:
    with house.fresh_gateway(*ROOM) as gateway:
        ledger.add("memory: idle RSS MiB", GATEWAY, gateway.process.rss_kib() / 1024)
        await _warm(gateway)
        body = chat(HOLD, stream=True)
        clients: list[Client] = []
        try:
            for _ in range(0, count, AT_ONCE):
                new = [await Client.connect(gateway.address) for _ in range(min(AT_ONCE, count - len(clients)))]
                clients += new
                await asyncio.gather(*(client.hold(body) for client in new))
            return float(gateway.process.pss_kib())
        finally:
            for client in clients:
                client.close()


async def _warm(gateway: Target) -> None:
    await many(gateway.address, chat(Order(), stream=True), workers=1, requests=10)
