"""What several gateways cost, in interleaved rounds of whole processes: a step of a tool loop at the gateway that holds
it, through a hop, on a gateway without a cluster, and replayed; a first prompt with and without `--cluster`; CPU of a
delta through a hop beside the byte relay; what Redis does for each of them.

    PYTHONPATH=tests python -m bench.cluster_hops [ROUNDS]

With `--before REVISION` only the first piece of a hop, on a kept connection and on a new one, beside an earlier state
of this checkout.
"""

import argparse
import asyncio
import socket
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import redis.asyncio
import uvloop

from redis_server import RedisServer, redis_server

from . import before
from .ledger import Ledger, Spread
from .load import Address, Answer, Client, WrongAnswer, chat
from .measures.paced import STAGGER_S
from .processes import Watched
from .script import MODEL, PARK, TOOL, Order
from .sizes import FULL
from .targets import BEFORE, GATEWAY, rotated, start_gateway, stub

KEY: Final = "cw-bench-0123456789abcdef"
STEPS: Final = 40
"""Of each kind in each round."""
TOOLS: Final = [{"type": "function", "function": {"name": TOOL, "parameters": {"type": "object", "properties": {}}}}]
PROMPT: Final = chat(Order(1), stream=True)
ONE: Final = Order(1)
CALL: Final = chat(PARK, stream=True, tools=TOOLS)
FIRST: Final = "first piece of a step, ms"
FIRST_PROMPT: Final = "first piece of a first prompt, ms"
CPU: Final = "CPU of a step, all gateways, us"
CPU_PROMPT: Final = "CPU of a first prompt, us"
DELTA: Final = "CPU of a delta, us"
REDIS: Final = "CPU of Redis, us a request"
COMMANDS: Final = "Commands of Redis, a request"
KEPT: Final = "first piece of a hop on a kept connection, ms"
NEW: Final = "first piece of a hop on a new connection, ms"
CUT_S: Final = 0.05
"""For both gateways to notice that a connection was cut."""
TRIP: Final = "Redis there and back, ms"


@dataclass(slots=True)
class Cluster:
    redis: RedisServer
    relay: Watched
    alone: Watched
    one: Watched
    other: Watched

    def cpu_s(self) -> float:
        return self.alone.cpu_s() + self.one.cpu_s() + self.other.cpu_s()


@contextmanager
def opened() -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="caretway-hops-")))
        server = stack.enter_context(redis_server())

        def kept(process: Watched) -> Watched:
            stack.callback(process.stop)
            return process

        upstream, agent = kept(stub("openai", folder)), kept(stub("agent", folder))
        relay = kept(stub("relay", folder, str(upstream.port)))
        flags = ("--cluster", server.url, "--cluster-drain", "0")
        alone = kept(start_gateway(agent.port, folder))
        one, other = [kept(start_gateway(agent.port, folder, *flags, CARETWAY_CLUSTER_KEY=KEY)) for _ in range(2)]
        wait_for_each_other([one, other])
        yield Cluster(server, relay, alone, one, other)


def wait_for_each_other(gateways: Sequence[Watched]) -> None:
    until = time.monotonic() + 30
    known = b"caretway_replicas %d\n" % len(gateways)
    while not all(known in urllib.request.urlopen(f"{gateway.url}/metrics").read() for gateway in gateways):
        if time.monotonic() > until:
            raise RuntimeError("the gateways do not know each other")
        time.sleep(0.2)


# ---- requests


async def parked(node: Watched, count: int, order: Order) -> list[bytes]:
    """As many steps with a result, each for a turn that waits at this gateway. The result asks for `order`."""
    client = await Client.connect(Address(node.port))
    asked = chat(PARK, stream=False, tools=TOOLS)
    steps: list[bytes] = []
    try:
        for _ in range(count):
            message = (await client.ask(asked)).json()["choices"][0]["message"]
            said = [{"role": "user", "content": "bench:park"}, message]
            done = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": order.prompt()}
            body = {"model": MODEL, "messages": [*said, done], "stream": True, "tools": TOOLS}
            steps.append(msgspec.json.encode(body))
    finally:
        client.close()
    return steps


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request: where it is asked, and the bodies for one round."""

    name: str
    node: Watched
    bodies: Sequence[bytes]
    order: Order = ONE

    def check(self, answer: Answer) -> None:
        if not self.order.park:
            answer.check(self.order, stream=True)
        elif b'"tool_calls"' not in answer.raw:
            raise WrongAnswer(f"no call: {answer.raw[:300]!r}")


async def in_turn(kinds: Sequence[Kind], lines: Sequence["Line"] = ()) -> dict[str, float]:
    """Milliseconds to the first piece. One of each kind after the other: whatever the machine does, it does to all.
    `lines`: cut before each of them."""
    clients = [await Client.connect(Address(kind.node.port)) for kind in kinds]
    took: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    try:
        for number in range(len(kinds[0].bodies)):
            for line in lines:
                line.cut()
            await asyncio.sleep(CUT_S if lines else 0.0)
            for kind, client in rotated(list(zip(kinds, clients, strict=True)), number):
                answer = await client.ask(kind.bodies[number])
                kind.check(answer)
                took[kind.name].append(answer.first_ms)
    finally:
        for client in clients:
            client.close()
    return {name: statistics.median(found) for name, found in took.items()}


@dataclass(frozen=True, slots=True)
class Used:
    """By one request: CPU of all gateways, and what Redis did."""

    cpu_us: float
    redis_us: float
    commands: float


async def used(cluster: Cluster, kind: Kind) -> Used:
    """What comes after an answer belongs to it, so those of one kind are asked in a row."""
    client = await Client.connect(Address(kind.node.port))
    cluster.redis.reset_counts()
    cpu, in_redis = cluster.cpu_s(), cluster.redis.cpu_s()
    try:
        answers = [await client.ask(body) for body in kind.bodies]
    finally:
        client.close()
    count = len(answers)
    cpu, in_redis = cluster.cpu_s() - cpu, cluster.redis.cpu_s() - in_redis
    commands = sum(cluster.redis.counted().values())
    for answer in answers:
        kind.check(answer)
    return Used(cpu / count * 1e6, in_redis / count * 1e6, commands / count)


async def delta_us(node: Watched, bodies: Sequence[bytes], order: Order, watch: Callable[[], float]) -> float:
    """CPU of what is watched for each delta of paced streams."""
    clients = [await Client.connect(Address(node.port)) for _ in bodies]
    before = watch()

    async def one(client: Client, body: bytes, delay: float) -> None:
        await asyncio.sleep(delay)
        (await client.ask(body)).check(order, stream=True)

    try:
        pairs = enumerate(zip(clients, bodies, strict=True))
        await asyncio.gather(*(one(client, body, number * STAGGER_S) for number, (client, body) in pairs))
        return (watch() - before) / (len(bodies) * order.count) * 1e6
    finally:
        for client in clients:
            client.close()


# ---- rounds


async def a_round(cluster: Cluster, ledger: Ledger, number: int) -> None:
    for name, value in (await in_turn(await _steps(cluster))).items():
        ledger.add(FIRST, name, value)
    for kind in rotated(await _steps(cluster), number):
        _add(ledger, CPU, kind.name, f"a step, {kind.name}", await used(cluster, kind))
    prompts = [Kind(name, node, [PROMPT] * STEPS) for name, node in (("alone", cluster.alone), ("no hop", cluster.one))]
    for name, value in (await in_turn(prompts)).items():
        ledger.add(FIRST_PROMPT, name, value)
    for kind in rotated(prompts, number):
        _add(ledger, CPU_PROMPT, kind.name, "a first prompt", await used(cluster, kind))
    calls = [
        Kind("a prompt that calls", cluster.one, [CALL] * STEPS, PARK),
        Kind("a step that calls", cluster.one, await parked(cluster.one, STEPS, PARK), PARK),
    ]
    for kind in calls:
        _add(ledger, CPU, kind.name, kind.name, await used(cluster, kind))
    await _deltas(cluster, ledger, number)
    await _trips(cluster, ledger)


async def _steps(cluster: Cluster) -> list[Kind]:
    alone, one, other = cluster.alone, cluster.one, cluster.other
    nodes = {"alone": (alone, alone), "no hop": (one, one), "hop": (one, other), "replay": (alone, other)}
    return [Kind(name, node, await parked(holder, STEPS, Order(1))) for name, (holder, node) in nodes.items()]


def _add(ledger: Ledger, measure: str, target: str, request: str, found: Used) -> None:
    ledger.add(measure, target, found.cpu_us)
    if target != "alone":
        ledger.add(REDIS, request, found.redis_us)
        ledger.add(COMMANDS, request, found.commands)


async def _deltas(cluster: Cluster, ledger: Ledger, number: int) -> None:
    order = Order(FULL.paced_deltas, FULL.paced_gap_us)
    streams = FULL.paced_streams
    relay, one, other = cluster.relay, cluster.one, cluster.other

    async def plain() -> None:
        bodies = [chat(order, stream=True)] * streams
        ledger.add(DELTA, "relay", await delta_us(relay, bodies, order, relay.cpu_s))

    async def at_home() -> None:
        ledger.add(DELTA, "no hop", await delta_us(one, await parked(one, streams, order), order, one.cpu_s))

    async def hop() -> None:
        bodies = await parked(one, streams, order)
        ledger.add(DELTA, "hop", await delta_us(other, bodies, order, other.cpu_s))

    for each in rotated([plain, at_home, hop], number):
        await each()


async def _trips(cluster: Cluster, ledger: Ledger) -> None:
    client: Any = redis.asyncio.Redis.from_url(cluster.redis.url)
    took: list[float] = []
    for _ in range(100):
        began = time.perf_counter()
        await client.get("nothing")
        took.append((time.perf_counter() - began) * 1000)
    await client.aclose()
    ledger.add(TRIP, "a GET", statistics.median(took))


# ---- beside an earlier state


class Line:
    """What lies between two gateways: it passes bytes on, and can be cut, so that the next hop makes a connection."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.socket.getsockname()[1])
        self.to = 0
        self.made = 0
        """How many connections."""
        self._open: list[asyncio.StreamWriter] = []

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", self.to)
        self.made += 1
        self._open += (writer, onward)
        await asyncio.gather(_passed(reader, onward), _passed(there, writer))

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
    except ConnectionError:
        return
    finally:
        writer.close()


@dataclass(frozen=True, slots=True)
class Pair:
    holder: Watched
    node: Watched
    line: Line


@contextmanager
def both(revision: str) -> Iterator[dict[str, Pair]]:
    """Two gateways of each state, with a line between them."""
    pythons = {GATEWAY: sys.executable, BEFORE: str(before.install(revision))}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="caretway-hops-")))
        server = stack.enter_context(redis_server())
        agent = stub("agent", folder)
        stack.callback(agent.stop)
        pairs: dict[str, Pair] = {}
        for name, python in pythons.items():
            line, gateways = Line(), list[Watched]()
            stack.callback(line.socket.close)
            for more in (("--cluster-address", f"http://127.0.0.1:{line.port}"), ()):
                flags = ("--cluster", server.url, "--cluster-drain", "0", "--cluster-name", name, *more)
                gateways.append(start_gateway(agent.port, folder, *flags, python=python, CARETWAY_CLUSTER_KEY=KEY))
                stack.callback(gateways[-1].stop)
            wait_for_each_other(gateways)
            line.to = gateways[0].port
            pairs[name] = Pair(gateways[0], gateways[1], line)
        yield pairs


async def beside(rounds: int, revision: str) -> None:
    ledger = Ledger()
    with both(revision) as pairs:
        lines = [pair.line for pair in pairs.values()]
        for line in lines:
            await asyncio.start_server(line.carry, sock=line.socket)
        for number in range(rounds + 1):
            for measure, cut in ((KEPT, []), (NEW, lines)):
                kinds = [Kind(name, one.node, await parked(one.holder, STEPS, ONE)) for name, one in pairs.items()]
                made = [line.made for line in lines]
                for name, value in (await in_turn(kinds, cut)).items():
                    if number:  # the first round is for cold paths
                        ledger.add(measure, name, value)
                if cut and any(line.made - before != STEPS for line, before in zip(lines, made, strict=True)):
                    raise RuntimeError("a hop did not make a connection of its own")
        for line in lines:
            line.cut()
        await asyncio.sleep(CUT_S)
    print("\n".join(shown(ledger)))


def shown(ledger: Ledger) -> Iterator[str]:
    bases = {
        FIRST: "no hop",
        CPU: "no hop",
        FIRST_PROMPT: "alone",
        KEPT: BEFORE,
        NEW: BEFORE,
        CPU_PROMPT: "alone",
        DELTA: "relay",
    }
    for measure in ledger.measures():
        yield measure
        for target in ledger.targets(measure):
            line = f"  {target:<16} {_with_spread(ledger.spread(measure, target))}"
            base = bases.get(measure)
            if base is not None and target != base:
                line += f"   {_with_spread(ledger.ratio(measure, target, base))} x {base}"
            yield line


def _with_spread(found: Spread) -> str:
    return f"{found.median:8.2f} ({found.low:.2f} - {found.high:.2f})"


async def main(rounds: int) -> None:
    ledger = Ledger()
    with opened() as cluster:
        await a_round(cluster, Ledger(), 0)  # cold paths
        for number in range(rounds):
            await a_round(cluster, ledger, number)
    print("\n".join(shown(ledger)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=7)
    parser.add_argument("--before", metavar="REVISION")
    arguments = parser.parse_args()
    uvloop.run(beside(arguments.rounds, arguments.before) if arguments.before else main(arguments.rounds))
