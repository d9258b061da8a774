"""The simulated Cursor as a process of its own, with what a soak wants different: a quick heartbeat, and few streams on
one connection, so that a fault has neighbours but does not hit everybody. Its manners are those of `live`, without the
waits that only take time.

    python -m faults.simulator HEARTBEAT_S MAX_STREAMS h1|h2     prints its port
"""

import asyncio
import signal
import sys

from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.shared import Prefer


async def serve(heartbeat_s: float, max_streams: int, prefer: Prefer) -> None:
    """`prefer` is what it tells clients that ask."""
    simulator = Simulator(prefer=prefer, heartbeat_s=heartbeat_s, max_streams=max_streams, manners=LIVE_AT_ONCE)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        print(await simulator.listen("127.0.0.1", 0), flush=True)
        await stop.wait()
    finally:
        await simulator.aclose()


if __name__ == "__main__":
    serving = serve(float(sys.argv[1]), int(sys.argv[2]), "h2" if sys.argv[3] == "h2" else "h1")
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)
