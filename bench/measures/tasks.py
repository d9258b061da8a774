"""What one task costs upstream: a tool loop of ten steps and a chat of ten turns. Runs, uncached input tokens and bytes
sent, counted by the simulated Cursor and by a relay before it.

The gateway does it once as it is and once with `x-caretway-session: fresh`, as proxies without sessions do: every
request is a run of its own that is told everything. What is sent because Cursor asked for it is told apart: the
simulated one holds no messages between two runs, and asks for those that the conversation's state names. Its
checkpoint, which goes back as it came, names each of them twice (for the model, and for display); a history of ours
names it once. The peers pass on the very same requests; what they send is counted by the OpenAI stand-in. What of
that a provider has in its cache is not theirs to say.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from ..ledger import Ledger
from ..load import Address, Client
from ..processes import free_port, launch
from ..script import MODEL
from ..sizes import Sizes
from ..targets import DIRECT, GATEWAY, House, start_gateway

FRESH: Final = "caretway, fresh"
"""The gateway, told to keep nothing: the design of proxies without sessions."""
STEPS: Final = 10
SIM_MODEL: Final = "sim-auto"
SYSTEM: Final = "You are a careful assistant in a large repository. " * 40
RESULT: Final = "".join(f"row {n:02} of a file that was read\n" for n in range(60))
"""No two lines are alike: 9Router leaves out what a result repeats, and real ones seldom do."""
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Looks a key up.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
        },
    }
]
Talk = list[dict[str, Any]]


class Count:
    """Bytes that were sent upstream."""

    def __init__(self) -> None:
        self.sent = 0


@asynccontextmanager
async def counted(port: int, count: Count) -> AsyncIterator[int]:
    """A relay to that port; yields its own."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: bool) -> None:
        while data := await reader.read(65536):
            count.sent += len(data) if counts else 0
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as both:
            both.create_task(pipe(reader, to_there, True))
            both.create_task(pipe(there, writer, False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    port = free_port()
    command = [sys.executable, "-m", "caretway", "simulate", "--port", str(port)]
    simulator = launch("simulator", command, port, house.folder, health="/_sim/stats")
    count = Count()
    try:
        async with counted(port, count) as relay:
            gateway = await asyncio.to_thread(start_gateway, relay, house.folder)
            try:
                for task, play in (("ten-step loop", _loop), ("ten-turn chat", _chat)):
                    bodies = await _cursor(ledger, task, play, gateway.port, port, count, GATEWAY, {})
                    await _cursor(ledger, task, play, gateway.port, port, count, FRESH, {"x-caretway-session": "fresh"})
                    await _peers(house, ledger, task, bodies)
            finally:
                await asyncio.to_thread(gateway.stop)
    finally:
        simulator.stop()


async def _cursor(
    ledger: Ledger, task: str, play: Any, port: int, simulator: int, count: Count, name: str, headers: dict[str, str]
) -> list[Talk]:
    client = await Client.connect(Address(port, headers))
    await client.ask(_body([{"role": "user", "content": "sim: say warm"}], SIM_MODEL))  # the preamble, once for all
    await _stats(simulator, "POST", "/_sim/reset")
    before = count.sent
    talks: list[Talk] = await play(client)
    stats = msgspec.json.decode(await _stats(simulator, "GET", "/_sim/stats"))
    client.close()
    ledger.add(f"{task}: runs", name, stats["runs_opened"] + stats["runs_resumed"])
    ledger.add(f"{task}: uncached input tokens", name, stats["tokens_in_uncached"])
    ledger.add(f"{task}: KiB sent upstream", name, (count.sent - before) / 1024)
    ledger.add(f"{task}: KiB of them that Cursor asked for", name, stats["blob_bytes_got"] / 1024)
    return talks


async def _loop(client: Client) -> list[Talk]:
    lines = [part for n in range(STEPS) for part in (f'sim: call lookup {{"key": "k{n}"}}', "sim: result")]
    talk: Talk = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n".join(lines)}]
    talks: list[Talk] = []
    while True:
        talks.append([*talk])
        message = await _said(client, talk)
        if not message.get("tool_calls"):
            return talks
        talk.append(message)
        talk += [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in message["tool_calls"]]


async def _chat(client: Client) -> list[Talk]:
    talk: Talk = [{"role": "system", "content": SYSTEM}]
    talks: list[Talk] = []
    for turn in range(STEPS):
        talk.append({"role": "user", "content": f"{RESULT}\nsim: say the answer to question {turn}"})
        talks.append([*talk])
        talk.append(await _said(client, talk))
    return talks


async def _said(client: Client, talk: Talk) -> dict[str, Any]:
    answer = await client.ask(_body(talk, SIM_MODEL))
    assert answer.status == 200, answer.raw[:300]
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name) is not None}


def _body(talk: Talk, model: str) -> bytes:
    return msgspec.json.encode({"model": model, "messages": talk, "tools": TOOLS, "stream": False})


async def _peers(house: House, ledger: Ledger, task: str, talks: list[Talk]) -> None:
    """The same requests through everybody else, to the OpenAI stand-in."""
    for target in house.targets:
        if target.name.startswith("caretway"):
            continue
        client = await Client.connect(target.address)
        before = await _received(house)
        for talk in talks:
            answer = await client.ask(_body(talk, MODEL))
            assert answer.status == 200, answer.raw[:300]
        client.close()
        ledger.add(f"{task}: runs", target.name, len(talks))
        own = 0 if target.name == DIRECT else await _received(house) - before
        ledger.add(f"{task}: KiB sent upstream", target.name, (own or sum(len(_body(t, MODEL)) for t in talks)) / 1024)


async def _received(house: House) -> int:
    return int(await _stats(house.upstream.port, "GET", "/_received"))


async def _stats(port: int, method: str, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    body = await reader.readexactly(length)
    writer.close()
    return body
