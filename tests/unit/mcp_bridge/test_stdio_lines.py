"""Bytes of a stdio server -> lines, however they are split, and never more than a line may be long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.mcp_bridge.definitions import BridgeLimits, pause_before
from caretway.mcp_bridge.stdio import Broken, Lines


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(0, 30)))
def test_any_split_gives_the_same_lines(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines) + b"rest"
    reader = Lines(1000)
    found: list[bytes] = []
    at = 0
    for size in cuts:
        found += reader.feed(whole[at : at + size])
        at += size
    found += reader.feed(whole[at:])
    assert found == [line for one in lines if (line := one.replace(b"\n", b"").strip())]
    assert reader.feed(b"\n") == [b"rest"]


def test_a_line_has_its_limit() -> None:
    reader = Lines(10)
    assert reader.feed(b"0123456789\n01234") == [b"0123456789"]
    assert reader.feed(b"56789") == []
    with pytest.raises(Broken, match="a line of more than 10 bytes"):
        reader.feed(b"x")


def test_pauses_grow_to_their_limit() -> None:
    limits = BridgeLimits(first_pause=1.0, longest_pause=60.0)
    assert [pause_before(attempt, limits) for attempt in (1, 2, 3, 6, 7, 8, 10_000)] == [1, 2, 4, 32, 60, 60, 60]
