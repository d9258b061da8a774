"""From starting the process to its first answer on /health, with bytecode that is already there."""

import asyncio
import subprocess
import time

from ..ledger import Ledger
from ..processes import answers, free_port
from ..sizes import Sizes
from ..targets import GATEWAY, House, gateway_command


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    await asyncio.to_thread(_start, house)  # writes the bytecode, fills the file cache
    for _ in range(sizes.starts):
        took, used = await asyncio.to_thread(_start, house)
        ledger.add("cold start: s to the first answer", GATEWAY, took)
        ledger.add("cold start: CPU s", GATEWAY, used)


def _start(house: House) -> tuple[float, float]:
    port = free_port()
    url = f"http://127.0.0.1:{house.agent.port}"
    command = gateway_command(port, house.folder, "--agent-url", url, "--agent-transport", "h2")
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not answers(port, "/health"):
            time.sleep(0.002)
            if process.poll() is not None or time.perf_counter() - began > 30:
                raise RuntimeError("the gateway did not start")
        took = time.perf_counter() - began
        return took, time.clock_gettime((~process.pid << 3) | 2)
    finally:
        process.terminate()
        process.wait()
