"""The parser: what comes out of which text, the same for every way to cut it, nothing lost, linear in its size."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.text_protocol.parser import (
    BadCall,
    CallPiece,
    Parser,
    Piece,
    TextPiece,
    ThinkingPiece,
    read_arguments,
)

T = "<<CALL_abcd1234>>"
NAMES = frozenset({"add", "get"})


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    text: str
    pieces: list[Piece]
    thinking: bool = False
    keep_bad_calls: bool = False


def call(name: str, arguments: str = "{}") -> str:
    return f'<invoke name="{name}">{arguments}</invoke>'


CASES = [
    Case("plain text", "hello <b>world</b>", [TextPiece("hello <b>world</b>")]),
    Case("one call", f"{T}\n{call('add')}", [CallPiece("add", "{}")]),
    Case("text, then a call", f"Let me see.\n{T}\n{call('add')}", [TextPiece("Let me see.\n"), CallPiece("add", "{}")]),
    Case("nothing between trigger and tag", f"{T}{call('add')}", [CallPiece("add", "{}")]),
    Case(
        "several in a row",
        T + "\n" + call("add", '{"a": 1}') + f"\n{call('get')}  {call('add')}",
        [CallPiece("add", '{"a": 1}'), CallPiece("get", "{}"), CallPiece("add", "{}")],
    ),
    Case(
        "the trigger before each",
        f"{T}\n{call('add')}\n{T}\n{call('get')}",
        [CallPiece("add", "{}"), TextPiece("\n"), CallPiece("get", "{}")],
    ),
    Case("text behind a call", f"{T}{call('add')}\ndone", [CallPiece("add", "{}"), TextPiece("\ndone")]),
    Case(
        "a closing tag inside a string",
        T + call("add", '{"x": "</invoke>", "y": "\\"</invoke>"}'),
        [CallPiece("add", '{"x": "</invoke>", "y": "\\"</invoke>"}')],
    ),
    Case("no arguments at all", f'{T}<invoke name="add"> \n</invoke>', [CallPiece("add", "{}")]),
    Case("a line break inside a string", T + call("add", '{"x": "a\nb"}'), [CallPiece("add", '{"x": "a\\nb"}')]),
    Case("further attributes", f'{T}<invoke name="add" id="7">{{}}</invoke>', [CallPiece("add", "{}")]),
    Case(
        "another request's trigger", f"<<CALL_00000000>>{call('add')}", [TextPiece(f"<<CALL_00000000>>{call('add')}")]
    ),
    Case("no trigger", call("add"), [TextPiece(call("add"))]),
    Case("a trigger and nothing", f"so {T}", [TextPiece(f"so {T}")]),
    Case("a trigger in a sentence", f"I write {T} now", [TextPiece(f"I write {T} now")]),
    Case("the trigger twice", f"{T}{T}{call('add')}", [TextPiece(T), CallPiece("add", "{}")]),
    Case("an unknown tool is text", f"{T}{call('rm')} x", [TextPiece(f"{T}{call('rm')} x")]),
    Case(
        "an unknown tool behind a call", T + call("add") + call("rm"), [CallPiece("add", "{}"), TextPiece(call("rm"))]
    ),
    Case("no JSON is text", T + call("add", "{a: 1}"), [TextPiece(T + call("add", "{a: 1}"))]),
    Case("a list is no object", T + call("add", "[1]"), [TextPiece(T + call("add", "[1]"))]),
    Case("a number that JSON has not", T + call("add", '{"a": NaN}'), [TextPiece(T + call("add", '{"a": NaN}'))]),
    Case("cut in the trigger", "x <<CALL_ab", [TextPiece("x <<CALL_ab")]),
    Case("cut in the tag", f"{T}\n<invoke na", [TextPiece(f"{T}\n<invoke na")]),
    Case("cut in the arguments", f'{T}<invoke name="add">{{"a": "', [TextPiece(f'{T}<invoke name="add">{{"a": "')]),
    Case("cut in the closing tag", f'{T}<invoke name="add">{{}}</inv', [TextPiece(f'{T}<invoke name="add">{{}}</inv')]),
    Case("too long a name", f'{T}<invoke name="{"n" * 200}">', [TextPiece(f'{T}<invoke name="{"n" * 200}">')]),
    Case("too much white space", f"{T}{' ' * 65}{call('add')}", [TextPiece(f"{T}{' ' * 65}{call('add')}")]),
    Case("white space to the limit", f"{T}{' ' * 64}{call('add')}", [CallPiece("add", "{}")]),
    Case(
        "an unknown tool, kept",
        f"a {T}{call('rm')}",
        [TextPiece("a "), BadCall("rm", "there is no tool 'rm'", T + call("rm"))],
        keep_bad_calls=True,
    ),
    Case(
        "no JSON, kept",
        T + call("add", "x"),
        [BadCall("add", "the arguments are not a JSON object", T + call("add", "x"))],
        keep_bad_calls=True,
    ),
    Case("thinking in front", "<think>hm</think>\n\nyes", [ThinkingPiece("hm"), TextPiece("yes")]),
    Case("thinking in long tags", "<thinking>hm</thinking>yes", [ThinkingPiece("hm"), TextPiece("yes")]),
    Case("a tag that is quoted is text", "use <think> here", [TextPiece("use <think> here")]),
    Case(
        "thinking anywhere when asked for",
        "a <thinking>b</thinking> c <think>d</think>e",
        [TextPiece("a "), ThinkingPiece("b"), TextPiece("c "), ThinkingPiece("d"), TextPiece("e")],
        thinking=True,
    ),
    Case("thinking that does not end", "<thinking>so </think", [ThinkingPiece("so </think")], thinking=True),
    Case(
        "a call inside thinking is none",
        f"<think>{T}{call('add')}</think>x",
        [ThinkingPiece(T + call("add")), TextPiece("x")],
    ),
    Case(
        "a call inside thinking that is never closed",
        f"<think>so: {T}\n{call('add')}",
        [ThinkingPiece(f"so: {T}\n{call('add')}"), CallPiece("add", "{}")],
    ),
    Case(
        "thinking, then a call", f"<think>a</think>\n{T}\n{call('get')}", [ThinkingPiece("a"), CallPiece("get", "{}")]
    ),
]


def parse(case: Case, chunks: Iterable[str], **more: Any) -> list[Piece]:
    parser = Parser(T, NAMES, thinking=case.thinking, keep_bad_calls=case.keep_bad_calls, **more)
    pieces = [piece for chunk in chunks for piece in parser.feed(chunk)]
    return joined([*pieces, *parser.finish()])


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    out: list[Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if isinstance(piece, TextPiece) and isinstance(last, TextPiece):
            out[-1] = TextPiece(last.text + piece.text)
        elif isinstance(piece, ThinkingPiece) and isinstance(last, ThinkingPiece):
            out[-1] = ThinkingPiece(last.text + piece.text)
        else:
            out.append(piece)
    return out


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param
    return made


def test_whole(case: Case) -> None:
    assert parse(case, [case.text]) == case.pieces


@pytest.mark.seed("F20")
def test_every_split_in_two(case: Case) -> None:
    for at in range(len(case.text) + 1):
        assert parse(case, [case.text[:at], case.text[at:]]) == case.pieces, at


def test_dripped(case: Case) -> None:
    assert parse(case, case.text) == case.pieces
    assert parse(case, [piece for character in case.text for piece in (character, "")]) == case.pieces


def test_without_tools_everything_is_text() -> None:
    text = f"{T}{call('add')}"
    parser = Parser()
    assert joined([*parser.feed(text), *parser.finish()]) == [TextPiece(text)]


def test_a_call_that_is_too_long_is_text_wherever_it_was_cut() -> None:
    text = T + call("add", '{"x": "' + "y" * 40 + '"}') + "end"
    case = CASES[0]
    for size in (1, 7, 40, len(text)):
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert parse(case, chunks, max_call_chars=30) == [TextPiece(text)]
    assert parse(case, [T + call("add", '{"x":"yyy"}')], max_call_chars=11) == [CallPiece("add", '{"x":"yyy"}')]


@pytest.mark.parametrize(
    ("shown", "held"),
    [("a", "<"), ("a", "<<CALL_abcd1234>"), ("a <", "<<CALL_"), ("ab>", ""), ("<<CALL_zz", ""), ("<x", "")],
)
def test_only_a_possible_beginning_of_a_tag_is_held_back(shown: str, held: str) -> None:
    parser = Parser(T, NAMES)
    out = "".join(piece.text for piece in parser.feed(shown + held) if isinstance(piece, TextPiece))
    assert out == shown
    assert joined(parser.finish()) == ([TextPiece(held)] if held else [])


TAGS = [T, "<<CALL_", "<<", "<", ">", "<invoke ", 'name="', '<invoke name="add">', '<invoke name="rm">', "</invoke>"]
REST = ["</inv", "<thinking>", "</thinking>", '{"a": 1}', "{}", '"', "\\", " ", "\n", "x", "<<CALL_00000000>>", "é"]
WORDS = st.sampled_from([*TAGS, *REST])
HOSTILE = st.lists(st.one_of(WORDS, st.text(max_size=3)), max_size=40).map("".join)


@pytest.mark.seed("N10")
@given(HOSTILE, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.booleans(), st.booleans())
def test_any_text_gives_the_same_however_it_is_cut(text: str, sizes: list[int], thinking: bool, keep: bool) -> None:
    case = Case("", text, [], thinking, keep)
    chunks: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(text[at : at + size])
        at += size
    assert parse(case, chunks) == parse(case, [text]) == parse(case, text)


@pytest.mark.seed("F21")
@given(HOSTILE.filter(lambda text: "<think" not in text))
def test_nothing_is_lost(text: str) -> None:
    """What is not in the text pieces are calls: what stood between two pieces of text is a trigger, blanks and tags."""
    rest = text
    for piece in parse(Case("", text, []), [text]):
        if isinstance(piece, TextPiece):
            at = rest.index(piece.text)
            gap, rest = rest[:at], rest[at + len(piece.text) :]
            assert gap.replace(T, "").strip() == "" or gap.rstrip().endswith("</invoke>")
        else:
            assert isinstance(piece, CallPiece)
            rest = rest[rest.index("</invoke>") + len("</invoke>") :]
    assert not rest


@given(st.binary(max_size=400))
def test_random_bytes_never_crash_it_and_come_out_again(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert parse(Case("", text, []), [text]) == ([TextPiece(text)] if text else [])


def calls_for(parser: Parser, chunks: Iterable[str]) -> int:
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for chunk in chunks:
            parser.feed(chunk)
            assert len(parser._rest) < 300
        parser.finish()
    finally:
        sys.setprofile(before)
    return counted


HOSTILE_PATTERNS = ["<", "<<CALL_", "<think>", T, f'{T}<invoke name="', f'{T}<invoke name="add">', '"', "\\", f"{T} \n"]


@pytest.mark.parametrize("pattern", HOSTILE_PATTERNS)
@pytest.mark.parametrize("size", [64, 4096])
def test_the_work_is_linear_in_the_size(pattern: str, size: int) -> None:
    """Counted in calls, not in seconds: twice the text, twice the calls. (In seconds: bench/measures/text.py.)"""

    def work(length: int) -> int:
        text = (f'{T}<invoke name="add">' if pattern in '"\\' else "") + pattern * (length // len(pattern))
        return calls_for(Parser(T, NAMES), [text[at : at + size] for at in range(0, len(text), size)])

    assert work(80_000) < 2.5 * work(40_000) + 200


@pytest.mark.parametrize("thinking", [False, True])
def test_calls_per_delta_of_words(thinking: bool) -> None:
    """Most of what models say. 3 on CPython 3.11, one of them this test's own; they were 21, and 33 with thinking."""
    few, many = (calls_for(Parser(T, NAMES, thinking=thinking), ["some words "] * count) for count in (100, 300))
    assert (many - few) / 200 <= 5


@pytest.mark.parametrize(
    ("text", "read"),
    [("", "{}"), (" {} ", "{}"), ('{"a":1}', '{"a":1}'), ("null", None), ("{", None), ('{"a":1e999}', '{"a":1e999}')],
)
def test_arguments(text: str, read: str | None) -> None:
    assert read_arguments(text) == read


def test_arguments_of_any_depth() -> None:
    assert read_arguments('{"a":' * 100_000) is None
