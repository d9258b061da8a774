"""The table of a turn's life, looked at as a whole: every pair of state and happening is decided here once more."""

from itertools import product
from typing import Final

import pytest

from caretway.core.request import Message, Role, Text, ToolCall, ToolChoice, ToolResult, ToolSpec, TurnRequest
from caretway.sessions.lifecycle import (
    MOVES,
    ONE_CALL_S,
    Happening,
    IllegalMove,
    SessionState,
    first_to_go,
    move,
    patience,
    wants_one_call,
)

HELLO: Final = Message(Role.USER, (Text("hello"),))
ASKED: Final = Message(Role.ASSISTANT, (ToolCall("t", "read", "{}"),))
DONE: Final = Message(Role.TOOL, (ToolResult("t", (Text("done"),)),))
ONE: Final = (ToolSpec("event"),)
TWO: Final = (ToolSpec("event"), ToolSpec("read"))
NAMED: Final = ToolChoice("named", "event")
ANY: Final = ToolChoice("required")


def request(choice: ToolChoice, tools: tuple[ToolSpec, ...], *messages: Message) -> TurnRequest:
    return TurnRequest("m", messages or (HELLO,), tools=tools, tool_choice=choice)


CASES: Final = {
    "a named call": (request(NAMED, ONE), True),
    "a named call among several tools": (request(NAMED, TWO), True),
    "any call, and there is one tool": (request(ANY, ONE), True),
    "any call of several tools: an agent that must act": (request(ANY, TWO), False),
    "whatever the model likes": (request(ToolChoice(), ONE), False),
    "in the middle of a loop": (request(NAMED, ONE, HELLO, ASKED, DONE), False),
    "a later turn of a chat": (request(NAMED, ONE, HELLO, Message(Role.ASSISTANT, (Text("hi"),)), HELLO), True),
}


@pytest.mark.seed("J09")
@pytest.mark.parametrize("name", CASES)
def test_what_one_call_is_wanted_for(name: str) -> None:
    asked, expected = CASES[name]
    assert wants_one_call(asked) is expected
    assert patience(asked, 900.0) == (ONE_CALL_S if expected else 900.0)
    assert patience(asked, 5.0) == 5.0


class Turn:
    def __init__(self, asked: TurnRequest) -> None:
        self.request = asked


def test_forced_calls_go_first_the_oldest_of_them_before_the_others() -> None:
    loop, forced = request(ToolChoice(), TWO), request(NAMED, ONE)
    turns = [Turn(asked) for asked in (loop, forced, loop, forced)]
    gone = []
    while turns:
        gone.append(first_to_go(turns))
        turns.remove(gone[-1])
    assert [turn.request is forced for turn in gone] == [True, True, False, False]


H: Final = Happening
EXPECTED: Final[dict[SessionState, dict[SessionState, set[Happening]]]] = {
    SessionState.RUNNING: {
        SessionState.PARKED: {H.PAUSED},
        SessionState.DETACHED: {H.HUNG_UP},
        SessionState.OVER: {H.ENDED, H.FAILED, H.STOPPED, H.LOST, H.SHUTDOWN, H.CANCELLED},
    },
    SessionState.DETACHED: {
        SessionState.PARKED: {H.PAUSED},
        SessionState.OVER: {H.ENDED, H.FAILED, H.STOPPED, H.EXPIRED, H.SHUTDOWN, H.CANCELLED},
    },
    SessionState.PARKED: {
        SessionState.RUNNING: {H.RESULTS},
        SessionState.OVER: {H.STOPPED, H.EXPIRED, H.EVICTED, H.LOST, H.SHUTDOWN, H.CANCELLED},
    },
    SessionState.OVER: {},
}


def expected(state: SessionState, happening: Happening) -> SessionState | None:
    return next((after for after, happenings in EXPECTED[state].items() if happening in happenings), None)


@pytest.mark.parametrize(("state", "happening"), list(product(SessionState, Happening)), ids=lambda value: value.name)
def test_move(state: SessionState, happening: Happening) -> None:
    after = expected(state, happening)
    if after is not None:
        assert move(state, happening) is after
        return
    with pytest.raises(IllegalMove, match=f"{state.value} cannot move on: {happening.value}"):
        move(state, happening)


def test_every_state_has_its_row() -> None:
    assert set(MOVES) == set(SessionState)


def test_every_happening_happens_somewhere() -> None:
    assert {happening for row in MOVES.values() for happening in row} == set(Happening)


def test_every_state_can_be_reached_and_ends() -> None:
    reached = {SessionState.RUNNING}
    while more := {after for state in reached for after in MOVES[state].values()} - reached:
        reached |= more
    assert reached == set(SessionState)
    assert all(SessionState.OVER in MOVES[state].values() for state in SessionState if state is not SessionState.OVER)


def test_the_gateway_can_stop_at_any_time() -> None:
    assert all(
        MOVES[state][Happening.SHUTDOWN] is SessionState.OVER
        for state in SessionState
        if state is not SessionState.OVER
    )
