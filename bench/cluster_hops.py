"""What a hop costs: the same step of a tool loop asked at the gateway that holds it and at another one, in turn; the
same step on a gateway without a cluster; deltas of a long answer through each; a round trip to Redis; a replay.

    PYTHONPATH=tests python -m bench.cluster_hops [ROUNDS]
"""

import asyncio
import statistics
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import httpx

from contract.gateways import CHAT, Client, gateway_to, result, simulated, tool
from redis_server import redis_server

SHELL = [tool("shell", "command")]
PROMPT = 'sim: call shell {"command": "ls"}\nsim: say done'
LONG = 'sim: call shell {"command": "ls"}\nsim: stream 3000 40'
KEY = "cw-bench-0123456789abcdef"


async def parked(door: Client, prompt: str) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    answer = await door.chat(said, tools=SHELL)
    return [*said, answer.message, result(answer.calls[0], "a.txt")]


async def first_byte(http: httpx.AsyncClient, said: list[dict[str, Any]]) -> tuple[float, float]:
    """Milliseconds until the first byte, and from there to the end."""
    body = {"model": "sim-auto", "messages": said, "tools": SHELL, "stream": True}
    began = time.perf_counter()
    first = 0.0
    async with http.stream("POST", CHAT, json=body) as response:
        async for _ in response.aiter_raw():
            first = first or time.perf_counter()
    return (first - began) * 1000, (time.perf_counter() - first) * 1000


async def main(rounds: int) -> None:
    times: dict[str, list[float]] = {"alone": [], "no hop": [], "hop": [], "replay": [], "Redis": []}
    tails: dict[str, list[float]] = {"no hop": [], "hop": []}
    with redis_server() as redis:
        async with simulated() as (simulator, port), AsyncExitStack() as stack:
            given: dict[str, Any] = {"cluster": redis.url, "cluster_key": KEY, "cluster_drain": 0.0}
            alone = await stack.enter_async_context(gateway_to(simulator, port))
            one, other = [await stack.enter_async_context(gateway_to(simulator, port, **given)) for _ in range(2)]
            await asyncio.sleep(3)  # two heartbeats: they know each other
            for _ in range(rounds):
                times["alone"].append((await first_byte(alone.http, await parked(alone, PROMPT)))[0])
                times["no hop"].append((await first_byte(one.http, await parked(one, PROMPT)))[0])
                times["hop"].append((await first_byte(other.http, await parked(one, PROMPT)))[0])
                times["replay"].append((await first_byte(other.http, await parked(alone, PROMPT)))[0])
                link = one.gateway._cluster.link  # type: ignore[union-attr]
                began = time.perf_counter()
                await link.do(lambda client: client.get("nothing"))
                times["Redis"].append((time.perf_counter() - began) * 1000)
            for _ in range(max(3, rounds // 20)):
                tails["no hop"].append((await first_byte(one.http, await parked(one, LONG)))[1])
                tails["hop"].append((await first_byte(other.http, await parked(one, LONG)))[1])
    middle = {name: statistics.median(found) for name, found in times.items()}
    for name, value in middle.items():
        print(f"{name:8} {value:7.2f} ms to the first byte ({value / middle['no hop']:.2f} x no hop)")
    for name, found in tails.items():
        print(f"{name:8} {statistics.median(found):7.1f} ms for 3,000 deltas")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
