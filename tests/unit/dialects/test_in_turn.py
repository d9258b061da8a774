"""Items one after the other: whatever upstream writes at once, nothing is lost, and no call begins inside another."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
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
)
from caretway.core.fold import fold
from caretway.dialects import in_turn
from caretway.dialects.in_turn import InTurn

FAILED: Final = TurnFailed(GatewayError(ErrorKind.UPSTREAM_ERROR, "It broke."))


def a(call: str) -> Event:
    return ToolCallStarted(call, "f")


def d(call: str, piece: str = "{") -> Event:
    return ToolCallDelta(call, piece)


def r(call: str) -> Event:
    return ToolCallReady(call, "f", "{}")


T: Final = TextDelta
STORIES: Final[dict[str, tuple[list[Event], list[Event]]]] = {
    "nothing but text": ([T("x"), T("y"), TurnEnded()], [T("x"), T("y"), TurnEnded()]),
    "one call": ([T("x"), a("1"), d("1"), r("1"), TurnPaused()], [T("x"), a("1"), d("1"), r("1"), TurnPaused()]),
    "two calls at once": (
        [a("1"), a("2"), d("2"), d("1"), r("1"), d("2", "}"), r("2"), TurnPaused()],
        [a("1"), d("1"), r("1"), a("2"), d("2"), d("2", "}"), r("2"), TurnPaused()],
    ),
    "the second is ready first": (
        [a("1"), a("2"), r("2"), d("1"), r("1"), TurnPaused()],
        [a("1"), d("1"), r("1"), a("2"), r("2"), TurnPaused()],
    ),
    "the third is ready, the second is not": (
        [a("1"), a("2"), a("3"), r("3"), r("1"), d("2"), r("2"), TurnPaused()],
        [a("1"), r("1"), a("2"), d("2"), r("2"), a("3"), r("3"), TurnPaused()],
    ),
    "text beside an open call": (
        [a("1"), T("x"), d("1"), ReasoningDelta("h"), r("1"), T("y"), TurnPaused()],
        [a("1"), d("1"), r("1"), T("x"), ReasoningDelta("h"), T("y"), TurnPaused()],
    ),
    "text between two open calls": (
        [a("1"), T("x"), a("2"), T("y"), r("2"), r("1"), TurnPaused()],
        [a("1"), r("1"), T("x"), a("2"), r("2"), T("y"), TurnPaused()],
    ),
    "what belongs to no item does not wait": (
        [a("1"), a("2"), Note("k", "v"), r("2"), r("1"), TurnPaused()],
        [a("1"), Note("k", "v"), r("1"), a("2"), r("2"), TurnPaused()],
    ),
    "ended from outside with a call open": (
        [a("1"), T("x"), a("2"), a("3"), r("3"), TurnEnded()],
        [a("1"), T("x"), a("3"), r("3"), TurnEnded()],
    ),
    "a failure with a call open": ([a("1"), T("x"), a("2"), r("2"), FAILED], [a("1"), FAILED]),
}
by_name = pytest.mark.parametrize("name", STORIES)


@by_name
def test_story(name: str) -> None:
    said, expected = STORIES[name]
    assert list(InTurn().order(said)) == expected


@by_name
def test_drip_fed(name: str) -> None:
    said, expected = STORIES[name]
    line = InTurn()
    assert [shown for event in said for shown in line.order([event])] == expected


def test_plain_batches_are_not_copied() -> None:
    batch: list[Event] = [TurnStarted(), T("x"), ReasoningDelta("y")]
    assert InTurn().order(batch) is batch


def test_past_the_limit_events_leave_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_turn, "MOST_WAITING", 10)
    line = InTurn()
    assert list(line.order([a("1"), a("2"), d("2", "x" * 9), T("y")])) == [a("1"), a("2"), d("2", "x" * 9), T("y")]
    late = [d("1"), d("2"), T("z"), a("3"), r("2"), r("1"), r("3"), TurnPaused()]
    assert list(line.order(late)) == late
    assert not line.busy


@st.composite
def turns(draw: st.DrawFn) -> list[Event]:
    """Any interleaving of a few calls, each started, written and ready, with text in between."""
    calls = [str(number) for number in range(draw(st.integers(0, 4)))]
    pieces: dict[str, list[Event]] = {
        call: [a(call), *(d(call, str(n)) for n in range(draw(st.integers(0, 3)))), r(call)] for call in calls
    }
    pieces["text"] = [T(f"t{n}") if draw(st.booleans()) else ReasoningDelta(f"r{n}") for n in range(4)]
    said: list[Event] = []
    while left := [name for name, events in pieces.items() if events]:
        said.append(pieces[draw(st.sampled_from(left))].pop(0))
    return [*said, TurnPaused() if calls else TurnEnded()]


@given(turns(), st.data())
def test_any_interleaving(said: list[Event], data: st.DataObject) -> None:
    line, shown = InTurn(), list[Event]()
    rest = said
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        shown += line.order(rest[:count])
        rest = rest[count:]
    assert sorted(map(repr, shown)) == sorted(map(repr, said))
    assert fold(shown).parts == fold(said).parts
    is_open: str | None = None
    for event in shown:
        match event:
            case ToolCallStarted(id=call):
                assert is_open is None
                is_open = call
            case ToolCallDelta(id=call) | ToolCallReady(id=call):
                assert is_open == call
                is_open = None if isinstance(event, ToolCallReady) else call
            case _:
                assert is_open is None
