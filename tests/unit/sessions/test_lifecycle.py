"""The table of a turn's life, looked at as a whole: every pair of state and happening is decided here once more."""

from itertools import product
from typing import Final

import pytest

from caretway.sessions.lifecycle import MOVES, Happening, IllegalMove, SessionState, move

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
