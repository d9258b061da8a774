"""What every stand-in does the same way: a uvloop server on one loopback port until SIGTERM."""

import asyncio
import signal
import sys
from collections.abc import Callable

import uvloop


def serve(factory: Callable[[], asyncio.Protocol]) -> None:
    """`factory` makes the protocol of one connection. The port is the first argument."""
    port = int(sys.argv[1])

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, stop.set)
        server = await loop.create_server(factory, "127.0.0.1", port, backlog=4096)
        await stop.wait()
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


class Ticker:
    """Calls `step` at a steady pace until it returns False. Late steps do not shift the later ones."""

    def __init__(self, gap_s: float, step: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._gap = gap_s
        self._step = step
        self._due = self._loop.time()
        self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        if self._step():
            self._due += self._gap
            self._handle = self._loop.call_at(self._due, self._tick)

    def cancel(self) -> None:
        self._handle.cancel()
