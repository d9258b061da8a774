"""Lines out of bytes, however these are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.cursor_cli.lines import Line, LineReader, TooLong

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
