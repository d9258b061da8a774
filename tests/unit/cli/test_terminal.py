"""Colour, columns and the line that cannot be missed."""

import fcntl
import os
import struct
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cli.flags import narrowed
from caretway.cli.mcp import servers_table
from caretway.cli.process import shown_width
from caretway.cli.terminal import AnswerFolder, Style, columns, fitted, folded, pairs, printable, width, wrapped

COLOUR = Style(colour=True)


def test_no_colour_means_no_escape_codes() -> None:
    plain = Style()
    assert [mark("x") for mark in (plain.bold, plain.dim, plain.good, plain.careful, plain.bad)] == ["x"] * 5
    assert COLOUR.bold("x") == "\x1b[1mx\x1b[0m"
    assert COLOUR.bold("") == ""


def test_loud_block_is_framed_or_inverse() -> None:
    assert Style().loud(["one", "three"]) == ["*********", "* one   *", "* three *", "*********"]
    inverse = COLOUR.loud(["one", "three"])
    assert [line.startswith("\x1b[1;7") for line in inverse] == [True, True]
    assert len({len(line) for line in inverse}) == 1


def test_pairs_align_whatever_the_colour() -> None:
    assert pairs([("a", "1"), ("long", "")], Style(), width=6) == ["  a       1", "  long"]
    assert pairs([("a", "1")], COLOUR, width=3) == ["  \x1b[2ma  \x1b[0m  1"]


def test_columns_leave_out_what_is_empty_everywhere() -> None:
    assert columns(("id", "name", "x"), [("a", "", "1"), ("bbb", "", "")], Style()) == ["id   x", "a    1", "bbb"]


@pytest.mark.parametrize(
    ("words", "room", "expected"),
    [
        ((), 10, ""),
        (("only-one-and-too-long",), 5, "only-one-and-too-long"),
        (("a", "b", "c"), 100, "a, b, c"),
        (("alpha", "beta", "gamma-delta"), 22, "alpha, beta and 1 more"),
        (("alpha", "beta", "gamma-delta"), 21, "alpha and 2 more"),
        (("alpha", "beta", "gamma-delta"), 3, "alpha and 2 more"),
        (("aa", "bb", "cc"), 10, "aa, bb, cc"),
    ],
)
def test_fitted(words: tuple[str, ...], room: int, expected: str) -> None:
    assert fitted(words, room) == expected


@pytest.mark.parametrize(
    ("text", "room", "lines"),
    [
        ("", 5, [""]),
        ("short", 5, ["short"]),
        ("one two three", 8, ["one two ", "three"]),
        ("a=b,c=d,e=f", 8, ["a=b,c=d,", "e=f"]),
        ("/one/two/three", 10, ["/one/two/", "three"]),
        ("without-separators", 10, ["without-se", "parators"]),
        ("a bcdefghijkl", 6, ["a bcde", "fghijk", "l"]),  # a separator far to the left is not worth a short line
    ],
)
def test_folded(text: str, room: int, lines: list[str]) -> None:
    assert folded(text, room) == lines
    assert "".join(lines) == text


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("see https://a.b/c now", ["see", "https://a.b/", "c", "now"]),
        ("read-only is one word", ["read-only is", "one word"]),
        ("a /very/long/path/name", ["a", "/very/long/", "path/name"]),
    ],
)
def test_wrapped_cuts_only_words_that_are_too_long(text: str, lines: list[str]) -> None:
    assert wrapped(text, 12) == lines


HELP = """\
Words that were laid out for a wide terminal,
and go on.
  list    every thing that there is to be seen
  one     short

examples:
  tool do --this            it does this and that
                            and something else
  tool --one-flag 1 --another-flag 2 --third-flag 3
"""


def test_help_is_laid_out_anew_where_it_does_not_fit() -> None:
    assert narrowed(HELP, 80) == HELP
    assert narrowed(HELP, 36).splitlines() == [
        "Words that were laid out for a wide",
        "terminal, and go on.",
        "  list    every thing that there is",
        "          to be seen",
        "  one     short",
        "",
        "examples:",
        "  tool do --this",
        "      it does this and that",
        "      and something else",
        "  tool --one-flag 1 --another-flag 2",
        "      --third-flag 3",
    ]


def test_mcp_servers_stand_in_a_table_where_it_fits_and_below_each_other_elsewhere() -> None:
    server = {"name": "time", "state": "failing", "sign_in": "", "tools": 0, "place": "uvx mcp-time"}
    server["detail"] = "it cannot be started"
    wide = [
        "server  state    tools  place         detail",
        "time    failing  0      uvx mcp-time  it cannot be started",
    ]
    narrow = ["server  state    tools", "time    failing  0", "", "time", "  uvx mcp-time", "  it cannot be started"]
    listed = {"servers": [server | {"origin": "mcp.json"}]}
    assert servers_table(listed, Style()) == servers_table(listed, Style(), 60) == wide
    assert servers_table(listed, Style(), 50) == narrow


def test_the_width_is_that_of_the_terminal_a_stream_goes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of errors on a narrow terminal, too, while standard output goes to a file."""
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    with os.fdopen(theirs, "w") as terminal, Path(os.devnull).open("w") as file:
        monkeypatch.setattr(sys, "__stdout__", file)
        assert (shown_width(terminal), shown_width(file)) == (60, 0)
    os.close(ours)


FOLDED = [
    ("short", "short"),
    ("one two three four", "one two\nthree four"),
    ("a line\nand another", "a line\nand\nanother"),
    ("exactly 10 more", "exactly 10\nmore"),
    ("  - an item of a list", "  - an\nitem of a\nlist"),
    ("see https://example.org/long now", "see\nhttps://example.org/long\nnow"),
    ("```\nx = a + b + c + d\n```\nand then words", "```\nx = a + b + c + d\n```\nand then\nwords"),
    ("    indented code is left", "    indented code is left"),
    ("你好世界你好世界", "你好世界你\n好世界"),
    ("two\n\nparagraphs  here", "two\n\nparagraphs\nhere"),
]


@pytest.mark.parametrize(("text", "expected"), FOLDED)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_an_answer_is_folded_however_it_is_cut_into_pieces(text: str, expected: str, step: int) -> None:
    folder = AnswerFolder(10)
    shown = "".join(folder.feed(text[at : at + step]) for at in range(0, len(text), step)) + folder.end()
    assert shown == expected


@given(st.text(alphabet="ab 你\n`", max_size=80), st.integers(4, 12), st.integers(1, 9))
def test_folding_loses_nothing_but_spaces_at_the_ends_of_lines(words: str, room: int, step: int) -> None:
    folder = AnswerFolder(room)
    shown = "".join(folder.feed(words[at : at + step]) for at in range(0, len(words), step)) + folder.end()
    assert "".join(shown.split()) == "".join(words.split())
    indented = "\n " in f"\n{words}"  # a word behind an indent stays there
    if "`" not in words and not indented and all(len(word) < room for word in words.split()):
        assert all(width(line) <= room for line in shown.split("\n"))


def test_characters_that_reorder_a_line_are_left_out() -> None:
    assert printable("a\u202egnp.exe\u2066b\u200f c\x1b[2J \u05d0\n") == "agnp.exeb c[2J \u05d0\n"
