"""The simulator, which also counts how often each path is called: `python -m bench.stubs.counting_simulator PORT`.

It announces HTTP/2 to the official SDK, and how many calls a step has if they are several; it pauses nowhere.
`GET /_sim/calls` tells the counts.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from dataclasses import replace
from typing import Final
from unittest.mock import patch

from caretway_sim import server
from caretway_sim.exchange import Deaf, Inlet, Request, SimExchange, answer
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.service import Service

CALLS: Final = "/_sim/calls"


class CountingService(Service):
    counts: Final[Counter[str]] = Counter()

    def accept(self, request: Request, exchange: SimExchange) -> Inlet:
        if request.path == CALLS:
            answer(exchange, 200, "application/json", json.dumps(self.counts).encode())
            return Deaf()
        self.counts[request.path] += 1
        return super().accept(request, exchange)


async def main() -> None:
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    with patch.object(server, "Service", CountingService):
        simulator = server.Simulator(prefer="h2", manners=replace(LIVE_AT_ONCE, lists_calls=True))
    await simulator.listen("127.0.0.1", int(sys.argv[1]))
    await stop.wait()
    await simulator.aclose()


if __name__ == "__main__":
    asyncio.run(main())
