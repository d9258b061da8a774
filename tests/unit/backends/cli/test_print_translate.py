"""Records of cursor-agent -> events. The records here are made by this file alone, from the described shapes."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.cli.faults import Circumstances
from caretway.backends.cli.print_translate import PrintTranslator, Showing
from caretway.core.errors import ErrorKind
from caretway.core.events import (
    AgentActivity,
    Event,
    EventOrder,
    ReasoningDelta,
    RunUsage,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.fold import Reply, fold
from caretway.core.request import ToolCall
from caretway.processes.lines import TooLong

Record = dict[str, Any]
INIT: Record = {"type": "system", "subtype": "init", "session_id": "chat-1", "model": "Composer"}


def assistant(text: str, *, stamp: bool = False, call: str | None = None) -> Record:
    record: Record = {
        "type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "text", "text": text}]},
        "session_id": "chat-1",
    }
    return record | ({"timestamp_ms": 1} if stamp else {}) | ({"model_call_id": call} if call else {})


def delta(text: str) -> Record:
    return assistant(text, stamp=True)


def tool_call(subtype: str = "started", call_id: str = "t1", **payload: Any) -> Record:
    payload = payload or {"shellToolCall": {"args": {"command": "ls -la"}}}
    return {"type": "tool_call", "subtype": subtype, "call_id": call_id, "tool_call": payload, "timestamp_ms": 2}


def result(text: str = "", **more: Any) -> Record:
    return {"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": "chat-1"} | more


def translator(showing: Showing = "hidden", resuming: str = "") -> PrintTranslator:
    return PrintTranslator(showing=showing, at=Circumstances("m"), resuming=resuming)


def play(records: Sequence[Record | bytes], showing: Showing = "hidden", resuming: str = "") -> list[Event]:
    reading = translator(showing, resuming)
    order = EventOrder()
    events: list[Event] = []
    for record in records:
        line = record if isinstance(record, bytes) else json.dumps(record).encode()
        events += reading.feed(line)
    events += reading.finish(0, "")
    for event in events:
        order.check(event)
    return events


def told(records: Sequence[Record | bytes], **more: Any) -> Reply:
    return fold(play(records, **more))


# ---------------------------------------------------------------------------------------------- text, exactly once

TEXTS: list[tuple[str, list[Record], str]] = [
    ("deltas and the flush at the end", [delta("Hel"), delta("lo"), assistant("Hello"), result("Hello")], "Hello"),
    (
        "both flushes around a tool",
        [
            delta("Let me "),
            delta("look."),
            assistant("Let me look.", stamp=True, call="mc"),
            tool_call(),
            tool_call("completed"),
            delta("Done."),
            assistant("Done."),
            result("Let me look.Done."),
        ],
        "Let me look.Done.",
    ),
    ("repeated tokens", [delta("ha"), delta("ha"), delta("ha"), assistant("hahaha"), result("hahaha")], "hahaha"),
    ("a delta that equals all before it", [delta("**"), delta("**"), assistant("****"), result("****")], "****"),
    ("plain messages only", [assistant("One."), tool_call(), assistant("Two."), result("One.Two.")], "One.Two."),
    (
        "plain messages with a call id on tool segments",
        [assistant("One.", stamp=True, call="mc"), tool_call(), assistant("Two."), result("One.Two.")],
        "One.Two.",
    ),
    ("the same plain message twice", [assistant("OK"), tool_call(), assistant("OK"), result("OKOK")], "OKOK"),
    ("a lost tail comes with the flush", [delta("Hel"), assistant("Hello"), result("Hello")], "Hello"),
    ("a lost tail comes with the result", [delta("Hel"), result("Hello")], "Hello"),
    ("nothing but a result", [result("Hello")], "Hello"),
    ("the flush has all of the reply", [delta("A"), tool_call(), delta("B"), assistant("AB"), result("AB")], "AB"),
    ("an end flush with a call id", [delta("A"), assistant("A", call="mc"), result("A")], "A"),
    (
        "the last segment again after a tool that ended the reply",
        [delta("A"), assistant("A", stamp=True, call="mc"), tool_call(), assistant("A"), result("A")],
        "A",
    ),
    (
        "really said again, without deltas",
        [delta("A"), assistant("A", stamp=True, call="mc"), tool_call(), assistant("A"), result("AA")],
        "AA",
    ),
    (
        "no time stamps: deltas and flush",
        [assistant("Let me "), assistant("look."), assistant("Let me look."), result("Let me look.")],
        "Let me look.",
    ),
    (
        "no time stamps: flush before a tool",
        [
            assistant("a"),
            assistant("b"),
            assistant("ab", call="m"),
            tool_call(),
            assistant("c"),
            assistant("c"),
            result("abc"),
        ],
        "abc",
    ),
    ("no time stamps: one delta and flush", [assistant("Hi"), assistant("Hi"), result("Hi")], "Hi"),
    ("no time stamps: a repeated token", [assistant("ha"), assistant("ha"), assistant("haha"), result("haha")], "haha"),
    (
        "no time stamps: a repeated token in the middle",
        [assistant("ha"), assistant("ha"), assistant("!"), assistant("haha!"), result("haha!")],
        "haha!",
    ),
    (
        "no time stamps: lines that grow",
        [assistant("Hel"), assistant("Hello"), assistant("Hello wor"), assistant("Hello world"), result("Hello world")],
        "Hello world",
    ),
    (
        "no time stamps: lines that grow around a tool",
        [
            assistant("One"),
            assistant("One two"),
            tool_call(),
            assistant("Th"),
            assistant("Three"),
            result("One twoThree"),
        ],
        "One twoThree",
    ),
    ("the flat form", [{"type": "assistant", "text": "Hi", "timestamp_ms": 1}, result("Hi")], "Hi"),
    ("content as a string", [{"type": "assistant", "message": {"content": "Hi"}}, result("Hi")], "Hi"),
]


@pytest.mark.seed("D06")
@pytest.mark.parametrize(("records", "text"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_text_is_exact(records: list[Record], text: str) -> None:
    assert told([INIT, *records]).text == text


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[Record], str]:
    """A reply of some segments with tools between them; each segment in one of the forms, with or without flushes."""
    token = st.sampled_from(["a", "aa", "```", "**", "\n", "ha", " the", "é", "漢"])
    records: list[Record] = []
    whole = ""
    segments = draw(st.lists(st.lists(token, min_size=1, max_size=5), min_size=1, max_size=4))
    partial = draw(st.booleans())
    for number, tokens in enumerate(segments):
        text, last = "".join(tokens), number == len(segments) - 1
        whole += text
        if partial:
            shown = tokens[:-1] if len(tokens) > 1 and draw(st.booleans()) else tokens
            records += [delta(piece) for piece in shown]
            whole_flush = last and draw(st.booleans())
            if shown is not tokens or draw(st.booleans()):
                records.append(assistant(text) if last else assistant(text, stamp=True, call=f"mc{number}"))
            elif whole_flush:
                records.append(assistant(whole))
        else:
            call = None if last else draw(st.sampled_from([None, f"mc{number}"]))
            records.append(assistant(text, stamp=call is not None, call=call))
        if not last:
            records += [tool_call(call_id=f"t{number}"), tool_call("completed", call_id=f"t{number}")]
    return [INIT, *records, result(whole)], whole


@given(replies())
def test_every_mix_of_forms_is_exact(reply: tuple[list[Record], str]) -> None:
    records, text = reply
    assert told(records).text == text


# ---------------------------------------------------------------------------------------------- everything else


@pytest.mark.seed("D11")
def test_the_whole_story_of_a_turn() -> None:
    events = play(
        [
            INIT,
            {"type": "user", "message": {"content": []}},
            {"type": "thinking", "subtype": "delta", "text": "Hm"},
            {"type": "thinking", "subtype": "completed"},
            delta("Hi"),
            {"type": "retry", "subtype": "starting"},
            {"type": "something-new", "text": "x"},
            result("Hi", usage={"inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 30, "cacheWriteTokens": 5}),
        ]
    )
    assert events == [
        TurnStarted(),
        ReasoningDelta("Hm"),
        TextDelta("Hi"),
        UsageReported(Usage(45, 2, 30, 5, run=RunUsage(45, 2, 30, 5))),
        TurnEnded(),
    ]


def test_usage_that_is_not_told_is_estimated_and_says_so() -> None:
    for record in (result("12345678"), result("12345678", usage={"inputTokens": "many"})):
        assert told([INIT, record]).usage == Usage(1, 2, estimated=True)


def test_a_run_with_tools_of_its_own_read_its_context_more_than_once() -> None:
    """What is reported is the sum; the answer's own context is about that of an average model call."""
    own = [tool_call("started"), tool_call("completed")]
    usage = {"inputTokens": 1000, "outputTokens": 9, "cacheReadTokens": 25_000, "cacheWriteTokens": 0}
    told_usage = told([INIT, *own, result("12345678", usage=usage)]).usage
    assert told_usage == Usage(13_000, 2, estimated=True, run=RunUsage(26_000, 9, 25_000, 0, steps=2))


@pytest.mark.parametrize("form", ["deltas", "thinking", "plain"])
def test_a_long_answer_costs_as_much_for_each_piece_as_a_short_one(form: str) -> None:
    text = "x" * 500
    piece = {"deltas": delta(text), "thinking": {"type": "thinking", "text": text}, "plain": assistant(text)}[form]
    line, reading = json.dumps(piece).encode(), translator()
    reading.feed(json.dumps(assistant("a")).encode())  # no line after it repeats the text so far
    began = time.process_time()
    said = sum(len(event.text) for _ in range(16_000) for event in reading.feed(line) if hasattr(event, "text"))
    assert said == 16_000 * len(text)
    assert time.process_time() - began < 1.0, "seconds of CPU; 15 when each piece copied all before it"


@pytest.mark.seed("D09")
def test_thinking_that_repeats_itself_is_told_once() -> None:
    thoughts = [{"type": "thinking", "subtype": "delta", "text": text} for text in ("One", "One two", "One two three")]
    assert told([INIT, *thoughts, result("x")]).reasoning == "One two three"


def test_thinking_in_a_message_part() -> None:
    parts = [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Hi"}]
    reply = told([INIT, {"type": "assistant", "message": {"content": parts}}, result("Hi")])
    assert (reply.reasoning, reply.text) == ("Hm", "Hi")


SHOWN: list[tuple[Showing, list[Event]]] = [
    ("hidden", [AgentActivity("bash ls -la")]),
    ("reasoning", [AgentActivity("bash ls -la"), ReasoningDelta("\n[cursor-agent ran bash ls -la]\n")]),
    ("tool_calls", [AgentActivity("bash ls -la", ToolCall("own_1_t1", "bash", '{"command":"ls -la"}'))]),
]


@pytest.mark.seed("D10")
@pytest.mark.parametrize(("showing", "events"), SHOWN)
def test_its_own_tools_are_shown_once_and_never_called(showing: Showing, events: list[Event]) -> None:
    played = play([INIT, tool_call(), tool_call("completed"), result("x")], showing)
    assert [event for event in played if isinstance(event, AgentActivity | ReasoningDelta)] == events
    assert fold(played).calls == ()


KEYS = [
    ({"shellToolCall": {"args": {"command": "ls"}}}, "bash ls"),
    ({"BashToolCall": {"args": {"command": "ls"}}}, "bash ls"),
    ({"ReadFileToolCall": {"args": {"path": "a"}}}, "read a"),
    ({"readToolCall": {"args": {"path": "a"}}}, "read a"),
    ({"WriteFileToolCall": {"args": {"path": "a"}}}, "write a"),
    ({"EditFileToolCall": {"args": {"path": "a"}}}, "edit a"),
    ({"GrepToolCall": {"args": {"pattern": "x"}}}, "grep x"),
    ({"description": "why", "toolCallId": "x", "lsToolCall": {"args": {"path": "."}}}, "ls ."),
    ({"semSearchToolCall": {"input": {"query": "q"}}}, "semSearch q"),
    ({"function": {"name": "f", "arguments": '{"path":"p"}'}}, "f p"),
    ({"something": 1}, "tool"),
]


@pytest.mark.seed("D10", "F12")
@pytest.mark.parametrize(("payload", "title"), KEYS)
def test_names_of_tools(payload: Record, title: str) -> None:
    assert AgentActivity(title) in play([INIT, tool_call(**payload), result("x")])


def test_a_call_that_was_never_started_is_told_of_and_open_ones_are_known() -> None:
    reading = translator()
    reading.feed(json.dumps(INIT).encode())
    assert reading.feed(json.dumps(tool_call("completed")).encode()) == [AgentActivity("bash ls -la")]
    assert not reading.tool_open
    reading.feed(json.dumps(tool_call(call_id="t2")).encode())
    reading.feed(json.dumps(tool_call(call_id="t3")).encode())
    reading.feed(json.dumps(tool_call("completed", call_id="t2")).encode())
    assert reading.tool_open


def test_a_question_is_declined() -> None:
    ask = {"type": "interaction_query", "subtype": "request", "query_type": "shellRequestQuery", "query": {"id": 1}}
    answer = {"type": "interaction_query", "subtype": "response", "query_type": "shellRequestQuery"}
    assert play([INIT, ask, answer, result("x")])[1] == AgentActivity("declined: shellRequestQuery")


def test_a_plan_is_told_once_and_a_subagent_is_named() -> None:
    args = {"name": "Two steps", "plan": "1. look"}
    call = tool_call(createPlanToolCall={"args": args})
    query = {"id": 1, "createPlanRequestQuery": {"args": args}}
    asks = {"type": "interaction_query", "subtype": "request", "query_type": "createPlanRequestQuery", "query": query}
    for lines in ([call, asks], [asks, call]):
        reply = told([INIT, *lines, delta("Done."), result("Done.")])
        assert reply.text == "\n\nTwo steps\n\n1. look\n\nDone."
    task = tool_call(taskToolCall={"args": {"description": "find the cause", "prompt": "Look ..."}})
    assert AgentActivity("task find the cause") in play([INIT, task, result("x")])


# ---------------------------------------------------------------------------------------------- ends


def failure(events: list[Event]) -> ErrorKind:
    assert isinstance(events[-1], TurnFailed)
    return events[-1].error.kind


def test_a_resumed_chat_must_have_the_id_that_was_asked_for() -> None:
    assert failure(play([INIT | {"session_id": "another"}, delta("Hi")], resuming="chat-1")) is ErrorKind.TURN_GONE
    assert told([INIT, delta("Hi"), result("Hi")], resuming="chat-1").text == "Hi"


def test_a_good_end_without_a_result_keeps_what_was_said() -> None:
    reply = told([INIT, delta("Hi"), assistant("Hi")])
    assert (reply.text, reply.error) == ("Hi", None)
    assert reply.usage is not None and reply.usage.estimated
    assert told([INIT, assistant("Hi"), assistant("Hi")]).text == "Hi"


def test_lines_that_are_none_do_not_spoil_a_good_end() -> None:
    assert told([INIT, b"A new version is available!", delta("Hi"), assistant("Hi")]).text == "Hi"


def test_an_end_in_the_middle_of_a_segment_is_an_error() -> None:
    """What was cut looks like a good end otherwise: the program itself has seen nothing of it."""
    thinks = {"type": "thinking", "subtype": "delta", "text": "Hm"}
    for last in (delta("Hi"), thinks, tool_call("completed"), b'{"type":"assistant","mess'):
        more = [delta("Two"), last] if isinstance(last, bytes) else [last]
        assert failure(play([INIT, delta("One"), assistant("One"), *more])) is ErrorKind.UPSTREAM_DOWN, last


def test_a_prompt_that_was_heard_in_part_is_not_answered() -> None:
    def heard(text: str) -> PrintTranslator:
        reading = PrintTranslator(showing="hidden", at=Circumstances("m"), prompt="\nAll of the prompt. ")
        echo = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}
        for record in (INIT, echo, delta("An answer"), result("An answer")):
            reading.feed(json.dumps(record).encode())
        return reading

    for part in ("", "All of", "All of the prompt"):
        assert failure(heard(part).finish(0, "")) is ErrorKind.UPSTREAM_DOWN
    for whole in ("All of the prompt.", "\nAll of the prompt. ", "In other words", "All of ..."):
        assert heard(whole).succeeded, "what it shows of the prompt in other words is its own affair"


def test_any_other_end_without_a_result_is_an_error() -> None:
    assert failure(play([])) is ErrorKind.UPSTREAM_DOWN
    assert failure(play([INIT])) is ErrorKind.UPSTREAM_DOWN
    assert failure(play([INIT, delta("Hi"), tool_call()])) is ErrorKind.UPSTREAM_DOWN
    assert failure(play([INIT, delta("Hi"), b"usage limit"])) is ErrorKind.QUOTA
    reading = translator()
    reading.feed(json.dumps(delta("Hi")).encode())
    assert failure(reading.finish(3, "")) is ErrorKind.INTERNAL


def test_error_results_in_both_shapes() -> None:
    error = {"type": "result", "subtype": "error", "is_error": True, "error": {"message": "Not logged in", "code": "x"}}
    assert failure(play([INIT, error])) is ErrorKind.SIGNED_OUT
    flagged = {"type": "result", "subtype": "success", "is_error": True, "result": "rate limit"}
    assert failure(play([INIT, flagged])) is ErrorKind.RATE_LIMITED


def test_what_is_not_json_is_read_for_errors_and_nothing_else() -> None:
    assert told([b"A new version is available!", INIT, b"[1,2]", b'"x"', delta("Hi"), result("Hi")]).text == "Hi"
    refusal = b"Workspace Trust Required"
    (failed,) = play([refusal, b"Pass --trust, --yolo, or -f"])
    assert isinstance(failed, TurnFailed)
    assert failed.error.code == "workspace_not_trusted"


@pytest.mark.seed("C12")
def test_the_models_own_words_are_never_taken_for_errors() -> None:
    words = "Not logged in. usage limit. rate limit. Cannot use this model. ECONNREFUSED"
    assert told([INIT, delta(words), result(words)]).error is None
    reading = translator()
    reading.feed(json.dumps(INIT).encode())
    reading.feed(json.dumps(delta(words)).encode())
    assert failure(reading.finish(1, "it broke")) is ErrorKind.INTERNAL


def test_lines_that_are_too_long() -> None:
    reading = translator()
    assert reading.feed(TooLong(b'{"type":"tool_call","subtype":"completed"', 10**8)) == []
    assert failure(reading.feed(TooLong(b'{"type":"assistant"', 10**8))) is ErrorKind.UPSTREAM_PROTOCOL


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.recursive(
                st.none() | st.booleans() | st.text(max_size=5),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(
                            [
                                "type",
                                "subtype",
                                "message",
                                "content",
                                "text",
                                "tool_call",
                                "usage",
                                "session_id",
                                "error",
                            ]
                        ),
                        inner
                        | st.sampled_from(
                            ["system", "init", "assistant", "thinking", "tool_call", "result", "success", "text"]
                        ),
                        max_size=4,
                    )
                ),
                max_leaves=8,
            ).map(lambda value: json.dumps(value).encode()),
        ),
        max_size=8,
    )
)
def test_no_line_breaks_it(lines: list[bytes]) -> None:
    play(lines)
