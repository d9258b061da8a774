"""`max_tokens` cut here: the same place, however the text arrives; never inside a call."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from caretway.core.events import (
    Event,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnPaused,
    TurnStarted,
)
from caretway.core.order import EventOrder
from caretway.core.request import TurnRequest
from caretway.sessions.stages.token_cut import honour_max_tokens, token_cut

ASKED = TurnRequest("m", (), max_output=2, ignored=("temperature", "max_tokens"))


def run(tokens: int, events: list[Event]) -> list[Event]:
    stage = token_cut(replace(ASKED, max_output=tokens))
    assert stage is not None
    out = [passed for event in events for passed in stage.feed(event)]
    order = EventOrder()
    for event in out:
        order.check(event)
    return out


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta | ReasoningDelta))


@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=6), st.integers(1, 8))
def test_the_cut_does_not_depend_on_the_pieces(text: str, places: list[int], tokens: int) -> None:
    edges = sorted({0, len(text), *(place for place in places if place < len(text))})
    pieces: list[Event] = [TextDelta(text[a:b]) for a, b in pairwise(edges)]
    out = run(tokens, [TurnStarted(), *pieces, TurnEnded()])
    assert text_of(out) == text[: tokens * 4]
    assert out[-1] == TurnEnded(StopReason.LENGTH if len(text) > tokens * 4 else StopReason.END)


def test_thinking_counts_too() -> None:
    out = run(2, [TurnStarted(), ReasoningDelta("123456"), TextDelta("abcd"), TextDelta("more"), TurnEnded()])
    assert out[1:] == [ReasoningDelta("123456"), TextDelta("ab"), TurnEnded(StopReason.LENGTH)]


def test_a_call_is_never_cut() -> None:
    long = '{"command":"' + "x" * 100 + '"}'
    calls: list[Event] = [ToolCallStarted("a", "bash"), ToolCallReady("a", "bash", long), TurnPaused()]
    assert run(1, [TurnStarted(), TextDelta("1234"), *calls])[-3:] == calls


def test_who_does_not_ask_is_not_cut() -> None:
    assert token_cut(TurnRequest("m", ())) is None


def test_a_wish_that_is_granted_is_not_named_as_ignored() -> None:
    assert honour_max_tokens(ASKED).ignored == ("temperature",)
    plain = TurnRequest("m", (), ignored=("seed",))
    assert honour_max_tokens(plain) is plain
