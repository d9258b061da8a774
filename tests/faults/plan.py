"""Which fault hits which connection, and at which byte. Pure: the same seed gives the same faults.

A fault is bound to one connection, one direction and one byte of it. Which turn that byte belongs to is chance, as on a
bad network; every byte of a long soak is as likely to be hit as every other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final


class Direction(Enum):
    UP = "up"
    """Towards the server."""
    DOWN = "down"
    """Towards whoever connected."""


class Kind(Enum):
    RESET = "reset"
    """Both legs are reset."""
    TRUNCATE = "truncation"
    """Both legs are closed in order, in the middle of whatever it was."""
    HALF_CLOSE = "half-close"
    """This direction ends, the other one goes on."""
    STALL = "stall"
    """Nothing passes in this direction for a while; then everything does."""
    TRICKLE = "trickle"
    """A few bytes at a time, for a while."""
    BLACK_HOLE = "black hole"
    """Nothing passes any more, in neither direction, and nobody is told."""
    ONE_WAY = "one-way black hole"
    """The same in this direction only: a peer that hears and is no longer heard."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    direction: Direction
    at: int
    """So many bytes pass in that direction before it happens."""
    seconds: float = 0.0
    """How long a stall or a trickle lasts."""


@dataclass(frozen=True, slots=True)
class Fired:
    """A fault that happened."""

    connection: int
    fault: Fault
    after_s: float
    """Seconds after the proxy began."""


Plan = Callable[[int, int], Fault | None]
"""Number of the connection, faults that it has survived -> its next fault, counted from where it stands."""

WEIGHTS: Final[dict[Kind, int]] = {
    Kind.RESET: 6,
    Kind.TRUNCATE: 5,
    Kind.HALF_CLOSE: 4,
    Kind.STALL: 3,
    Kind.TRICKLE: 3,
    Kind.BLACK_HOLE: 1,
    Kind.ONE_WAY: 1,
}
"""Holes cost seconds each and are as often as that allows."""
EARLY_SHARE: Final = 0.04
"""So many connections are hit within their first bytes: greeting, head, first message."""
EARLY_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad the network is: mean bytes of a connection, in each direction, until it is hit."""

    up: int
    down: int
    longest_s: float = 1.5
    """Of a stall or a trickle."""


def quiet(connection: int, survived: int) -> Fault | None:
    return None


def by_seed(seed: str, weather: Weather, weights: dict[Kind, int] | None = None) -> Plan:
    """Every connection is hit sooner or later; the number of bytes until then is exponentially distributed."""
    odds = WEIGHTS if weights is None else weights
    kinds, numbers = list(odds), list(odds.values())

    def plan(connection: int, survived: int) -> Fault:
        random = Random(f"{seed}/{connection}/{survived}")
        kind = random.choices(kinds, numbers)[0]
        direction = random.choice(list(Direction))
        mean = weather.up if direction is Direction.UP else weather.down
        at = int(random.expovariate(1 / mean))
        if not survived and random.random() < EARLY_SHARE:
            at = random.randrange(EARLY_BYTES)
        return Fault(kind, direction, at, random.uniform(0.05, weather.longest_s))

    return plan


def sometimes(seed: str, share: float, span: int, longest_s: float = 1.0) -> Plan:
    """So many of the connections are hit, each somewhere in its first `span` bytes; the others never."""

    def plan(connection: int, survived: int) -> Fault | None:
        random = Random(f"{seed}/{connection}")
        if survived or random.random() >= share:
            return None
        kind = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        direction = random.choice(list(Direction))
        return Fault(kind, direction, random.randrange(span), random.uniform(0.05, longest_s))

    return plan
