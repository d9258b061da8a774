"""Names, read: the same model in many spellings, versions as numbers."""

import pytest

from caretway.accounts.names import (
    Wish,
    closest_version,
    effort_of,
    read_name,
    read_suffix,
    read_wishes,
    split_suffix,
    window,
)
from caretway.core.errors import ErrorKind, GatewayError

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


WINDOWS = [
    ("200k", 200_000),
    ("272K", 272_000),
    ("1m", 1_000_000),
    ("1234567k", None),
    ("k", None),
    ("x", None),
    ("2\u00b2k", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "tokens"), WINDOWS)
def test_window(text: str, tokens: int | None) -> None:
    assert window(text) == tokens


SUFFIXES = [
    ("effort=high", Wish(effort="high")),
    ("high", Wish(effort="high")),
    ("reasoning=extra-high", Wish(effort="xhigh")),
    ("effort=high,fast", Wish(effort="high", fast=True)),
    (" effort = low , fast=false ", Wish(effort="low", fast=False)),
    ("thinking", Wish(thinking=True)),
    ("thinking=off", Wish(thinking=False)),
    ("thinking=high", Wish(effort="high", thinking=True)),
    ("1m,max", Wish(context="1m", max_mode=True)),
    ("optimization=cost", Wish(other=(("optimization", "cost"),))),
    ("", Wish()),
]


@pytest.mark.parametrize(("text", "wish"), SUFFIXES)
def test_suffix(text: str, wish: Wish) -> None:
    assert read_suffix(text) == wish


@pytest.mark.parametrize("text", ["quickly", "fast=perhaps", ",".join(f"a{n}=1" for n in range(20))])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(GatewayError) as refused:
        read_suffix(text, f"model@{text}")
    assert refused.value.kind is ErrorKind.BAD_REQUEST
    assert refused.value.param == "model"


NAMES = [
    ("m@effort=high", ("m", "effort=high")),
    ("m[effort=high,fast=false]", ("m", "effort=high,fast=false")),
    ("m[]", ("m", "")),
    ("m", ("m", "")),
    ("m@", ("m", "")),
]


@pytest.mark.parametrize(("name", "parts"), NAMES)
def test_split(name: str, parts: tuple[str, str]) -> None:
    assert split_suffix(name) == parts


def test_the_first_who_says_something_is_heard() -> None:
    name, body, settings = Wish(effort="low"), Wish(effort="high", thinking=True), read_wishes({"fast": "true"})
    assert name.over(body).over(settings) == Wish(effort="low", thinking=True, fast=True)
