"""The states of a live turn (RUNNING, DETACHED, PARKED, OVER) and the events that change them, as one table. An illegal
move is a bug.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, Protocol, TypeVar

from ..core.request import ToolResult, TurnRequest, last_answer

# ---- How long a parked turn waits for tool results, and which turn is evicted first: a turn with a single forced call
# (structured output) waits a minute and goes first. Pure.
#
# Clients often request structured output as one forced call: the call is the answer, and the client never sends a
# result. Such a turn is kept for a minute in case a result comes, and never evicts the turn of an agent's loop.

ONE_CALL_S: Final = 60.0
"""The longest wait for the result of a forced call. Most clients that send one do so within seconds; a later result
is replayed."""


def wants_one_call(request: TurnRequest) -> bool:
    """Whether the request demands one specific call and is the first step, so that a second step is unlikely."""
    choice = request.tool_choice
    if choice.mode != "named" and not (choice.mode == "required" and len(request.tools) == 1):
        return False
    news = request.messages[last_answer(request.messages) :]
    return not any(isinstance(part, ToolResult) for message in news for part in message.parts)


def patience(request: TurnRequest, longest: float) -> float:
    """Seconds for which a turn waits for the results of its calls."""
    return min(ONE_CALL_S, longest) if wants_one_call(request) else longest


class Waiting(Protocol):
    @property
    def request(self) -> TurnRequest: ...


T = TypeVar("T", bound=Waiting)


def first_to_go(parked: Iterable[T]) -> T:
    """The turn to evict: the first with a single forced call, otherwise the first. `parked`: at least one turn, the
    oldest first."""
    turns = list(parked)
    return next((turn for turn in turns if wants_one_call(turn.request)), turns[0])


class SessionState(Enum):
    RUNNING = "running"
    """A response reads its events."""
    DETACHED = "detached"
    """Its client hung up during an answer; the turn has a short grace to end by itself."""
    PARKED = "parked"
    """The client has its calls; upstream is kept alive."""
    OVER = "over"

    __hash__ = object.__hash__  # that of Enum is a call of a Python function


class Happening(Enum):
    PAUSED = "all calls are out"
    ENDED = "the turn came to its end"
    FAILED = "the turn failed"
    STOPPED = "a stage or the loop guard ended it"
    HUNG_UP = "the client hung up"
    RESULTS = "results came"
    EXPIRED = "the client did not come back in time"
    EVICTED = "too many turns are parked"
    LOST = "upstream is gone"
    SHUTDOWN = "the gateway stops"
    CANCELLED = "the gateway's owner cancelled it"

    __hash__ = object.__hash__  # that of Enum is a call of a Python function


MOVES: Final[dict[SessionState, dict[Happening, SessionState]]] = {
    SessionState.RUNNING: {
        Happening.PAUSED: SessionState.PARKED,
        Happening.ENDED: SessionState.OVER,
        Happening.FAILED: SessionState.OVER,
        Happening.STOPPED: SessionState.OVER,
        Happening.HUNG_UP: SessionState.DETACHED,
        Happening.LOST: SessionState.OVER,
        Happening.SHUTDOWN: SessionState.OVER,
        Happening.CANCELLED: SessionState.OVER,
    },
    SessionState.DETACHED: {
        Happening.PAUSED: SessionState.PARKED,
        Happening.ENDED: SessionState.OVER,
        Happening.FAILED: SessionState.OVER,
        Happening.STOPPED: SessionState.OVER,  # stages still filter without a reader
        Happening.EXPIRED: SessionState.OVER,
        Happening.SHUTDOWN: SessionState.OVER,
        Happening.CANCELLED: SessionState.OVER,
    },
    SessionState.PARKED: {
        Happening.RESULTS: SessionState.RUNNING,
        Happening.STOPPED: SessionState.OVER,  # the loop guard refuses the results
        Happening.EXPIRED: SessionState.OVER,
        Happening.EVICTED: SessionState.OVER,
        Happening.LOST: SessionState.OVER,
        Happening.SHUTDOWN: SessionState.OVER,
        Happening.CANCELLED: SessionState.OVER,
    },
    SessionState.OVER: {},
}


class IllegalMove(RuntimeError):
    """The turn's state does not allow this event: a bug in the gateway."""


def move(state: SessionState, happening: Happening) -> SessionState:
    after = MOVES[state].get(happening)
    if after is None:
        raise IllegalMove(f"a turn that is {state.value} cannot move on: {happening.value}")
    return after
