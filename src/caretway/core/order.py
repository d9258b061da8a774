"""Which event may follow which, as one table. `EventOrder` walks it and names state and event when it is broken.

In: the events of one response. Out: nothing, or `OrderBroken`. Remembered: the state, and the calls so far.
"""

from enum import Enum
from typing import Final

from .events import (
    AgentActivity,
    Event,
    Note,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    UsageReported,
)


class State(Enum):
    FRESH = "before the first event"
    OPEN = "in the middle"
    CALLED = "after a tool call"
    OVER = "after the end"


class OrderBroken(RuntimeError):
    """A bug in whoever made the events."""


_ANYWHERE: Final = (
    TextDelta,
    ReasoningDelta,
    ToolCallStarted,
    ToolCallDelta,
    ToolCallReady,
    AgentActivity,
    UsageReported,
    Note,
)

MOVES: Final[dict[State, dict[type, State]]] = {
    State.FRESH: {TurnStarted: State.OPEN, TurnFailed: State.OVER},
    State.OPEN: dict.fromkeys(_ANYWHERE, State.OPEN)
    | {ToolCallReady: State.CALLED, TurnEnded: State.OVER, TurnFailed: State.OVER},
    State.CALLED: dict.fromkeys(_ANYWHERE, State.CALLED)
    | {TurnPaused: State.OVER, TurnEnded: State.OVER, TurnFailed: State.OVER},
    State.OVER: {},
}


class EventOrder:
    __slots__ = ("_open", "_started", "state")

    def __init__(self) -> None:
        self.state = State.FRESH
        self._open: set[str] = set()
        self._started: set[str] = set()

    def check(self, event: Event) -> None:
        after = MOVES[self.state].get(type(event))
        if after is None:
            raise OrderBroken(f"{type(event).__name__} is not allowed {self.state.value}")
        match event:
            case ToolCallStarted(id=call):
                if call in self._started:  # also after it was ready: a client answers by id, so an id is used once
                    raise OrderBroken(f"call {call} was started twice")
                self._started.add(call)
                self._open.add(call)
            case ToolCallDelta(id=call):
                if call not in self._open:
                    raise OrderBroken(f"arguments for call {call}, which is not open")
            case ToolCallReady(id=call):
                if call not in self._open:
                    raise OrderBroken(f"call {call} is ready and was never started")
                self._open.discard(call)
            case TurnPaused() | TurnEnded():
                if self._open:
                    raise OrderBroken(f"{type(event).__name__} while calls are open: {sorted(self._open)}")
            case _:
                pass
        self.state = after
