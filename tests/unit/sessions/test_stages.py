"""JSON answers: asked for in words, unwrapped, checked, marked. Every text also arrives character by character."""

from collections.abc import Mapping
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    EventOrder,
    Note,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.request import Message, OutputFormat, Role, Text, TurnRequest
from caretway.core.turn import Stage
from caretway.sessions.stages import (
    MAX_CHECKED,
    honour_max_tokens,
    output_format,
    stop_sequences,
    token_cut,
    verdict,
    with_instructions,
)

ASKED = TurnRequest("m", (), max_output=2, ignored=("temperature", "max_tokens"))


def cut_run(tokens: int, events: list[Event]) -> list[Event]:
    stage_of_stop_sequences = token_cut(replace(ASKED, max_output=tokens))
    assert stage_of_stop_sequences is not None
    out = [passed for event in events for passed in stage_of_stop_sequences.feed(event)]
    order = EventOrder()
    for event in out:
        order.check(event)
    return out


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta | ReasoningDelta))


@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=6), st.integers(1, 8))
def test_the_cut_does_not_depend_on_the_pieces(text: str, places: list[int], tokens: int) -> None:
    edges = sorted({0, len(text), *(place for place in places if place < len(text))})
    pieces: list[Event] = [TextDelta(text[a:b]) for a, b in pairwise(edges)]
    out = cut_run(tokens, [TurnStarted(), *pieces, TurnEnded()])
    assert text_of(out) == text[: tokens * 4]
    assert out[-1] == TurnEnded(StopReason.LENGTH if len(text) > tokens * 4 else StopReason.END)


def test_thinking_counts_too() -> None:
    out = cut_run(2, [TurnStarted(), ReasoningDelta("123456"), TextDelta("abcd"), TextDelta("more"), TurnEnded()])
    assert out[1:] == [ReasoningDelta("123456"), TextDelta("ab"), TurnEnded(StopReason.LENGTH)]


def test_a_call_is_never_cut() -> None:
    long = '{"command":"' + "x" * 100 + '"}'
    calls: list[Event] = [ToolCallStarted("a", "bash"), ToolCallReady("a", "bash", long), TurnPaused()]
    assert cut_run(1, [TurnStarted(), TextDelta("1234"), *calls])[-3:] == calls


def test_who_does_not_ask_is_not_cut() -> None:
    assert token_cut(TurnRequest("m", ())) is None


def test_a_wish_that_is_granted_is_not_named_as_ignored() -> None:
    assert honour_max_tokens(ASKED).ignored == ("temperature",)
    plain = TurnRequest("m", (), ignored=("seed",))
    assert honour_max_tokens(plain) is plain


def stage_of_stop_sequences(*sequences: str) -> Stage:
    made = stop_sequences(TurnRequest("m", (), stop=sequences))
    assert made is not None
    return made


def run_of_stop_sequences(sequences: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    """The text that comes out, and the sequence that ended it."""
    filtering, order = stage_of_stop_sequences(*sequences), EventOrder()
    out: list[Event] = []
    events: list[Event] = [TurnStarted(), *map(TextDelta, pieces), TurnEnded()]
    for event in events:
        out += filtering.feed(event)
    for event in out:
        order.check(event)
    end = out[-1]
    assert isinstance(end, TurnEnded)
    assert (end.reason is StopReason.STOP_SEQUENCE) == (end.stop_sequence is not None)
    return "".join(event.text for event in out if isinstance(event, TextDelta)), end.stop_sequence


def expected(sequences: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """The definition, spelled out: the sequence complete first, of two the longer one."""
    for end in range(1, len(text) + 1):
        complete = [sequence for sequence in sequences if text[:end].endswith(sequence)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


CASES: list[tuple[tuple[str, ...], str]] = [
    (("END",), "one two END three"),
    (("END",), "one two EN"),
    (("END",), "EEND"),
    (("END",), ""),
    (("\n\n",), "a\nb\n\nc"),
    (("aab",), "aaaab"),
    (("abab", "b"), "xaab"),
    (("abcd", "bc"), "xabcd"),
    (("ab", "abc"), "abc"),
    (("bc", "abc"), "abc"),
    (("abcabd",), "abcabcabd"),
    (("ß", "é"), "Straße"),
    (("END", "STOP", "Observation:"), "Thought: go\nObservation: done"),
]


@pytest.mark.parametrize(("sequences", "text"), CASES)
def test_every_split_gives_the_same_cut(sequences: tuple[str, ...], text: str) -> None:
    wanted = expected(sequences, text)
    assert run_of_stop_sequences(sequences, [text]) == wanted
    assert run_of_stop_sequences(sequences, list(text)) == wanted
    for cuts in range(1, 4):
        for places in combinations(range(1, len(text)), cuts):
            edges = (0, *places, len(text))
            pieces = [text[a:b] for a, b in pairwise(edges)]
            assert run_of_stop_sequences(sequences, pieces) == wanted


@given(
    sequences=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4).map(tuple),
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_stop_sequences_any_text_in_any_pieces(sequences: tuple[str, ...], pieces: list[str]) -> None:
    assert run_of_stop_sequences(sequences, pieces) == expected(sequences, "".join(pieces))


def test_holds_back_no_more_than_a_beginning() -> None:
    filtering = stage_of_stop_sequences("END")
    assert filtering.feed(TextDelta("one E")) == [TextDelta("one ")]
    assert filtering.feed(TextDelta("N")) == []
    assert filtering.feed(TextDelta("E")) == [TextDelta("EN")]
    assert filtering.feed(TextDelta("x")) == [TextDelta("Ex")]


def test_nothing_after_the_hit() -> None:
    filtering = stage_of_stop_sequences("END")
    assert filtering.feed(TextDelta("a END b")) == [TextDelta("a "), TurnEnded(StopReason.STOP_SEQUENCE, "END")]
    for event in (TextDelta("c"), ToolCallStarted("a", "f"), UsageReported(Usage(1, 2)), TurnEnded()):
        assert filtering.feed(event) == []


FAILED = TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "gone"))


@pytest.mark.parametrize("event", [ToolCallStarted("a", "f"), AgentActivity("ls"), TurnEnded(), TurnPaused(), FAILED])
def test_held_text_comes_before_what_follows_it(event: Event) -> None:
    filtering = stage_of_stop_sequences("END")
    filtering.feed(TextDelta("EN"))
    assert filtering.feed(event) == [TextDelta("EN"), event]


@pytest.mark.parametrize("event", [ReasoningDelta("END"), Note("k", "v"), UsageReported(Usage(1, 2))])
def test_what_is_beside_the_text_passes(event: Event) -> None:
    filtering = stage_of_stop_sequences("END")
    filtering.feed(TextDelta("EN"))
    assert filtering.feed(event) == [event]
    assert filtering.feed(TextDelta("D")) == [TurnEnded(StopReason.STOP_SEQUENCE, "END")]


def test_a_sequence_does_not_reach_across_a_call() -> None:
    filtering = stage_of_stop_sequences("END")
    filtering.feed(TextDelta("EN"))
    filtering.feed(ToolCallStarted("a", "f"))
    assert filtering.feed(TextDelta("END")) == [TextDelta("END")], "the turn cannot end inside a call"
    filtering.feed(ToolCallReady("a", "f", "{}"))
    assert filtering.feed(TextDelta("D")) == [TextDelta("D")]
    assert filtering.feed(TextDelta("END")) == [TurnEnded(StopReason.STOP_SEQUENCE, "END")]


def test_no_stage_without_sequences() -> None:
    assert stop_sequences(TurnRequest("m", ())) is None
    assert stop_sequences(TurnRequest("m", (), stop=("",))) is None


def test_time_is_linear_for_the_worst_sequence() -> None:
    """A quadratic search would need minutes for this."""
    sequence = "a" * 50_000 + "b"
    text, hit = run_of_stop_sequences((sequence, "c" + sequence), ["a"] * 120_000)
    assert (text, hit) == ("a" * 120_000, None)


SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "n": {"$ref": "#/$defs/count"}},
    "required": ["name", "n"],
    "additionalProperties": False,
    "$defs": {"count": {"type": "integer"}},
}
EVENT = OutputFormat("Ev", SCHEMA)
ANY_OBJECT = OutputFormat()


def stage(wanted: OutputFormat = ANY_OBJECT) -> Stage:
    made = output_format(TurnRequest("m", (), output_format=wanted))
    assert made is not None
    return made


def run(pieces: list[str], wanted: OutputFormat = ANY_OBJECT) -> tuple[str, list[str]]:
    """The text that comes out, and the notes beside it."""
    filtering, order = stage(wanted), EventOrder()
    out: list[Event] = []
    events: list[Event] = [TurnStarted(), *map(TextDelta, pieces), TurnEnded()]
    for event in events:
        out += filtering.feed(event)
    for event in out:
        order.check(event)
    assert out[-1] == TurnEnded()
    text = "".join(event.text for event in out if isinstance(event, TextDelta))
    return text, [event.value for event in out if isinstance(event, Note)]


FENCES = [
    ('{"a":1}', '{"a":1}'),
    ('```json\n{"a":1}\n```', '{"a":1}'),
    ('```\n{"a":1}\n```\n', '{"a":1}'),
    ('\n \n```json  \r\n{"a":1}\r\n```\r\n\n', '{"a":1}'),
    ('```json\n{"a":1}```', '{"a":1}'),
    ('```json\n{"a":"\\n```"}\n```', '{"a":"\\n```"}'),
    ('```json\n{"a":"```"}', '{"a":"```"}'),
    ('```json\n{"a":1}\n', '{"a":1}\n'),
    ('```json\n{"a":1}\n``', '{"a":1}\n``'),
    ('```json\n{"a":1}\n````', '{"a":1}\n````'),
    ("```json\n{}\n```\nI hope this helps.", "{}\n```\nI hope this helps."),
    ('  {"a":1}\n', '  {"a":1}\n'),
    ('Here:\n```json\n{"a":1}\n```', 'Here:\n```json\n{"a":1}\n```'),
    ("``", "``"),
    ("```json", "```json"),
    ("````json\n{}\n````", "````json\n{}\n````"),
    ("``` {}", "``` {}"),
    ("   ", "   "),
    ("", ""),
]


@pytest.mark.parametrize(("text", "wanted"), FENCES)
def test_fence_comes_off_however_the_text_is_cut(text: str, wanted: str) -> None:
    assert run([text])[0] == wanted
    assert run(list(text))[0] == wanted
    for cuts in (1, 2):
        for places in combinations(range(1, len(text)), cuts):
            edges = (0, *places, len(text))
            assert run([text[a:b] for a, b in pairwise(edges)])[0] == wanted


@given(text=st.text("`\n\r {}j", max_size=30), data=st.data())
def test_any_text_in_any_pieces(text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    edges = (0, *places, len(text))
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert run(pieces) == run([text]) == run(list(text))


@pytest.mark.parametrize("text", [" " * 5000 + "{}", "```json\n{}\n```" + " " * 5000 + "x", "```" + "j" * 5000])
def test_what_is_held_back_is_bounded(text: str) -> None:
    filtering = stage()
    received = 0
    for sent, character in enumerate(text, 1):
        received += sum(
            len(event.text) for event in filtering.feed(TextDelta(character)) if isinstance(event, TextDelta)
        )
        assert sent - received < 600
    assert run(list(text)) == run([text])


def test_plain_text_is_not_held_at_all() -> None:
    filtering = stage()
    assert filtering.feed(TextDelta('{"a":')) == [TextDelta('{"a":')]
    assert filtering.feed(TextDelta("\n")) == [TextDelta("\n")]


VERDICTS: list[tuple[str, OutputFormat, str]] = [
    ("{}", ANY_OBJECT, "valid"),
    (' {"a": [1, null]}\n', ANY_OBJECT, "valid"),
    ("[1]", ANY_OBJECT, "not a JSON object: "),
    ("", ANY_OBJECT, "not valid JSON: "),
    ("Sure! {}", ANY_OBJECT, "not valid JSON: "),
    ("{} {}", ANY_OBJECT, "not valid JSON: "),
    ("[" * 40_000, ANY_OBJECT, "not valid JSON: "),
    ("[" + "[]," * 100_000 + "1]", ANY_OBJECT, "not checked: "),
    (
        '{"n": [' + "{}," * 9_000 + "1]}",
        OutputFormat(schema={"properties": {"n": {"items": {"type": "object"}}}}),
        "schema not",
    ),
    ('{"name": "x", "n": 1}', EVENT, "valid"),
    ('{"name": "x", "n": "1"}', EVENT, "does not match the schema: $.n: '1' is not of type 'integer'"),
    ('{"name": "x"}', EVENT, "does not match the schema: $: 'n' is a required property"),
    ("nope", EVENT, "not valid JSON: "),
    ("[1]", OutputFormat(schema={"type": "array"}), "valid"),
    ("{}", OutputFormat(schema={"type": "nonsense"}), "schema not checked: "),
    ("{}", OutputFormat(schema={"$ref": "https://example.org/schema.json"}), "schema not checked: "),
    ("{}", OutputFormat(schema={"$ref": "#"}), "schema not checked: "),
    ("{}", OutputFormat(schema={"$schema": ["x"]}), "schema not checked: "),
    ('{"a":"b"}', OutputFormat(schema={"patternProperties": {"(": {}}}), "valid, its regular"),
    ("{}", OutputFormat(schema={"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}), "valid"),
]


@pytest.mark.parametrize(("text", "wanted", "note"), VERDICTS)
def test_verdict(text: str, wanted: OutputFormat, note: str) -> None:
    said = verdict(text, wanted)
    assert said == note if note == "valid" else said.startswith(note)
    assert run([text], wanted)[1] == [said]


def test_a_fenced_answer_is_valid() -> None:
    assert run(["```json\n", '{"name":"x","n":1}', "\n```"], EVENT) == ('{"name":"x","n":1}', ["valid"])


def test_a_long_complaint_is_cut() -> None:
    assert len(verdict('"' + "x" * 100_000 + '"', EVENT)) < 400


def test_a_very_long_answer_passes_unchecked() -> None:
    piece = "x" * (MAX_CHECKED // 4)
    text, (note,) = run(['{"a":"', *[piece] * 5, '"}'])
    assert len(text) == 5 * len(piece) + 8
    assert note.startswith("not checked: ")


def test_no_verdict_where_there_is_no_answer() -> None:
    call: list[Event] = [ToolCallStarted("a", "f"), ToolCallReady("a", "f", "{}")]
    failed = TurnFailed(GatewayError(ErrorKind.TIMEOUT, "late"))
    for events in (
        [*call, TurnPaused()],
        [*call, TurnEnded()],
        [TextDelta("{"), failed],
        [TextDelta("I cannot."), TurnEnded(StopReason.REFUSAL)],
    ):
        filtering = stage()
        out = [one for event in [TurnStarted(), *events] for one in filtering.feed(event)]
        assert out == [TurnStarted(), *events]


def test_held_text_comes_before_a_call_and_reasoning_passes() -> None:
    filtering = stage()
    assert filtering.feed(TextDelta("``")) == []
    assert filtering.feed(ReasoningDelta("hm")) == [ReasoningDelta("hm")]
    call = ToolCallStarted("a", "f")
    assert filtering.feed(call) == [TextDelta("``"), call]


def test_no_stage_without_a_format() -> None:
    assert output_format(TurnRequest("m", ())) is None


def test_instructions_follow_the_systems_own_words() -> None:
    system = Message(Role.SYSTEM, (Text("be brief"),))
    user = Message(Role.USER, (Text("make an event"),))
    plain = TurnRequest("m", (system, user))
    assert with_instructions(plain) is plain
    asked = with_instructions(TurnRequest("m", (system, user), output_format=EVENT))
    assert (asked.messages[0], asked.messages[-1]) == (system, user)
    words = asked.messages[1]
    assert words.role is Role.SYSTEM
    assert '"additionalProperties":false' in words.text
    assert "(Ev)" in words.text
    assert asked.system == f"be brief\n\n{words.text}"
    anything = with_instructions(TurnRequest("m", (user,), output_format=OutputFormat()))
    assert "JSON object" in anything.messages[0].text
    assert anything.messages[1:] == (user,)
