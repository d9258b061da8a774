"""Texts of calls that nobody sees yet: found under any of their ids, taken once, and bounded."""

from caretway.backends.agent.drafts import MAX_DRAFT_CHARS, MAX_DRAFTS, MAX_ID_CHARS, Drafts


def test_a_draft_grows_in_pieces_or_whole_and_is_taken_once() -> None:
    drafts = Drafts()
    drafts.begin(("inner", "envelope"))
    assert drafts.knows(("other", "inner"))
    assert drafts.grow(("inner",), '{"a"')
    assert drafts.grow(("inner",), '{"a": 1')
    assert drafts.grow(("inner",), "}")
    assert drafts.grow(("unknown",), "nothing")
    assert drafts.text("inner") == '{"a": 1}'
    assert drafts.take(("envelope", "inner")) == '{"a": 1}'
    assert drafts.take(("inner",)) == ""


def test_drafts_are_bounded() -> None:
    drafts = Drafts()
    drafts.begin(("x" * (MAX_ID_CHARS + 1),))
    for number in range(2 * MAX_DRAFTS):
        drafts.begin((str(number),))
    assert not drafts.knows((str(MAX_DRAFTS),))
    assert drafts.grow(("0",), "x" * MAX_DRAFT_CHARS)
    assert not drafts.grow(("1",), "x")
    drafts.clear()
    drafts.begin(("1",))
    assert drafts.grow(("1",), "x")
