"""Many WebSockets: memory of an idle one, and ten-step tool loops on others beside them, straight and through proxies.

`python -m bench.sockets [IDLE] [ACTIVE]`. The proxies are nginx and HAProxy, if they are installed, with the files in
`deploy/`. A loop is right when every call came once, in order, and the answer at the end.
"""

import asyncio
import json
import shutil
import sys
import time
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

from .processes import Watched, gateway_and_simulator

IDLE: Final = 1000
ACTIVE: Final = 100
STEPS: Final = 10
AT_ONCE: Final = 50
"""Connections that are opened side by side."""
PATIENCE_S: Final = 120.0
TOOL: Final = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
}
LOOP: Final = "\n".join([*(f'sim: call look {{"n": {n}}}' for n in range(STEPS)), "sim: say done"])
LAST: Final = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})


async def opened(url: str, count: int) -> list[ClientConnection]:
    found: list[ClientConnection] = []
    while len(found) < count:
        some = min(AT_ONCE, count - len(found))
        found += await asyncio.gather(*(connect(url, max_size=None, open_timeout=PATIENCE_S) for _ in range(some)))
    return found


async def loop(socket: ClientConnection) -> None:
    """One tool loop, as Codex makes it: only what is new, and nothing stored."""
    new: list[Any] = [{"role": "user", "content": LOOP}]
    more: dict[str, Any] = {}
    for n in range(STEPS + 1):
        asked = {"type": "response.create", "model": "sim-auto", "input": new, "store": False, "tools": [TOOL], **more}
        await socket.send(json.dumps(asked))
        event: dict[str, Any] = {"type": ""}
        while event["type"] not in LAST:
            event = json.loads(await socket.recv())
        assert event["type"] == "response.completed", event
        said = event["response"]
        calls = [item for item in said["output"] if item["type"] == "function_call"]
        assert [json.loads(call["arguments"]) for call in calls] == ([{"n": n}] if n < STEPS else []), said
        new = [{"type": "function_call_output", "call_id": call["call_id"], "output": f"seen {n}"} for call in calls]
        more = {"previous_response_id": said["id"]}
    [words] = [part["text"] for item in said["output"] for part in item["content"]]
    assert words == "done", words


async def measure(name: str, base: str, gateway: Watched, simulator: Watched, idle: int, active: int) -> None:
    url = f"ws{base.removeprefix('http')}/v1/responses"
    warm = await opened(url, 8)
    await asyncio.gather(*map(loop, warm))  # what is loaded once is loaded
    before = gateway.pss_kib()
    waiting = await opened(url, idle)
    await asyncio.sleep(1.0)
    each = (gateway.pss_kib() - before) / idle
    runs, began = opened_runs(simulator), time.monotonic()
    working = await opened(url, active)
    async with asyncio.timeout(PATIENCE_S * 4):
        await asyncio.gather(*map(loop, working))
    took = time.monotonic() - began
    pongs = await asyncio.gather(*(connection.ping() for connection in waiting))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*pongs)
    print(
        f"{name:<9} {idle} idle, {each:.1f} KiB each; {active} loops of {STEPS} steps beside them right, "
        f"{opened_runs(simulator) - runs} runs, {took:.1f} s; all {idle} still answer",
        flush=True,
    )
    for some in (warm, working, waiting):
        await asyncio.gather(*(connection.close() for connection in some))


def opened_runs(simulator: Watched) -> int:
    with urllib.request.urlopen(f"{simulator.url}/_sim/stats", timeout=10) as answer:
        return int(json.load(answer)["runs_opened"])


def main() -> None:
    idle, active = (int(word) for word in (sys.argv[1:3] if len(sys.argv) > 2 else (str(IDLE), str(ACTIVE))))
    sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
    proxies = import_module("deploy").PROXIES  # of scripts/deploy.py

    with gateway_and_simulator() as pair:
        gateway, simulator = pair.gateway, pair.simulator
        asyncio.run(measure("straight", gateway.url, gateway, simulator, idle, active))
        for proxy in ("nginx", "haproxy"):
            if shutil.which(proxy) is None:
                print(f"{proxy:<9} is not installed")
                continue
            (pair.folder / proxy).mkdir()
            with proxies[proxy](pair.folder / proxy, gateway.url.removeprefix("http://")) as base:
                asyncio.run(measure(proxy, base, gateway, simulator, idle, active))


if __name__ == "__main__":
    main()
