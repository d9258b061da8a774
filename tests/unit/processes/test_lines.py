"""Lines out of bytes, however these are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.processes.lines import Line, LineReader, TooLong

CASES: list[tuple[bytes, list[Line]]] = [
    (b"a\nb\n", [b"a", b"b"]),
    (b"a\r\nb\r\n", [b"a", b"b"]),
    (b"\n\r\n  \na", [b"a"]),
    ("é\n漢字\U0001f600\n".encode(), ["é".encode(), "漢字\U0001f600".encode()]),
    (b"no end", [b"no end"]),
    (b"", []),
]


def read(pieces: list[bytes], limit: int = 1000) -> list[Line]:
    reader = LineReader(limit)
    lines = [line for piece in pieces for line in reader.feed(piece)]
    return lines + reader.finish()


@pytest.mark.parametrize(("data", "lines"), CASES)
def test_whole_and_drip_fed(data: bytes, lines: list[Line]) -> None:
    assert read([data]) == lines
    assert read([data[i : i + 1] for i in range(len(data))]) == lines
    for cut in range(len(data)):
        assert read([data[:cut], data[cut:]]) == lines


@pytest.mark.seed("D05")
@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_any_cut_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    assert read(pieces, 16) == read([data], 16)


def test_a_line_beyond_the_limit_is_named_and_not_kept() -> None:
    long = b"x" * 5000
    reader = LineReader(1000)
    assert reader.feed(b"a\n" + long[:900]) == [b"a"]
    assert reader.feed(long[900:3000]) == [TooLong(b"x" * 256, 1000)]  # its end may never come
    assert not reader._rest
    assert reader.feed(long[3000:] + b"\nb\n") == [b"b"]


def test_a_line_of_exactly_the_limit_is_kept() -> None:
    assert read([b"y" * 1000 + b"\n"]) == [b"y" * 1000]
    assert read([b"y" * 1001 + b"\n"]) == [TooLong(b"y" * 256, 1000)]


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(0, 30)))
def test_lines_are_what_stands_between_line_ends(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines) + b"rest"
    reader = LineReader(1000)
    found: list[Line] = []
    at = 0
    for size in cuts:
        found += reader.feed(whole[at : at + size])
        at += size
    found += reader.feed(whole[at:])
    assert found == [line for one in lines if (line := one.replace(b"\n", b"").strip())]
    assert reader.feed(b"\n") == [b"rest"]


def test_a_small_limit_is_kept_to_as_well() -> None:
    reader = LineReader(10)
    assert reader.feed(b"0123456789\n01234") == [b"0123456789"]
    assert reader.feed(b"56789") == []
    (line,) = reader.feed(b"x")
    assert line == TooLong(b"0123456789", 10)
    assert str(line) == "a line of more than 10 bytes"
    assert reader.feed(b"xyz\nb\n0123456789x\nc\n") == [b"b", TooLong(b"0123456789", 10), b"c"]
