"""The order table: every pair of state and event is decided here by hand, and the walker agrees."""

from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    MOVES,
    AgentActivity,
    Event,
    EventOrder,
    Note,
    OrderBroken,
    OrderState,
    ReasoningDelta,
    Recovered,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
    WebSearch,
)

FAILED: Final = TurnFailed(GatewayError(ErrorKind.INTERNAL, "broke"))

SAMPLES: Final[dict[type, Event]] = {
    TurnStarted: TurnStarted(),
    TextDelta: TextDelta("t"),
    ReasoningDelta: ReasoningDelta("r"),
    ToolCallStarted: ToolCallStarted("b", "tool"),
    ToolCallDelta: ToolCallDelta("open", "{"),
    ToolCallReady: ToolCallReady("open", "tool", "{}"),
    AgentActivity: AgentActivity("ls"),
    WebSearch: WebSearch("0", "q"),
    Recovered: Recovered("same run", "cut", 1),
    UsageReported: UsageReported(Usage(1, 2)),
    Note: Note("k", "v"),
    TurnPaused: TurnPaused(),
    TurnEnded: TurnEnded(),
    TurnFailed: FAILED,
}

OPEN_CALL: Final[list[Event]] = [ToolCallStarted("open", "tool")]
READY_CALL: Final[list[Event]] = [ToolCallStarted("a", "tool"), ToolCallReady("a", "tool", "{}")]

WAYS: Final[dict[OrderState, list[Event]]] = {
    OrderState.FRESH: [],
    OrderState.OPEN: [TurnStarted()],
    OrderState.CALLED: [TurnStarted(), *READY_CALL],
    OrderState.OVER: [TurnStarted(), TurnEnded()],
}

#                       FRESH  OPEN  CALLED  OVER
ALLOWED: Final[dict[type, tuple[bool, bool, bool, bool]]] = {
    TurnStarted: (True, False, False, False),
    TextDelta: (False, True, True, False),
    ReasoningDelta: (False, True, True, False),
    ToolCallStarted: (False, True, True, False),
    ToolCallDelta: (False, True, True, False),
    ToolCallReady: (False, True, True, False),
    AgentActivity: (False, True, True, False),
    WebSearch: (False, True, True, False),
    Recovered: (True, True, True, False),  # a run may be lost before its first output
    UsageReported: (False, True, True, False),
    Note: (False, True, True, False),
    TurnPaused: (False, False, True, False),  # a pause without a call would wait for nothing
    TurnEnded: (False, True, True, False),
    TurnFailed: (True, True, True, False),  # a turn may fail before it starts
}


def walk(events: list[Event]) -> EventOrder:
    order = EventOrder()
    for event in events:
        order.check(event)
    return order


def test_the_table_covers_every_event_and_state() -> None:
    assert set(get_args(Event)) == ALLOWED.keys() == SAMPLES.keys()
    assert MOVES.keys() == set(OrderState) == WAYS.keys()


@pytest.mark.parametrize("state", OrderState)
@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.__name__)
def test_table(state: OrderState, kind: type) -> None:
    needs_call = kind in (ToolCallDelta, ToolCallReady) and state in (OrderState.OPEN, OrderState.CALLED)
    order = walk(WAYS[state] + (OPEN_CALL if needs_call else []))
    assert order.state is state
    if ALLOWED[kind][list(OrderState).index(state)]:
        order.check(SAMPLES[kind])
        assert order.state is MOVES[state][kind]
    else:
        with pytest.raises(OrderBroken, match=f"{kind.__name__} is not allowed {state.value}"):
            order.check(SAMPLES[kind])
        assert order.state is state


CALLS: Final[dict[str, tuple[list[Event], Event, str]]] = {
    "started twice": (OPEN_CALL, ToolCallStarted("open", "tool"), "call open was started twice"),
    "an id used again": (READY_CALL, ToolCallStarted("a", "tool"), "call a was started twice"),
    "arguments for nothing": ([], ToolCallDelta("x", "{"), "arguments for call x, which is not open"),
    "arguments too late": (READY_CALL, ToolCallDelta("a", "{"), "arguments for call a, which is not open"),
    "ready from nowhere": ([], ToolCallReady("x", "t", "{}"), "call x is ready and was never started"),
    "ready twice": (READY_CALL, ToolCallReady("a", "t", "{}"), "call a is ready"),
    "pause with an open call": (READY_CALL + OPEN_CALL, TurnPaused(), r"TurnPaused while calls are open: \['open'\]"),
    "end with an open call": (OPEN_CALL, TurnEnded(), r"TurnEnded while calls are open: \['open'\]"),
}


@pytest.mark.parametrize(("before", "event", "words"), CALLS.values(), ids=CALLS.keys())
def test_calls(before: list[Event], event: Event, words: str) -> None:
    order = walk([TurnStarted(), *before])
    with pytest.raises(OrderBroken, match=words):
        order.check(event)


def test_a_failure_may_interrupt_a_call() -> None:
    assert walk([TurnStarted(), *OPEN_CALL, FAILED]).state is OrderState.OVER


def test_parallel_calls_may_interleave() -> None:
    events: list[Event] = [
        TurnStarted(),
        ToolCallStarted("a", "t"),
        ToolCallStarted("b", "t"),
        ToolCallDelta("b", "{}"),
        ToolCallDelta("a", "{}"),
        ToolCallReady("b", "t", "{}"),
        ToolCallReady("a", "t", "{}"),
        TurnPaused(),
    ]
    assert walk(events).state is OrderState.OVER


@given(st.lists(st.sampled_from(list(SAMPLES.values())), max_size=30))
def test_a_refused_event_changes_nothing(events: list[Event]) -> None:
    """Skipping what is refused gives a response with one start, at most one end, and nothing behind it."""
    order = EventOrder()
    accepted: list[Event] = []
    for event in events:
        before = order.state
        try:
            order.check(event)
        except OrderBroken:
            assert order.state is before
        else:
            accepted.append(event)
    assert walk(accepted).state is order.state
    ends = [at for at, event in enumerate(accepted) if isinstance(event, TurnPaused | TurnEnded | TurnFailed)]
    assert ends in ([], [len(accepted) - 1])
    assert sum(isinstance(event, TurnStarted) for event in accepted) <= 1
