"""What open dashboards cost: gateway CPU per delta of 200 streams with 50 dashboards and with none, and gateway CPU a
second of an idle gateway with one open. Each reads the event stream and, as the Overview does, asks for the last hour
when that has changed, every two seconds at most.

`python -m bench.watchers [ROUNDS]`. Each round measures nobody, nobody again (A/A) and 50 readers, in changing order,
seconds apart, by the CPU clock of the gateway's process: what else runs on the machine counts for all three.
"""

import asyncio
import json
import statistics
import sys
import time
from typing import Final

from .processes import Watched, gateway_and_simulator

STREAMS: Final = 200
READERS: Final = 50
DELTAS: Final = 60
PAUSE_MS: Final = 100
APART_S: Final = 2.0
IDLE_S: Final = 20.0
ROUNDS: Final = 6
ARMS: Final = {"nobody": 0, "nobody again": 0, f"{READERS} readers": READERS}


async def opened(
    port: int, method: str, path: str, body: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def model_stream(port: int) -> int:
    """How many deltas came."""
    said = [{"role": "user", "content": f"sim: stream {DELTAS} 20 {PAUSE_MS}"}]
    body = json.dumps({"model": "sim-auto", "stream": True, "messages": said}).encode()
    reader, writer = await opened(port, "POST", "/v1/chat/completions", body)
    data = b""
    while b"[DONE]" not in data[-64:]:
        more = await reader.read(65536)
        if not more:
            raise RuntimeError(f"a stream ended early: {data[:300]!r}")
        data += more
    writer.close()
    return data.count(b'"content":"')


class Hour:
    """Asks for the last hour on a connection that stays open, as a browser does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asked = 0.0

    async def ask(self) -> int:
        """How many bytes came."""
        if time.monotonic() - self._asked < APART_S:
            return 0
        self._asked = time.monotonic()
        if self._connection is None:
            self._connection = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        reader, writer = self._connection
        writer.write(f"GET /caretway/v1/overview HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        return length

    def close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()


async def page(port: int, began: asyncio.Event) -> int:
    """Reads events until it is cancelled; how many bytes came."""
    reader, writer = await opened(port, "GET", "/caretway/v1/events")
    total, hour = 0, Hour(port)
    try:
        while more := await reader.read(65536):
            total += len(more)
            began.set()
            if b'"overview"' in more:
                total += await hour.ask()
    except asyncio.CancelledError:
        return total
    finally:
        writer.close()
        hour.close()
    raise RuntimeError("the event stream ended")


async def pages(port: int, count: int) -> list[asyncio.Task[int]]:
    events = [asyncio.Event() for _ in range(count)]
    tasks = [asyncio.create_task(page(port, event)) for event in events]
    await asyncio.gather(*(event.wait() for event in events))
    return tasks


async def closed(tasks: list[asyncio.Task[int]]) -> int:
    for task in tasks:
        task.cancel()
    return sum(await asyncio.gather(*tasks))


async def arm(gateway: Watched, readers: int) -> tuple[float, int]:
    """(microseconds of CPU per delta, bytes that the readers got)"""
    watching = await pages(gateway.port, readers)
    before = gateway.cpu_s()
    deltas = sum(await asyncio.gather(*(model_stream(gateway.port) for _ in range(STREAMS))))
    cost = (gateway.cpu_s() - before) / deltas * 1e6
    return cost, await closed(watching)


async def idle(gateway: Watched, readers: int) -> float:
    """Milliseconds of CPU a second."""
    watching = await pages(gateway.port, readers)
    await asyncio.sleep(2.0)  # the account was asked meanwhile
    before, began = gateway.cpu_s(), time.monotonic()
    await asyncio.sleep(IDLE_S)
    cost = (gateway.cpu_s() - before) * 1000 / (time.monotonic() - began)
    await closed(watching)
    return cost


async def measure(gateway: Watched, rounds: int) -> None:
    costs: dict[str, list[float]] = {name: [] for name in ARMS}
    await arm(gateway, READERS)  # what is done once is done
    for number in range(rounds):
        names = list(ARMS)
        names = names[number % 3 :] + names[: number % 3]
        for name in names:
            cost, read = await arm(gateway, ARMS[name])
            costs[name].append(cost)
            print(f"round {number + 1}  {name:<14} {cost:7.1f} us per delta  {read:>9} bytes read", flush=True)
    base, again, watched = costs.values()
    aa = [b / a for a, b in zip(base, again, strict=True)]
    ab = [2 * w / (a + b) for a, b, w in zip(base, again, watched, strict=True)]
    for name, values in costs.items():
        print(
            f"{name:<14} median {statistics.median(values):6.1f}  {min(values):.1f} to {max(values):.1f} us per delta"
        )
    print(f"A/A            median {statistics.median(aa):6.3f}  {min(aa):.3f} to {max(aa):.3f}")
    print(f"readers/nobody median {statistics.median(ab):6.3f}  {min(ab):.3f} to {max(ab):.3f}")
    for readers in (0, 1, READERS):
        print(f"idle, {readers:>2} pages open: {await idle(gateway, readers):.3f} ms of CPU a second", flush=True)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with gateway_and_simulator() as pair:
        asyncio.run(measure(pair.gateway, rounds))


if __name__ == "__main__":
    main()
