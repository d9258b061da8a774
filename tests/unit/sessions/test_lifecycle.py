"""The table of a turn's life, looked at as a whole: every pair of state and happening is decided here once more."""

from itertools import product
from typing import Final

import pytest

from caretway.sessions.lifecycle import MOVES, Happening, IllegalMove, State, move

H: Final = Happening
EXPECTED: Final[dict[State, dict[State, set[Happening]]]] = {
    State.RUNNING: {
        State.PARKED: {H.PAUSED},
        State.DETACHED: {H.HUNG_UP},
        State.OVER: {H.ENDED, H.FAILED, H.STOPPED, H.LOST, H.SHUTDOWN},
    },
    State.DETACHED: {
        State.PARKED: {H.PAUSED},
        State.OVER: {H.ENDED, H.FAILED, H.STOPPED, H.EXPIRED, H.SHUTDOWN},
    },
    State.PARKED: {
        State.RUNNING: {H.RESULTS},
        State.OVER: {H.STOPPED, H.EXPIRED, H.EVICTED, H.LOST, H.SHUTDOWN},
    },
    State.OVER: {},
}


def expected(state: State, happening: Happening) -> State | None:
    return next((after for after, happenings in EXPECTED[state].items() if happening in happenings), None)


@pytest.mark.parametrize(("state", "happening"), list(product(State, Happening)), ids=lambda value: value.name)
def test_move(state: State, happening: Happening) -> None:
    after = expected(state, happening)
    if after is not None:
        assert move(state, happening) is after
        return
    with pytest.raises(IllegalMove, match=f"{state.value} cannot move on: {happening.value}"):
        move(state, happening)


def test_every_state_has_its_row() -> None:
    assert set(MOVES) == set(State)


def test_every_happening_happens_somewhere() -> None:
    assert {happening for row in MOVES.values() for happening in row} == set(Happening)


def test_every_state_can_be_reached_and_ends() -> None:
    reached = {State.RUNNING}
    while more := {after for state in reached for after in MOVES[state].values()} - reached:
        reached |= more
    assert reached == set(State)
    assert all(State.OVER in MOVES[state].values() for state in State if state is not State.OVER)


def test_the_gateway_can_stop_at_any_time() -> None:
    assert all(MOVES[state][Happening.SHUTDOWN] is State.OVER for state in State if state is not State.OVER)
