"""Names, read: the same model in many spellings, versions as numbers."""

import pytest

from caretway.models.names import closest_version, effort_of, read_name

SAME = [
    ("claude-sonnet-4-5-20250929", "claude-4.5-sonnet"),
    ("claude-sonnet-4-5", "sonnet-4.5"),
    ("anthropic/claude-opus-5", "claude-opus-5"),
    ("grok-4.5", "cursor-grok-4.5"),
    ("gpt-5.0", "gpt-5"),
    ("gpt-5.5-extra-high", "gpt-5.5-xhigh"),
    ("gemini-3-pro-preview", "gemini-3-pro"),
    ("GPT-5.4", "gpt-5.4"),
    ("claude-4.6-opus-high-thinking", "claude-opus-4-6-thinking-high"),
]
OTHER = [
    ("claude-sonnet-5", "claude-4.5-sonnet"),
    ("gpt-5-codex", "gpt-5.3-codex"),
    ("gpt-5.1", "gpt-51"),
    ("gpt-5.4", "gpt-5.4-mini"),
    ("gpt-5.3-codex-high", "gpt-5.3-codex-xhigh"),
    ("gpt-4o", "gpt-4"),
    ("claude-opus-4-5", "claude-opus-5-4"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_same(one: str, other: str) -> None:
    assert read_name(one) == read_name(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other(one: str, other: str) -> None:
    assert read_name(one) != read_name(other)


def test_a_window_is_no_version() -> None:
    assert read_name("claude-opus-5-1m") == read_name("claude-opus-5").__class__(
        read_name("claude-opus-5").words, (5,), "1m"
    )


def test_the_next_version_is_the_closest() -> None:
    found = [(4, 1), (5,), (5, 2), (4, 5), (6,)]
    assert sorted(found, key=lambda version: closest_version((4, 5), version)) == [(4, 5), (5,), (5, 2), (6,), (4, 1)]
    assert min(found, key=lambda version: closest_version((99,), version)) == (6,)
    assert min([(5, 9), (5, 10)], key=lambda version: closest_version((5, 10), version)) == (5, 10)


EFFORTS = [("high", "high"), ("extra-high", "xhigh"), ("Extra High", "xhigh"), ("off", "none"), ("turbo", "turbo")]


@pytest.mark.parametrize(("said", "meant"), EFFORTS)
def test_effort(said: str, meant: str) -> None:
    assert effort_of(said) == meant
