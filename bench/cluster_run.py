"""The model of a cluster beside a real one: three gateways on one Redis behind haproxy (round robin), tool loops from
many clients at once, and what was counted next to what `cluster_model` says for as many.

    PYTHONPATH=tests python -m bench.cluster_run [LOOPS [STEPS [CLIENTS]]]
"""

import asyncio
import sys
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import uvloop

from balancer import balancer
from redis_server import RedisServer, redis_server

from .cluster_hops import KEY, TOOLS, wait_for_each_other
from .cluster_model import Costs, Habits, read
from .load import Address, Client, WrongAnswer
from .processes import Watched
from .script import MODEL
from .targets import start_gateway, stub

REPLICAS = 3
DELTAS = 5


async def loop(port: int, steps: int, ways: Counter[str]) -> None:
    """A prompt, and its steps: each on a connection of its own, as the balancer likes."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "bench:park"}]
    for number in range(steps + 1):
        client = await Client.connect(Address(port))
        try:
            answer = await client.ask(msgspec.json.encode({"model": MODEL, "messages": said, "tools": TOOLS}))
        finally:
            client.close()
        if answer.status != 200:
            raise WrongAnswer(f"{answer.raw[:300]!r}")
        if number:
            ways[answer.header("x-caretway-session")] += 1
        message = answer.json()["choices"][0]["message"]
        if number < steps:
            ask = "bench:park" if number < steps - 1 else f"bench:{DELTAS}:0:8"
            said += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": ask}]


def hops(gateways: list[Watched]) -> int:
    found = 0
    for gateway in gateways:
        for line in urllib.request.urlopen(f"{gateway.url}/metrics").read().decode().splitlines():
            if line.startswith("caretway_hops_total{") and 'way="out",outcome="passed"' in line:
                found += int(float(line.split()[-1]))
    return found


def held(server: RedisServer) -> int:
    with server.client() as client:
        told: Any = client.info("memory")
    return int(told["used_memory_dataset"])


async def main(loops: int, steps: int, clients: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="caretway-cluster-")))
        server = stack.enter_context(redis_server())

        def kept(process: Watched) -> Watched:
            stack.callback(process.stop)
            return process

        agent = kept(stub("agent", folder))
        flags = ("--cluster", server.url, "--cluster-drain", "0", "--tool-loop-max-repeat", "0")
        gateways = [kept(start_gateway(agent.port, folder, *flags, CARETWAY_CLUSTER_KEY=KEY)) for _ in range(REPLICAS)]
        wait_for_each_other(gateways)
        port = stack.enter_context(balancer([gateway.port for gateway in gateways]))
        ways: Counter[str] = Counter()
        await asyncio.gather(*(loop(port, steps, ways) for _ in range(clients)))  # cold paths
        ways.clear()
        server.reset_counts()
        before = (hops(gateways), sum(one.cpu_s() for one in gateways), server.cpu_s(), held(server))
        left = iter(range(loops))
        began = asyncio.get_running_loop().time()

        async def work() -> None:
            while next(left, None) is not None:
                await loop(port, steps, ways)

        await asyncio.gather(*(work() for _ in range(clients)))
        took = asyncio.get_running_loop().time() - began
        await asyncio.sleep(1)  # counts are written behind
        after = (hops(gateways), sum(one.cpu_s() for one in gateways), server.cpu_s(), held(server))
        commands = sum(server.counted().values())
    hopped, cpu, in_redis, grown = [now - then for now, then in zip(after, before, strict=True)]
    print(f"{loops} loops of {steps} steps, {clients} clients, {took:.1f} s; steps: {dict(ways)}")
    habits = Habits(steps=steps, seconds=1.0, deltas=0, loops_kept=1, loops_a_conversation=1)
    said = read(loops * (steps + 1) / took, REPLICAS, habits=habits)
    costs = Costs()
    rows = [
        ("hops", hopped, said.hops * took),
        ("replays", ways["replayed"], 0.0),
        ("commands of Redis", commands, said.commands * took),
        ("CPU of Redis, s", in_redis, said.redis_cores * took),
        ("CPU of gateways, s", cpu, said.gateway_cores * REPLICAS * took),
        ("memory of Redis, kB", grown / 1000, loops * (costs.conversation_bytes + costs.turn_bytes) / 1000),
    ]
    for name, real, model in rows:
        print(f"  {name:20} real {real:10,.2f}   model {model:10,.2f}")


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:]]
    uvloop.run(main(*(given + [300, 5, 12][len(given) :])))
