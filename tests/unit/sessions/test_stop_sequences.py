"""Stop sequences: the same cut, however the text arrives."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    Note,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.order import EventOrder
from caretway.core.request import TurnRequest
from caretway.core.turn import Stage
from caretway.sessions.stop_sequences import honour_max_tokens, stop_sequences, token_cut

ASKED = TurnRequest("m", (), max_output=2, ignored=("temperature", "max_tokens"))


def cut_run(tokens: int, events: list[Event]) -> list[Event]:
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
    out = cut_run(tokens, [TurnStarted(), *pieces, TurnEnded()])
    assert text_of(out) == text[: tokens * 4]
    assert out[-1] == TurnEnded(StopReason.LENGTH if len(text) > tokens * 4 else StopReason.END)


def test_thinking_counts_too() -> None:
    out = cut_run(2, [TurnStarted(), ReasoningDelta("123456"), TextDelta("abcd"), TextDelta("more"), TurnEnded()])
    assert out[1:] == [ReasoningDelta("123456"), TextDelta("ab"), TurnEnded(StopReason.LENGTH)]


def test_a_call_is_never_cut() -> None:
    long = '{"command":"' + "x" * 100 + '"}'
    calls: list[Event] = [ToolCallStarted("a", "bash"), ToolCallReady("a", "bash", long), TurnPaused()]
    assert cut_run(1, [TurnStarted(), TextDelta("1234"), *calls])[-3:] == calls


def test_who_does_not_ask_is_not_cut() -> None:
    assert token_cut(TurnRequest("m", ())) is None


def test_a_wish_that_is_granted_is_not_named_as_ignored() -> None:
    assert honour_max_tokens(ASKED).ignored == ("temperature",)
    plain = TurnRequest("m", (), ignored=("seed",))
    assert honour_max_tokens(plain) is plain


def stage(*sequences: str) -> Stage:
    made = stop_sequences(TurnRequest("m", (), stop=sequences))
    assert made is not None
    return made


def run(sequences: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    """The text that comes out, and the sequence that ended it."""
    filtering, order = stage(*sequences), EventOrder()
    out: list[Event] = []
    events: list[Event] = [TurnStarted(), *map(TextDelta, pieces), TurnEnded()]
    for event in events:
        out += filtering.feed(event)
    for event in out:
        order.check(event)
    end = out[-1]
    assert isinstance(end, TurnEnded)
    assert (end.reason is StopReason.STOP_SEQUENCE) == (end.stop_sequence is not None)
    return "".join(event.text for event in out if isinstance(event, TextDelta)), end.stop_sequence


def expected(sequences: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """The definition, spelled out: the sequence complete first, of two the longer one."""
    for end in range(1, len(text) + 1):
        complete = [sequence for sequence in sequences if text[:end].endswith(sequence)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


CASES: list[tuple[tuple[str, ...], str]] = [
    (("END",), "one two END three"),
    (("END",), "one two EN"),
    (("END",), "EEND"),
    (("END",), ""),
    (("\n\n",), "a\nb\n\nc"),
    (("aab",), "aaaab"),
    (("abab", "b"), "xaab"),
    (("abcd", "bc"), "xabcd"),
    (("ab", "abc"), "abc"),
    (("bc", "abc"), "abc"),
    (("abcabd",), "abcabcabd"),
    (("ß", "é"), "Straße"),
    (("END", "STOP", "Observation:"), "Thought: go\nObservation: done"),
]


@pytest.mark.parametrize(("sequences", "text"), CASES)
def test_every_split_gives_the_same_cut(sequences: tuple[str, ...], text: str) -> None:
    wanted = expected(sequences, text)
    assert run(sequences, [text]) == wanted
    assert run(sequences, list(text)) == wanted
    for cuts in range(1, 4):
        for places in combinations(range(1, len(text)), cuts):
            edges = (0, *places, len(text))
            pieces = [text[a:b] for a, b in pairwise(edges)]
            assert run(sequences, pieces) == wanted


@given(
    sequences=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4).map(tuple),
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_any_text_in_any_pieces(sequences: tuple[str, ...], pieces: list[str]) -> None:
    assert run(sequences, pieces) == expected(sequences, "".join(pieces))


def test_holds_back_no_more_than_a_beginning() -> None:
    filtering = stage("END")
    assert filtering.feed(TextDelta("one E")) == [TextDelta("one ")]
    assert filtering.feed(TextDelta("N")) == []
    assert filtering.feed(TextDelta("E")) == [TextDelta("EN")]
    assert filtering.feed(TextDelta("x")) == [TextDelta("Ex")]


def test_nothing_after_the_hit() -> None:
    filtering = stage("END")
    assert filtering.feed(TextDelta("a END b")) == [TextDelta("a "), TurnEnded(StopReason.STOP_SEQUENCE, "END")]
    for event in (TextDelta("c"), ToolCallStarted("a", "f"), UsageReported(Usage(1, 2)), TurnEnded()):
        assert filtering.feed(event) == []


FAILED = TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "gone"))


@pytest.mark.parametrize("event", [ToolCallStarted("a", "f"), AgentActivity("ls"), TurnEnded(), TurnPaused(), FAILED])
def test_held_text_comes_before_what_follows_it(event: Event) -> None:
    filtering = stage("END")
    filtering.feed(TextDelta("EN"))
    assert filtering.feed(event) == [TextDelta("EN"), event]


@pytest.mark.parametrize("event", [ReasoningDelta("END"), Note("k", "v"), UsageReported(Usage(1, 2))])
def test_what_is_beside_the_text_passes(event: Event) -> None:
    filtering = stage("END")
    filtering.feed(TextDelta("EN"))
    assert filtering.feed(event) == [event]
    assert filtering.feed(TextDelta("D")) == [TurnEnded(StopReason.STOP_SEQUENCE, "END")]


def test_a_sequence_does_not_reach_across_a_call() -> None:
    filtering = stage("END")
    filtering.feed(TextDelta("EN"))
    filtering.feed(ToolCallStarted("a", "f"))
    assert filtering.feed(TextDelta("END")) == [TextDelta("END")], "the turn cannot end inside a call"
    filtering.feed(ToolCallReady("a", "f", "{}"))
    assert filtering.feed(TextDelta("D")) == [TextDelta("D")]
    assert filtering.feed(TextDelta("END")) == [TurnEnded(StopReason.STOP_SEQUENCE, "END")]


def test_no_stage_without_sequences() -> None:
    assert stop_sequences(TurnRequest("m", ())) is None
    assert stop_sequences(TurnRequest("m", (), stop=("",))) is None


def test_time_is_linear_for_the_worst_sequence() -> None:
    """A quadratic search would need minutes for this."""
    sequence = "a" * 50_000 + "b"
    text, hit = run((sequence, "c" + sequence), ["a"] * 120_000)
    assert (text, hit) == ("a" * 120_000, None)
