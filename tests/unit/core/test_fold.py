"""Events -> Reply: what the whole answer has in common with the stream it is folded from."""

import tracemalloc
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    EventOrder,
    Note,
    ReasoningDelta,
    StopReason,
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
)
from caretway.core.fold import Fold, Reply, fold
from caretway.core.request import ToolCall

ERROR: Final = GatewayError(ErrorKind.QUOTA, "spent", hint="wait")

CASES: Final[dict[str, tuple[list[Event], Reply]]] = {
    "nothing": ([], Reply()),
    "empty answer": ([TurnStarted(), TurnEnded()], Reply()),
    "text": ([TurnStarted(), TextDelta("a"), TextDelta("b"), TurnEnded()], Reply(text="ab")),
    "text and thinking interleaved": (
        [TurnStarted(), ReasoningDelta("x"), TextDelta("a"), ReasoningDelta("y"), TextDelta("b"), TurnEnded()],
        Reply(text="ab", reasoning="xy"),
    ),
    "interleaved calls, in the order they were started": (
        [
            TurnStarted(),
            ToolCallStarted("a", "f"),
            ToolCallStarted("b", "g"),
            ToolCallDelta("a", '{"n":'),
            ToolCallDelta("b", "{}"),
            ToolCallReady("b", "g", "{}"),
            ToolCallDelta("a", "1}"),
            ToolCallReady("a", "f", '{"n":1}'),
            TurnPaused(),
        ],
        Reply(calls=(ToolCall("a", "f", '{"n":1}'), ToolCall("b", "g", "{}")), paused=True),
    ),
    "a call that never got ready is no call": (
        [TurnStarted(), ToolCallStarted("a", "f"), ToolCallDelta("a", "{"), TurnFailed(ERROR)],
        Reply(error=ERROR),
    ),
    "the last usage counts": (
        [TurnStarted(), UsageReported(Usage(1, 1, estimated=True)), UsageReported(Usage(5, 2)), TurnEnded()],
        Reply(usage=Usage(5, 2)),
    ),
    "usage that nobody reported stays unknown": ([TurnStarted(), TextDelta("a"), TurnEnded()], Reply(text="a")),
    "notes in order": (
        [TurnStarted(), Note("a", "1"), Note("a", "2"), TurnEnded()],
        Reply(notes=(Note("a", "1"), Note("a", "2"))),
    ),
    "activity is shown in streams only": ([TurnStarted(), AgentActivity("ls"), TurnEnded()], Reply()),
    "a stop sequence": (
        [TurnStarted(), TextDelta("a"), TurnEnded(StopReason.STOP_SEQUENCE, "END")],
        Reply(text="a", reason=StopReason.STOP_SEQUENCE, stop_sequence="END"),
    ),
    "a failure keeps what was said": (
        [TurnStarted(), TextDelta("half"), TurnFailed(ERROR)],
        Reply(text="half", error=ERROR),
    ),
    "a failure before the start": ([TurnFailed(ERROR)], Reply(error=ERROR)),
}


@pytest.mark.parametrize(("events", "reply"), CASES.values(), ids=CASES.keys())
def test_cases(events: list[Event], reply: Reply) -> None:
    order = EventOrder()
    for event in events:
        order.check(event)  # the table holds legal responses only
    assert fold(events) == reply


def test_a_reply_may_be_asked_for_at_any_time() -> None:
    folding = Fold()
    folding.feed(TextDelta("a"))
    assert folding.reply() == folding.reply() == Reply(text="a")
    folding.feed(TextDelta("b"))
    assert folding.reply().text == "ab"


def test_folds_share_nothing() -> None:
    Fold().feed(TextDelta("a"))
    assert Fold().reply() == Reply()


PIECES: Final = st.lists(st.text(max_size=8), max_size=12)


@given(PIECES, PIECES, st.data())
def test_cutting_and_mixing_do_not_matter(text: list[str], reasoning: list[str], data: st.DataObject) -> None:
    """However text is cut, and however it is mixed with thinking: the same reply."""
    said: list[Event] = [TextDelta(piece) for piece in text]
    thought: list[Event] = [ReasoningDelta(piece) for piece in reasoning]
    mixed: list[Event] = []
    while said or thought:
        take_said = not thought or (bool(said) and data.draw(st.booleans()))
        mixed.append((said if take_said else thought).pop(0))
    whole: list[Event] = [TurnStarted(), ReasoningDelta("".join(reasoning)), TextDelta("".join(text)), TurnEnded()]
    assert fold([TurnStarted(), *mixed, TurnEnded()]) == fold(whole)


@given(st.lists(PIECES, max_size=5))
def test_calls_equal_their_deltas(arguments: list[list[str]]) -> None:
    events: list[Event] = [TurnStarted()]
    for number, pieces in enumerate(arguments):
        events.append(ToolCallStarted(f"c{number}", "f"))
        events.extend(ToolCallDelta(f"c{number}", piece) for piece in pieces)
        events.append(ToolCallReady(f"c{number}", "f", "".join(pieces)))
    calls = fold(events).calls
    for number, call in enumerate(calls):
        deltas = (e.arguments for e in events if isinstance(e, ToolCallDelta) and e.id == f"c{number}")
        assert call == ToolCall(f"c{number}", "f", "".join(deltas))
    assert len(calls) == len(arguments)


def test_words_cost_no_more_to_keep_than_pages() -> None:
    folding = Fold()
    tracemalloc.start()
    try:
        for number in range(2000):
            folding.add([TextDelta(f"{number:04d} ") for _ in range(100)])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * 200_000 * 5
    assert folding.reply().text == "".join(f"{number:04d} " * 100 for number in range(2000))


HEAVY: Final[dict[str, tuple[list[Event], int]]] = {
    "text": ([TextDelta("a" * 1000)], 1000),
    "what JSON spells out": ([TextDelta("\x01" * 1000)], 6000),
    "wide characters": ([TextDelta("\U0001f600" * 1000)], 4000),
    "thoughts": ([ReasoningDelta("a" * 1000)], 1000),
    "a call": ([ToolCallStarted("a", "f"), ToolCallReady("a", "f", "x" * 1000)], 1000),
    "a note": ([Note("key", "x" * 1000)], 1000),
    "a tool that was run": ([AgentActivity("f", ToolCall("a", "f", "x" * 1000))], 1000),
    "runs of nearly nothing": ([TextDelta("a"), ReasoningDelta("b")] * 10, 1000),
}


@pytest.mark.parametrize("name", HEAVY)
def test_the_weight_is_at_least_what_is_kept(name: str) -> None:
    events, least = HEAVY[name]
    folding = Fold()
    for _ in range(100):
        folding.add(events)
    assert folding.weight >= least * 30  # a few events behind


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085"])
def test_ends_of_lines_weigh_what_a_stream_makes_of_them(end: str) -> None:
    """JSON leaves them as they are; a stream escapes them, in six bytes each."""
    folding = Fold()
    folding.add([TextDelta(end)] * 1000)
    assert folding.weight >= 6000
