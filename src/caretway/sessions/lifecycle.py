"""The states of a live turn and the moves between them, as one table."""

from enum import Enum
from typing import Final


class State(Enum):
    RUNNING = "running"
    """A response reads its events."""
    DETACHED = "detached"
    """Its client hung up in the middle of an answer; it has a short grace to come to an end by itself."""
    PARKED = "parked"
    """Its calls are with the client; upstream is kept alive."""
    OVER = "over"


class Happening(Enum):
    PAUSED = "all calls are out"
    ENDED = "the turn came to its end"
    FAILED = "the turn failed"
    STOPPED = "a stage or the loop guard ended it"
    HUNG_UP = "the client hung up"
    RESULTS = "results came"
    EXPIRED = "nobody came back in time"
    EVICTED = "too many turns are parked"
    LOST = "upstream is gone"
    SHUTDOWN = "the gateway stops"


MOVES: Final[dict[State, dict[Happening, State]]] = {
    State.RUNNING: {
        Happening.PAUSED: State.PARKED,
        Happening.ENDED: State.OVER,
        Happening.FAILED: State.OVER,
        Happening.STOPPED: State.OVER,
        Happening.HUNG_UP: State.DETACHED,
        Happening.LOST: State.OVER,
        Happening.SHUTDOWN: State.OVER,
    },
    State.DETACHED: {
        Happening.PAUSED: State.PARKED,
        Happening.ENDED: State.OVER,
        Happening.FAILED: State.OVER,
        Happening.STOPPED: State.OVER,  # the stages go on filtering while nobody reads
        Happening.EXPIRED: State.OVER,
        Happening.SHUTDOWN: State.OVER,
    },
    State.PARKED: {
        Happening.RESULTS: State.RUNNING,
        Happening.STOPPED: State.OVER,  # the loop guard refuses the results
        Happening.EXPIRED: State.OVER,
        Happening.EVICTED: State.OVER,
        Happening.LOST: State.OVER,
        Happening.SHUTDOWN: State.OVER,
    },
    State.OVER: {},
}


class IllegalMove(RuntimeError):
    """A bug of ours."""


def move(state: State, happening: Happening) -> State:
    after = MOVES[state].get(happening)
    if after is None:
        raise IllegalMove(f"a turn that is {state.value} cannot move on: {happening.value}")
    return after
