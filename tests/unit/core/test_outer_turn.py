"""A turn in front of another one: what it makes of the events, when it takes none, and how both end."""

import asyncio
from collections.abc import Sequence

import pytest

from caretway.core.errors import GatewayError
from caretway.core.event_buffer import EventBuffer
from caretway.core.events import Event, TextDelta, TurnEnded
from caretway.core.outer_turn import AHEAD_BYTES, OuterTurn
from caretway.core.request import Text, ToolResult
from caretway.core.turn import Snapshot, Turn

KEPT = Snapshot("inner", b"kept")


class InnerTurn:
    def __init__(self, *events: Event) -> None:
        self._buffer = EventBuffer(1 << 30)
        self.say, self.fail = self._buffer.put, self._buffer.close
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self.did: list[str] = []
        self.say(list(events))

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise AssertionError("nothing is submitted here")

    def snapshot(self) -> Snapshot | None:
        return KEPT

    def close(self) -> None:
        self.did.append("closed")
        self._buffer.close()

    async def aclose(self) -> None:
        self.did.append("waited for")


class Loud(OuterTurn):
    def __init__(self, inner: Turn) -> None:
        super().__init__(inner)
        self.wants = True
        self._follow(inner)

    @property
    def _listens(self) -> bool:
        return self.wants

    def _digest(self, batch: list[Event]) -> list[Event]:
        if TextDelta("bug") in batch:
            raise ValueError("a bug")
        return [TextDelta(event.text.upper()) if isinstance(event, TextDelta) else event for event in batch]

    def want_again(self, inner: Turn) -> None:
        self.wants = True
        self._follow(inner)


async def test_events_come_digested_in_the_callback_that_brought_them() -> None:
    inner = InnerTurn(TextDelta("here already"))
    turn = Loud(inner)
    told: list[list[Event]] = []
    turn.listen(lambda: told.append(turn.take()))
    inner.say([TextDelta("a"), TurnEnded()])
    assert told == [[TextDelta("HERE ALREADY"), TextDelta("A"), TurnEnded()]]
    assert turn.snapshot() == KEPT


async def test_a_full_turn_leaves_events_with_the_inner_one() -> None:
    inner = InnerTurn()
    turn = Loud(inner)
    inner.say([TextDelta("a" * AHEAD_BYTES)])
    inner.say([TextDelta("b")])
    assert turn.take() == [TextDelta("A" * AHEAD_BYTES)]
    assert turn.take() == [], "what follows comes in a callback of its own, behind what is being taken"
    await asyncio.sleep(0)
    assert turn.take() == [TextDelta("B")]


async def test_nothing_is_taken_while_nothing_is_wanted() -> None:
    first, second = InnerTurn(), InnerTurn(TextDelta("b"))
    turn = Loud(first)
    turn.wants = False
    first.say([TextDelta("a")])
    assert (turn.take(), first.take()) == ([], [TextDelta("a")])
    turn.want_again(second)
    assert turn.take() == [TextDelta("B")]


@pytest.mark.parametrize("whose", ["ours", "the inner turn's"])
async def test_a_failure_is_told_to_the_reader(whose: str) -> None:
    inner = InnerTurn()
    turn = Loud(inner)
    told: list[str] = []
    turn.listen(lambda: told.append("told"))
    if whose == "ours":
        inner.say([TextDelta("bug")])
    else:
        inner.fail(ValueError("a bug"))
    assert told == ["told"]
    with pytest.raises(ValueError, match="a bug"):
        turn.take()


async def test_both_are_closed() -> None:
    inner = InnerTurn()
    turn = Loud(inner)
    turn.close()
    assert inner.did == ["closed"]
    inner.say([TextDelta("late")])
    with pytest.raises(GatewayError):
        turn.take()
    await turn.aclose()
    assert inner.did[-1] == "waited for"
