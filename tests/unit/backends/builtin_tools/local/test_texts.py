"""Bounded text: line ranges, marks, cuts between characters."""

import pytest

from caretway.backends.builtin_tools.local.texts import BeyondEnd, as_utf8, excerpt, share


def lines(
    data: bytes,
    offset: int | None = None,
    limit: int | None = None,
    *,
    most: int = 1000,
    chars: int | None = None,
    complete: bool = True,
) -> tuple[str, bool]:
    part = excerpt(data, offset=offset, limit=limit, max_bytes=most, max_chars=chars, complete=complete)
    return part.text, part.truncated


DATA = b"one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("offset", "limit", "text"),
    [
        (None, None, "one\ntwo\nthree\n"),
        (0, 0, "one\ntwo\nthree\n"),
        (1, 1, "one\n"),
        (2, 1, "two\n"),
        (3, None, "three\n"),
        (2, 99, "two\nthree\n"),
        (-1, None, "three\n"),
        (-2, 1, "two\n"),
        (-99, 1, "one\n"),
    ],
)
def test_ranges(offset: int | None, limit: int | None, text: str) -> None:
    assert lines(DATA, offset, limit) == (text, False)


def test_line_count_is_the_official_clients() -> None:
    assert excerpt(DATA, offset=None, limit=None, max_bytes=99, max_chars=None, complete=True).total_lines == 4


def test_empty_file() -> None:
    assert lines(b"") == ("", False)
    assert lines(b"", 1, 5) == ("", False)


def test_beyond_the_end() -> None:
    with pytest.raises(BeyondEnd, match="3 lines"):
        lines(DATA, 4)


def test_cut_says_where_to_read_on() -> None:
    text, cut = lines(b"aaaa\nbbbb\ncccc\n", most=7)
    assert cut
    assert text.startswith("aaaa\nbb\n[...")
    assert "offset=2" in text


def test_a_line_that_is_too_long_is_not_offered_again() -> None:
    text, cut = lines(b"x" * 50 + b"\nnext\n", most=10)
    assert cut
    assert "offset=2" in text


def test_a_file_that_was_not_read_whole() -> None:
    text, cut = lines(b"aaaa\nbb", complete=False)
    assert cut
    assert "first 7 bytes" in text
    assert lines(b"aaaa\nbb", 1, 1, complete=False) == ("aaaa\n", False)


def test_max_chars() -> None:
    text, cut = lines("äöü\n".encode(), chars=2)
    assert cut
    assert text.startswith("äö\n[...")


def test_many_lines_are_found_by_blocks() -> None:
    data = b"\n" * 300_000 + b"last"
    assert lines(data, 300_001) == ("last", False)
    assert lines(data, 200_000, 2) == ("\n\n", False)


def test_utf_16_is_text_too() -> None:
    assert as_utf8("hé\n".encode("utf-16")) == "hé\n".encode()


@pytest.mark.parametrize(
    ("stdout", "stderr", "rooms"),
    [
        (10, 10, (10, 10)),
        (500, 0, (100, 0)),
        (0, 500, (0, 100)),
        (500, 500, (75, 25)),
        (80, 500, (75, 25)),
        (60, 500, (60, 40)),
    ],
)
def test_share(stdout: int, stderr: int, rooms: tuple[int, int]) -> None:
    assert share(stdout, stderr, 100) == rooms
