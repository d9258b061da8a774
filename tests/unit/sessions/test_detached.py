"""What is left of a response whose client hung up: a little time, and few words."""

import asyncio
import gc
import weakref

from caretway.core.events import TextDelta, ToolCallDelta, ToolCallStarted, TurnEnded, TurnStarted
from caretway.sessions.detached import DRAINED_BYTES, Drain
from caretway.sessions.response import Response
from turns import PlayedTurn

from .played import Owner, ask, live

LONG = 3600.0


def left(turn: PlayedTurn) -> Response:
    return Response(Owner(), live(turn), ask(), "fresh", "", (), None)


async def test_what_is_near_its_end_gets_there() -> None:
    given_up: list[Response] = []
    turn = PlayedTurn(TextDelta("nearly"))
    response = left(turn)
    Drain(response, LONG, given_up.append)
    turn.say(TextDelta(" there"), TurnEnded())
    assert (response.over, response.reply().text, given_up) == (True, "nearly there", [])


async def test_many_words_are_too_many() -> None:
    given_up: list[Response] = []
    turn = PlayedTurn()
    response = left(turn)
    Drain(response, LONG, given_up.append)
    turn.say(TurnStarted())
    for _ in range(3):
        assert given_up == []
        turn.say(TextDelta("x" * (DRAINED_BYTES // 3)))
    turn.say(TextDelta("more"))
    assert given_up == [response]


async def test_the_arguments_of_calls_count() -> None:
    given_up: list[Response] = []
    turn = PlayedTurn(ToolCallStarted("1", "write"))
    response = left(turn)
    Drain(response, LONG, given_up.append)
    for _ in range(3):
        assert given_up == []
        turn.say(ToolCallDelta("1", "x" * (DRAINED_BYTES // 3)))
    assert given_up == [response]


async def test_the_grace_ends() -> None:
    given_up: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    response = left(PlayedTurn(TextDelta("and so on")))
    Drain(response, 0.0, given_up.set_result)
    async with asyncio.timeout(60):
        assert await given_up is response


async def test_a_finished_response_is_held_by_nobody() -> None:
    gc.disable()
    try:
        turn = PlayedTurn(TextDelta("a"), TurnEnded())
        response = left(turn)
        Drain(response, LONG, lambda _: None)
        assert not response.over, "its client did hang up in the middle"
        await asyncio.sleep(0)
        assert response.over
        seen = weakref.ref(turn)
        del response, turn
        assert seen() is None
    finally:
        gc.enable()
