"""Words for the next response: kept in order, taken once, and bounded."""

from caretway.backends.agent.late_words import MAX_LATE_BYTES, LateWords
from caretway.core.events import ReasoningDelta, TextDelta


def test_they_are_taken_once_and_in_order() -> None:
    words = LateWords()
    assert words.keep([ReasoningDelta("hm"), TextDelta("a")])
    assert words.keep([TextDelta("bc")])
    assert words.take() == ([ReasoningDelta("hm"), TextDelta("a"), TextDelta("bc")], 5)
    assert words.take() == ([], 0)


def test_they_are_bounded() -> None:
    words = LateWords()
    assert words.keep([TextDelta("x" * (MAX_LATE_BYTES // 2))])
    assert not words.keep([TextDelta("x" * (MAX_LATE_BYTES // 2))])
    words.take()
    assert words.keep([TextDelta("x")])
