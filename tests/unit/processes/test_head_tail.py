"""The beginning and the end of a stream, however it is cut, and text that is cut between characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.processes.head_tail import HeadTail, decoded


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


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30), st.integers(0, 30))
def test_no_more_is_kept_than_allowed(pieces: list[bytes], head: int, tail: int) -> None:
    kept = HeadTail(head + tail, head)
    for piece in pieces:
        kept.add(piece)
        assert len(kept._head) + len(kept._tail) <= head + 2 * tail
    whole = b"".join(pieces)
    assert kept.kept() == (whole if len(whole) <= head + tail else whole[:head] + whole[len(whole) - tail :])
    assert kept.total == len(whole)


def test_an_uneven_cut_shows_no_seam_but_its_mark() -> None:
    kept = HeadTail(8, head=2)
    kept.add(b"abcdefghijklmnopqrstuvwxyz")
    assert kept.text(8) == "ab\n[... 18 bytes left out ...]\nuvwxyz"
    assert kept.text(4) == "ab\n[... 22 bytes left out ...]\nyz"
