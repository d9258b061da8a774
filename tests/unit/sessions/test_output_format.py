"""JSON answers: asked for in words, unwrapped, checked, marked. Every text also arrives character by character."""

from collections.abc import Mapping
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    Event,
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
)
from caretway.core.order import EventOrder
from caretway.core.request import Message, OutputFormat, Role, Text, TurnRequest
from caretway.core.turn import Stage
from caretway.sessions.output_format import MAX_CHECKED, output_format, verdict, with_instructions

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
