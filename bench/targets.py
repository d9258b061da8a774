"""What is measured: the upstream itself, the byte relay, the gateway, the peers. Started together, stopped together."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from .load import Address
from .peers import PEERS, LeftOut, start_peer
from .processes import Watched, free_port, launch

DIRECT: Final = "direct"
DIRECT_AGENT: Final = "direct agent"
"""The gateway's own upstream, the Agent API; `direct` is the one of everybody else."""
RELAY: Final = "relay"
GATEWAY: Final = "caretway"
AGAIN: Final = "caretway-again"
"""A second copy of the gateway: what differs between the two is noise."""
UNGATHERED: Final = "caretway, gather 0"
"""A gateway that reads every run at once, also while others speak."""
BEFORE: Final = "caretway-before"
"""The gateway at an earlier commit."""
ENVOY: Final = "envoy"
LITELLM: Final = "litellm"
BUN: Final = "portkey-bun"
NODE: Final = "portkey-node"
SLOW: Final = frozenset({LITELLM})
T = TypeVar("T")


@dataclass(slots=True)
class Target:
    name: str
    process: Watched
    address: Address
    streams: bool = True
    """False: it cannot stream here."""

    @property
    def slow(self) -> bool:
        return self.name in SLOW


@dataclass(slots=True)
class House:
    """Everything that runs, and where it may write."""

    folder: Path
    upstream: Watched
    agent: Watched
    targets: list[Target] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def named(self, *names: str) -> list[Target]:
        return [target for target in self.targets if target.name in names]

    @contextmanager
    def fresh_gateway(self, *flags: str) -> Iterator[Target]:
        """A gateway of its own, for what only a new process can show."""
        process = start_gateway(self.agent.port, self.folder, *flags)
        try:
            yield Target(GATEWAY, process, Address(process.port))
        finally:
            process.stop()


def stub(name: str, folder: Path, *arguments: str) -> Watched:
    port = free_port()
    command = [sys.executable, "-m", f"bench.stubs.{name}", str(port), *arguments]
    checkout = str(Path(__file__).parents[1])
    return launch(name, command, port, folder, health="", environment={"PYTHONPATH": checkout})


def gateway_command(port: int, folder: Path, *flags: str, python: str = sys.executable) -> list[str]:
    data = folder / f"data-{port}"
    own = ("--port", str(port), "--data-dir", str(data))
    return [python, "-m", "caretway", "serve", *own, *flags]


def start_gateway(
    agent_port: int, folder: Path, *flags: str, python: str = sys.executable, **environment: str
) -> Watched:
    """As its users start it: log, limits, store and all. Only where Cursor is, is not the default."""
    port = free_port()
    upstream = ("--agent-url", f"http://127.0.0.1:{agent_port}", "--agent-transport", "h2")
    command = gateway_command(port, folder, *upstream, *flags, python=python)
    return launch(GATEWAY, command, port, folder, environment={"CARETWAY_ACCESS_TOKEN": "bench", **environment})


@contextmanager
def open_house(folder: Path, peers: Sequence[str], before: Path | None = None) -> Iterator[House]:
    """`before`: the interpreter of an earlier gateway, which is measured too."""
    with ExitStack() as stack:

        def kept(process: Watched) -> Watched:
            stack.callback(process.stop)
            return process

        upstream, agent = kept(stub("openai", folder)), kept(stub("agent", folder))
        relay = kept(stub("relay", folder, str(upstream.port)))
        house = House(folder, upstream, agent)
        house.targets = [
            Target(DIRECT, upstream, Address(upstream.port)),
            Target(RELAY, relay, Address(relay.port)),
        ]
        pythons = {GATEWAY: sys.executable, AGAIN: sys.executable} | ({BEFORE: str(before)} if before else {})
        for name, python in pythons.items():
            process = kept(start_gateway(agent.port, folder, python=python))
            house.targets.append(Target(name, process, Address(process.port)))
        for name in peers:
            try:
                process, address = start_peer(name, upstream.port, folder)
            except LeftOut as reason:
                house.left_out[name] = str(reason)
                continue
            house.targets.append(Target(name, kept(process), address))
        yield house


ALL_PEERS: Final = tuple(PEERS)


def rotated(targets: Sequence[T], by: int) -> list[T]:
    """Another one first in each round: whoever comes first must not always be the same."""
    shift = by % len(targets) if targets else 0
    return [*targets[shift:], *targets[:shift]]
