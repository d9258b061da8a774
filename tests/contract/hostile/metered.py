"""A gateway in a process of its own, with a meter on its event loop and a look at its memory.

Run as a program it is the gateway: settings come as JSON in the first argument, the port goes out on the first line,
and each line that comes in is answered with what was measured since the last one. Imported, `metered` starts it.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from caretway.config import Settings
from caretway.gateway import Gateway
from contract.meter import Meter, memory_as_served

TESTS = Path(__file__).parents[2]
START_S = 60


@dataclass(frozen=True, slots=True)
class Reading:
    longest_ms: float
    """Thread CPU time of the longest callback since the last reading."""
    where: str
    rss: int
    """Bytes, now and at most since the last reading."""
    peak: int


class Metered:
    def __init__(self, process: asyncio.subprocess.Process, http: httpx.AsyncClient) -> None:
        self._process = process
        self.http = http

    async def read(self) -> Reading:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"read\n")
        return Reading(**json.loads(await self._process.stdout.readline()))


async def keep_content(http: httpx.AsyncClient) -> None:
    """Switches on what costs the most for each answer."""
    token = {"x-caretway-csrf": (await http.get("/caretway/v1/session")).json()["csrf"]}
    for switch, given in (("content", {"keep": True}), ("record", {"seconds": 3600})):
        answer = await http.put(f"/caretway/v1/{switch}", json=given, headers=token)
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def metered(**settings: Any) -> AsyncIterator[Metered]:
    with TemporaryDirectory() as data_dir:
        known = {"port": 0, "data_dir": data_dir, "access_token": "test-token"} | settings
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            json.dumps(known),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(TESTS)},
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(START_S):
                base_url = (await process.stdout.readline()).decode().strip()
            async with httpx.AsyncClient(base_url=base_url, timeout=120, trust_env=False, verify=False) as http:
                yield Metered(process, http)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


# ---- the program


def memory() -> tuple[int, int]:
    """Resident bytes: now, and the most there were since the last time."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, most = (int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")  # from here on `most` counts anew
    return now, most


async def main() -> None:
    settings = json.loads(sys.argv[1])
    settings["data_dir"] = Path(settings["data_dir"])
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    async with Gateway(Settings(**settings)) as running, Meter() as meter:

        def asked() -> None:
            if not os.read(sys.stdin.fileno(), 4096):
                ended.set()
                return
            longest, _ = meter.take()
            rss, peak = memory()
            reading = {"longest_ms": longest.seconds * 1000, "where": longest.where, "rss": rss, "peak": peak}
            print(json.dumps(reading), flush=True)

        loop.add_reader(sys.stdin, asked)
        print(running.base_url, flush=True)
        with memory_as_served():
            await ended.wait()
        loop.remove_reader(sys.stdin)


if __name__ == "__main__":
    asyncio.run(main())
