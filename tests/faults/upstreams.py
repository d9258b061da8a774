"""What is behind the gateway in a soak, and goes wrong: a simulator behind a proxy, or a program behind its pipes."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol
from urllib.request import urlopen

from caretway_sim.service import STATS
from faults import pipes, processes
from faults.plan import by_seed, quiet
from faults.processes import Process
from faults.proxy import Proxy
from faults.rigs import Rig
from programs import write_program

RUNS: Final = "runs opened"
"""Of Cursor; of cursor-agent, the starts of its program."""


class Upstream(Protocol):
    flags: Mapping[str, str]
    """Of a gateway that is to use it."""
    environment: Mapping[str, str]

    def begin(self, seed: str) -> None:
        """From now on there are faults."""

    def end(self) -> None: ...

    def hang_up(self) -> None:
        """Close what is kept open."""

    @property
    def open(self) -> bool: ...

    def fired(self) -> Counter[str]: ...

    def carried(self) -> dict[str, int]: ...

    def cpu_s(self) -> float: ...

    def spoilt(self) -> list[str]:
        """Files that the gateway had no business with, and changed. To be asked when it has ended."""
        ...


class Network:
    def __init__(self, rig: Rig, transport: str, simulator: Process, proxy: Proxy, port: int) -> None:
        self.flags: Mapping[str, str] = {"agent-url": f"http://127.0.0.1:{port}", "agent-transport": transport}
        self.environment: Mapping[str, str] = {}
        self._weather = rig.weather[transport]
        self._simulator = simulator
        self._proxy = proxy
        self._stats = f"http://127.0.0.1:{simulator.port}{STATS}"

    def begin(self, seed: str) -> None:
        self._proxy.plan = by_seed(seed, self._weather)
        self._proxy.hang_up()

    def end(self) -> None:
        self._proxy.plan = quiet

    def hang_up(self) -> None:
        self._proxy.hang_up()

    @property
    def open(self) -> bool:
        return bool(self._proxy.open)

    def fired(self) -> Counter[str]:
        return Counter(f"{each.fault.kind.value}, {each.fault.direction.value}" for each in self._proxy.fired)

    def carried(self) -> dict[str, int]:
        with urlopen(self._stats, timeout=20) as answer:  # of the simulator
            runs = json.load(answer)["runs_opened"]
        return {way.value: count for way, count in self._proxy.carried.items()} | {RUNS: runs}

    def cpu_s(self) -> float:
        return self._simulator.cpu_s()

    def spoilt(self) -> list[str]:
        return []


PROGRAM: Final = """\
import os, sys
sys.path.insert(0, {tests!r})
os.environ["CURSOR_CONFIG_DIR"] = {memory!r}
from faults.pipes import main
sys.exit(main({folder!r}))
"""
OF_THE_USER: Final = {
    ".cursor/cli-config.json": '{"permissions": {"allow": ["Shell(ls)"], "deny": []}}\n',
    ".cursor/mcp.json": '{"mcpServers": {}}\n',
    ".cursor/projects/home-user-work/mcp-approvals.json": '["theirs-0123456789abcdef"]',
    ".config/cursor/auth.json": '{"accessToken": "of the user"}',
}
"""Files in the home directory of a soak: none of the gateway's business."""


class Pipes:
    def __init__(self, rig: Rig, transport: str, folder: Path) -> None:
        self._weather = rig.weather[transport]
        self._folder = folder / "pipes"
        self._home = folder / "home"
        for name, text in OF_THE_USER.items():
            (self._home / name).parent.mkdir(parents=True, exist_ok=True)
            (self._home / name).write_text(text)
        self._folder.mkdir()
        program = self._folder / "cursor-agent"
        tests, memory = str(processes.TESTS), str(self._folder / "memory")
        write_program(program, PROGRAM.format(tests=tests, memory=memory, folder=str(self._folder)))
        self.flags: Mapping[str, str] = {"agent-bin": str(program), "cli-transport": transport}
        self.environment: Mapping[str, str] = {"HOME": str(self._home)}
        self._before = _everything_below(self._home)

    def begin(self, seed: str) -> None:
        weather = {"seed": seed, "up": self._weather.up, "down": self._weather.down}
        (self._folder / pipes.WEATHER).write_text(json.dumps(weather))

    def end(self) -> None:
        (self._folder / pipes.WEATHER).unlink(missing_ok=True)

    def hang_up(self) -> None:
        """Warm processes are meant to stay."""

    @property
    def open(self) -> bool:
        return False

    def fired(self) -> Counter[str]:
        told = self._folder / pipes.FIRED
        return Counter(told.read_text().splitlines() if told.exists() else ())

    def carried(self) -> dict[str, int]:
        return {RUNS: (self._folder / pipes.STARTS).stat().st_size}

    def cpu_s(self) -> float:
        return 0.0

    def spoilt(self) -> list[str]:
        after = _everything_below(self._home)
        names = self._before.keys() | after.keys()
        return sorted(name for name in names if self._before.get(name, b"none") != after.get(name, b"none"))


def _everything_below(folder: Path) -> dict[str, bytes | None]:
    """Directories too: an empty one that was not there before is a change."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@asynccontextmanager
async def _network(rig: Rig, transport: str, folder: Path, heartbeat_s: float) -> AsyncIterator[Upstream]:
    async with processes.simulator(heartbeat_s, rig.max_streams, transport, folder) as simulator:
        proxy = Proxy(simulator.port)
        try:
            yield Network(rig, transport, simulator, proxy, await proxy.listen())
        finally:
            await proxy.aclose()


@asynccontextmanager
async def _program(rig: Rig, transport: str, folder: Path) -> AsyncIterator[Upstream]:
    yield Pipes(rig, transport, folder)


def upstream(rig: Rig, transport: str, folder: Path, heartbeat_s: float) -> AbstractAsyncContextManager[Upstream]:
    return _program(rig, transport, folder) if rig.program else _network(rig, transport, folder, heartbeat_s)
