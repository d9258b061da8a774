"""Exposed names: safe, short, unique, stable, and mapped back exactly."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.mcp.tools import LONGEST, exposed_names

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.seed("K03")
@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("time", "get_current_time", "mcp__time__get_current_time"),
        ("hybrid-memory", "memory_stats", "mcp__hybrid-memory__memory_stats"),
        ("a", "_b", "mcp__a___b"),
        ("a", "b__c", "mcp__a__b__c"),
    ],
)
def test_what_fits_is_left_alone(server: str, tool: str, name: str) -> None:
    assert exposed_names([(server, tool)]) == {name: (server, tool)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a__b", "c"), ("a", "b__c")),
        (("a_", "b"), ("a", "_b")),
        (("my server", "x"), ("my.server", "x")),
        (("a", "x" * 100), ("a", "x" * 101)),
        (("ä", "x"), ("ö", "x")),
        (("a", ""), ("a", "_")),
    ],
)
def test_what_would_read_the_same_is_told_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = exposed_names([one, other])
    assert sorted(names.values()) == sorted([one, other])
    # whatever else there is, and in whatever order: a name stays what it is
    assert (
        names.keys()
        == exposed_names([other, ("more", "of it"), one]).keys() - exposed_names([("more", "of it")]).keys()
    )


def test_long_names_keep_something_of_both() -> None:
    (name,) = exposed_names(
        [("a-server-with-quite-a-long-name-indeed", "and_a_tool_with_an_even_longer_name_than_that")]
    )
    assert len(name) == LONGEST
    assert name.startswith("mcp__a-server-with")
    assert "__and_a_tool" in name


@pytest.mark.seed("K03")
@given(st.lists(st.tuples(st.text(min_size=1, max_size=80), st.text(max_size=80)), max_size=30))
def test_any_names_at_all(keys: list[tuple[str, str]]) -> None:
    names = exposed_names(keys)
    assert list(names.values()) == list(dict.fromkeys(keys))
    assert all(SAFE.fullmatch(name) for name in names)
