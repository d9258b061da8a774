"""Sealed rows open with their key, their version and their name; anything else is not there, and never an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cluster.seal import OVERHEAD, SCHEMA, Seal

KEY = "cw-the-key-of-a-cluster-0123456789"
PLACE = b"caretway:default:turn:1"
CONTENT = b"what was said"


@given(place=st.binary(max_size=40), content=st.binary(max_size=300))
def test_what_is_closed_opens(place: bytes, content: bytes) -> None:
    row = Seal(KEY).close(place, content)
    assert Seal(KEY).open(place, row) == content and len(row) == len(content) + OVERHEAD


@pytest.mark.parametrize(
    ("other", "place"),
    [
        pytest.param(Seal(KEY[::-1]), PLACE, id="wrong key"),
        pytest.param(Seal(KEY, schema=SCHEMA + 1), PLACE, id="newer version"),
        pytest.param(Seal(KEY, schema=SCHEMA - 1), PLACE, id="older version"),
        pytest.param(Seal(KEY), PLACE + b"2", id="another row's place"),
        pytest.param(Seal(""), PLACE, id="empty key"),
    ],
)
def test_for_others_it_is_not_there(other: Seal, place: bytes) -> None:
    assert other.open(place, Seal(KEY).close(PLACE, CONTENT)) is None


def test_a_row_that_was_cut_or_changed_anywhere_is_not_there() -> None:
    seal = Seal(KEY)
    row = seal.close(PLACE, CONTENT)
    for at in range(len(row)):
        assert seal.open(PLACE, row[:at]) is None
        assert seal.open(PLACE, row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :]) is None
    assert seal.open(PLACE, row + b"\0") is None
    assert seal.open(PLACE, None) is None


def test_the_same_content_never_looks_the_same_twice_and_shows_no_word() -> None:
    rows = {Seal(KEY).close(PLACE, CONTENT) for _ in range(100)}
    assert len(rows) == 100 and not any(b"said" in row for row in rows)


def test_names_tell_parts_apart_and_keys_too() -> None:
    seal = Seal(KEY)
    names = [
        seal.name("talk", b"ab", b"c"),
        seal.name("talk", b"a", b"bc"),
        seal.name("turn", b"ab", b"c"),
        Seal(KEY[::-1]).name("talk", b"ab", b"c"),
    ]
    assert len(set(names)) == 4 and {len(name) for name in names} == {36}
    assert seal.name("talk", b"ab", b"c") == names[0]
