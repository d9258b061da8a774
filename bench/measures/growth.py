"""How costs grow: with the length of the history, with the number of tools, and of a resumed tool step.

The gateway's own CPU time, so what the machine does besides matters little. A resumed step is set beside a request of
the same length that is refused right after it was read: what is left is what resuming itself costs.
"""

import statistics
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ..ledger import Ledger, slope
from ..load import Address, Answer, Client, chat
from ..script import HOLD, MODEL, PARK, TOOL, Order
from ..sizes import Sizes
from ..targets import GATEWAY, House, Target
from .memory import ROOM, TOOLS

_REQUIRED: Final = {"x-caretway-session": "required"}
"""With results for a call that nobody knows: refused as soon as the request was read."""
WORDS: Final = "The quick brown fox jumps over the lazy dog. " * 4


def history(length: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"Message {n}. {WORDS}"} for n in range(length - length % 2)]


def tools(count: int) -> list[dict[str, Any]]:
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where."}, "depth": {"type": "integer"}},
        "required": ["path"],
    }
    described = "Reads what is there and says what it is. Nothing is changed by it, and nothing is left behind."
    return [
        {"type": "function", "function": {"name": f"tool_{n}", "description": described, "parameters": schema}}
        for n in range(count)
    ]


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    await _histories(house, sizes, ledger)
    await _tools(house, sizes, ledger)
    await _resumed(house, sizes, ledger)


async def _cpu_ms(gateway: Target, bodies: Sequence[bytes], statuses: tuple[int, ...] = (200,)) -> float:
    """The median over these requests, each a connection's next."""
    client = await Client.connect(gateway.address)
    used: list[float] = []
    try:
        for body in bodies:
            before = gateway.process.cpu_s()
            answer = await client.ask(body)
            used.append((gateway.process.cpu_s() - before) * 1000)
            assert answer.status in statuses, answer.raw[:300]
    finally:
        client.close()
    return statistics.median(used)


async def _histories(house: House, sizes: Sizes, ledger: Ledger) -> None:
    times: list[tuple[float, float]] = []
    memory: list[tuple[float, float]] = []
    for length in sizes.histories:
        before = history(length)
        with house.fresh_gateway(*ROOM) as gateway:
            body = chat(Order(), stream=False, before=before)
            cpu = await _cpu_ms(gateway, [body] * (sizes.growth_requests + 2))
            idle = gateway.process.pss_kib()
            clients = [await Client.connect(gateway.address) for _ in range(sizes.growth_held)]
            for client in clients:
                await client.hold(chat(HOLD, stream=True, before=before))
            each = max(1.0, (gateway.process.pss_kib() - idle) / len(clients))
            for client in clients:
                client.close()
        times.append((len(body), cpu))
        memory.append((len(body), each))
        ledger.add(f"history {length}: CPU ms per request", GATEWAY, cpu)
        ledger.add(f"history {length}: KiB per open stream", GATEWAY, each)
    ledger.add("history: log-log slope of CPU over bytes", GATEWAY, slope(times[1:]))
    ledger.add("history: log-log slope of memory over bytes", GATEWAY, slope(memory[1:]))


async def _tools(house: House, sizes: Sizes, ledger: Ledger) -> None:
    times: list[tuple[float, float]] = []
    with house.fresh_gateway(*ROOM, "--max-body-bytes", str(64 * 2**20)) as gateway:
        for count in sizes.tools:
            body = chat(Order(), stream=False, tools=tools(count))
            requests = sizes.growth_requests if count < 1000 else 3
            cpu = await _cpu_ms(gateway, [body] * (requests + 1))
            times.append((len(body), cpu))
            ledger.add(f"{count} tools ({len(body)} bytes): CPU ms per request", GATEWAY, cpu)
    ledger.add("tools: log-log slope of CPU over bytes", GATEWAY, slope(times[1:]))


async def _resumed(house: House, sizes: Sizes, ledger: Ledger) -> None:
    for length in sizes.histories:
        with house.fresh_gateway(*ROOM) as gateway:
            strict = Target(GATEWAY, gateway.process, Address(gateway.address.port, _REQUIRED))
            resumed: list[float] = []
            read: list[float] = []
            for _ in range(sizes.resumed):
                step = await _step(gateway, length)
                resumed.append(await _cpu_ms(gateway, [step]))
                refused = _body(length, "sess_unknown__call_0")
                read.append(await _cpu_ms(strict, [refused], (400, 404, 409)))
        ledger.add(f"history {length}: CPU ms of a resumed step", GATEWAY, statistics.fmean(resumed))
        ledger.add(f"history {length}: CPU ms of reading alone", GATEWAY, statistics.fmean(read))
        own = statistics.fmean(resumed) - statistics.fmean(read)
        ledger.add(f"history {length}: CPU ms of resuming itself", GATEWAY, own)


async def _step(gateway: Target, length: int) -> bytes:
    """Park a turn with this history; the request that answers its call."""
    client = await Client.connect(gateway.address)
    before = history(length)
    answer: Answer = await client.ask(chat(PARK, stream=False, before=before, tools=TOOLS))
    client.close()
    message = answer.json()["choices"][0]["message"]
    return _body(length, message["tool_calls"][0]["id"])


def _body(length: int, ticket: str) -> bytes:
    call = {"id": ticket, "type": "function", "function": {"name": TOOL, "arguments": "{}"}}
    messages = [
        *history(length),
        {"role": "user", "content": PARK.prompt()},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": ticket, "content": "done"},
    ]
    return msgspec.json.encode({"model": MODEL, "messages": messages, "tools": TOOLS, "stream": False})
