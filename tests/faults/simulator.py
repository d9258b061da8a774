"""The simulated Cursor as a process of its own, with what a soak wants different: a quick heartbeat, and few streams on
one connection, so that a fault has neighbours but does not hit everybody. Its manners are those of `live`, without the
waits that only take time.

    python -m faults.simulator HEARTBEAT_S MAX_STREAMS     prints its port
"""

import asyncio
import signal
import sys

from caretway.simulator import Simulator
from caretway.simulator.manners import LIVE_AT_ONCE


async def serve(heartbeat_s: float, max_streams: int) -> None:
    simulator = Simulator(heartbeat_s=heartbeat_s, max_streams=max_streams, manners=LIVE_AT_ONCE)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        print(await simulator.listen("127.0.0.1", 0), flush=True)
        await stop.wait()
    finally:
        await simulator.aclose()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2])))
    else:
        uvloop.run(serve(float(sys.argv[1]), int(sys.argv[2])))
