"""What a soak has to know of each backend: how the gateway is started with it, how bad its network is, and which of its
processes may be killed. A table: another backend is another row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from faults.plan import Weather
from faults.scenes import KINDS


@dataclass(frozen=True, slots=True)
class Rig:
    weather: Mapping[str, Weather]
    """By transport: all that the backend has."""
    program: bool = False
    """Behind it is no network but a program (upstreams.py): bytes of its pipes until one of them breaks."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Of the gateway, without their dashes."""
    environment: Mapping[str, str] = field(default_factory=dict)
    scenes: tuple[str, ...] = tuple(KINDS)
    concurrency: int = 48
    max_streams: int = 4
    """On one HTTP/2 connection: a fault has neighbours, but does not hit everybody."""
    limit_s: float = 50.0
    """No answer may take longer: here three times a dial (3 s), a greeting (5 s) and a wait (6 s), and some room."""
    min_right: float = 0.97
    max_rss_mb: float = 120.0
    """Of the gateway itself, at the end."""
    helpers: bool = False
    """It has processes of its own, which are killed now and then."""
    kills_gateway: bool = False
    private: str = ""
    """A folder in the data directory that is empty whenever the gateway does not run."""


WAITS: Final = {"silence": 8, "progress": 9, "call": 15}
RIGS: Final[dict[str, Rig]] = {
    "agent": Rig(
        {"h2": Weather(up=14_000, down=30_000), "http1": Weather(up=45_000, down=20_000)},
        environment={"CARETWAY_ACCESS_TOKEN": "soak"},
    ),
    "sdk": Rig(
        # All runs share one HTTP/2 connection, so that a fault hits every one of them, and send three times as much.
        {"h2": Weather(up=200_000, down=300_000), "http1": Weather(up=135_000, down=20_000)},
        # The first answer of a new process takes seconds on a machine that has other work.
        flags={f"{name}-timeout": f"{seconds}s" for name, seconds in WAITS.items()},
        environment={"CURSOR_API_KEY": "soak"},
        limit_s=90.0,
        concurrency=16,
        max_streams=100,  # the SDK keeps to one connection: a run that finds no stream would wait for others to end
        helpers=True,
        kills_gateway=True,
        private="sdk",
    ),
    "cli": Rig(
        {"acp": Weather(up=30_000, down=40_000), "print": Weather(up=15_000, down=20_000)},
        program=True,
        flags={**{f"{name}-timeout": f"{seconds}s" for name, seconds in WAITS.items()}, "cli-queue": "64"},
        scenes=tuple(kind for kind in KINDS if kind not in ("redirected", "asked again")),  # its shell is its own
        limit_s=90.0,
        concurrency=8,
        min_right=0.85,  # nobody can go on in the middle of an answer whose program is gone
        helpers=True,
        kills_gateway=True,
    ),
}
TURNS_PER_KILL: Final = {"helper": 200, "gateway": 600}
"""A short soak has one of each all the same."""


def kills(rig: Rig, turns: int) -> list[tuple[int, str]]:
    """After how many turns which process is killed, in order."""
    found = []
    for kind, wanted in (("helper", rig.helpers), ("gateway", rig.kills_gateway)):
        times = max(1, turns // TURNS_PER_KILL[kind]) if wanted else 0
        # Never two at the same turn: gateways go in between.
        shift = 0.5 if kind == "helper" else 0.8
        found += [(int(turns * (number + shift) / (times + 0.5)), kind) for number in range(times)]
    return sorted(found)
