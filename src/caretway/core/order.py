"""Which event may follow which, as one table: a call is started once, ready once, and complete before a pause or an
end; what breaks the order is a bug of the backend.

`EventOrder` follows it, and names state and event when the order is broken. In: the events of one response. Out:
nothing, or `OrderBroken`. Remembered: the state, and the calls so far.
"""

from enum import Enum
from typing import Final

from . import events as ev
from .events import Event


class OrderState(Enum):
    FRESH = "before the first event"
    OPEN = "in the middle"
    CALLED = "after a tool call"
    OVER = "after the end"

    __hash__ = object.__hash__  # that of Enum is a call of a Python function


class OrderBroken(RuntimeError):
    """A bug in the code that made the events."""


_OF_CALLS: Final = frozenset({ev.ToolCallStarted, ev.ToolCallDelta, ev.ToolCallReady})
_ANYWHERE: Final[tuple[type, ...]] = (
    ev.TextDelta,
    ev.ReasoningDelta,
    ev.ToolCallStarted,
    ev.ToolCallDelta,
    ev.ToolCallReady,
    ev.AgentActivity,
    ev.Recovered,
    ev.UsageReported,
    ev.Note,
)

MOVES: Final[dict[OrderState, dict[type, OrderState]]] = {
    OrderState.FRESH: {ev.TurnStarted: OrderState.OPEN, ev.TurnFailed: OrderState.OVER},
    OrderState.OPEN: dict.fromkeys(_ANYWHERE, OrderState.OPEN)
    | {ev.ToolCallReady: OrderState.CALLED, ev.TurnEnded: OrderState.OVER, ev.TurnFailed: OrderState.OVER},
    OrderState.CALLED: dict.fromkeys(_ANYWHERE, OrderState.CALLED)
    | {ev.TurnPaused: OrderState.OVER, ev.TurnEnded: OrderState.OVER, ev.TurnFailed: OrderState.OVER},
    OrderState.OVER: {},
}


class EventOrder:
    __slots__ = ("_calls", "state")

    def __init__(self) -> None:
        self.state = OrderState.FRESH
        self._calls: dict[str, bool] = {}  # every call so far; True: it is open

    def check(self, event: Event) -> None:
        after = MOVES[self.state].get(type(event))
        if after is None:
            raise OrderBroken(f"{type(event).__name__} is not allowed {self.state.value}")
        if self._calls or type(event) in _OF_CALLS:
            self._check_calls(event)
        self.state = after

    def _check_calls(self, event: Event) -> None:
        match event:
            case ev.ToolCallStarted(id=call):
                if call in self._calls:  # also after it was ready: a client answers by id, so an id is used once
                    raise OrderBroken(f"call {call} was started twice")
                self._calls[call] = True
            case ev.ToolCallDelta(id=call):
                if not self._calls.get(call):
                    raise OrderBroken(f"arguments for call {call}, which is not open")
            case ev.ToolCallReady(id=call):
                if not self._calls.get(call):
                    raise OrderBroken(f"call {call} is ready and was never started")
                self._calls[call] = False
            case ev.TurnPaused() | ev.TurnEnded():
                if still := sorted(call for call, is_open in self._calls.items() if is_open):
                    raise OrderBroken(f"{type(event).__name__} while calls are open: {still}")
            case _:
                pass
