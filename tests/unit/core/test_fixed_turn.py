"""A turn that is all there before anybody reads it."""

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import TextDelta, TurnFailed, TurnPaused, TurnStarted
from caretway.core.fixed_turn import FixedTurn, failed_turn


async def test_it_says_what_it_was_given_and_takes_no_results() -> None:
    turn = FixedTurn([TurnStarted(), TextDelta("a"), TurnPaused()])
    assert turn.take() == [TurnStarted(), TextDelta("a"), TurnPaused()]
    assert (turn.take(), turn.snapshot()) == ([], None)
    with pytest.raises(GatewayError) as gone:
        await turn.submit([])
    assert gone.value.kind is ErrorKind.TURN_GONE
    await turn.aclose()
    with pytest.raises(GatewayError):
        turn.take()


def test_a_failure_before_the_start_is_an_event() -> None:
    error = GatewayError(ErrorKind.SIGNED_OUT, "who?")
    assert failed_turn(error).take() == [TurnFailed(error)]
