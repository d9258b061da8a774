"""Bounded text: line ranges, marks, cuts between characters."""

import pytest

from caretway.backends.agent_api.local.texts import BeyondEnd, as_utf8, excerpt, share
from caretway.processes.head_tail import HeadTail, decoded


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


@pytest.mark.parametrize("char", ["a", "ä", "€", "😀"])
def test_cuts_fall_between_characters(char: str) -> None:
    data = (char * 10).encode()
    for at in range(len(data) + 1):
        head = decoded(data[:at], cut_tail=True)
        tail = decoded(data[at:], cut_head=True)
        assert "\ufffd" not in head + tail
        assert 9 <= len(head) + len(tail) <= 10


def test_what_is_not_utf8_is_still_text() -> None:
    assert decoded(b"caf\xe9") == "caf\ufffd"
    assert as_utf8("hé\n".encode("utf-16")) == "hé\n".encode()


@pytest.mark.parametrize("chunk", [1, 3, 7, 64])
@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 25, 1000])
def test_head_and_tail(chunk: int, size: int) -> None:
    data = bytes(97 + at % 26 for at in range(size))
    kept = HeadTail(10)
    for at in range(0, size, chunk):
        kept.add(data[at : at + chunk])
    text = kept.text(10)
    if size <= 10:
        assert text == data.decode()
    else:
        assert text == f"{data[:5].decode()}\n[... {size - 10} bytes left out ...]\n{data[-5:].decode()}"
    assert kept.total == size


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
