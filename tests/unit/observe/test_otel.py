"""Which span belongs to which, whatever order the records come in, that little is remembered, and what a span holds for
a user who asked for content. The SDK is the real one, with its own exporter to memory."""

import json
from collections import OrderedDict

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from caretway.core.caller import Caller
from caretway.core.fold import Reply
from caretway.core.records import RefusedRequest, RequestOrigin, RunRecord, TurnRecord
from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolResult, TurnRequest
from caretway.observe.otel import MAX_PARTS, MAX_REMEMBERED, MAX_TEXT_CHARS, Spans, content_json
from caretway.observe.redact import Redactor


class Story:
    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.spans = Spans(provider.get_tracer("test"), {"openai_chat": "/v1/chat/completions"})

    def response(self, request: str, run: str, at: float, outcome: str = "end", session: str = "fresh") -> None:
        self.spans.response_ended(
            TurnRecord(
                request_id=request,
                dialect="openai_chat",
                backend="agent",
                model="m",
                session=session,
                reason="",
                stream=True,
                outcome=outcome,
                total_ms=1000,
                caller=Caller("ada"),
                conversation="c",
                run=run,
                started_at=at,
                status=200,
                called=((f"call_{request}", "look"),) if outcome == "paused" else (),
            )
        )

    def run(self, run: str, request: str, end: float, outcome: str = "ended", again: bool = False) -> None:
        origin = RequestOrigin(Caller("ada"), request)
        record = RunRecord(
            run, origin, "agent", "m", "m", "c", "fresh", "", outcome, started_at=1, ended_at=end, again=again
        )
        self.spans.run_ended(record)

    def told(self) -> list[tuple[str, str, float, float]]:
        """(name, parent's name, start, end), in the order of their ends."""
        spans = self._memory.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans if span.context is not None}
        return [(span.name, self._parent(span, names), *self._times(span)) for span in spans]

    @staticmethod
    def _parent(span: ReadableSpan, names: dict[int, str]) -> str:
        return names.get(span.parent.span_id, "?") if span.parent is not None else ""

    @staticmethod
    def _times(span: ReadableSpan) -> tuple[float, float]:
        assert span.start_time is not None
        assert span.end_time is not None
        return span.start_time / 1e9, span.end_time / 1e9


POST = "POST /v1/chat/completions"
RUN = "invoke_agent cursor"


def test_a_run_that_is_over_before_its_response() -> None:
    story = Story()
    story.run("r", "q1", 3)
    assert story.told() == []
    story.response("q1", "r", 1)
    assert story.told() == [(POST, "", 1, 2), (RUN, POST, 1, 3), ("chat m", POST, 1, 2)]


def test_a_run_through_three_requests() -> None:
    story = Story()
    story.response("q1", "r", 1, "paused")
    story.response("q2", "r", 5, "paused", "resumed")
    story.run("r", "q1", 9)
    story.response("q3", "r", 8, session="resumed")
    told = story.told()
    assert (RUN, POST, 1, 9) in told
    assert [one for one in told if one[0].startswith("execute_tool")] == [
        ("execute_tool look", RUN, 2, 5),
        ("execute_tool look", RUN, 6, 8),
    ]
    assert len(told) == 3 + 3 + 1 + 2


def test_calls_that_nobody_answered_end_with_their_run() -> None:
    story = Story()
    story.response("q1", "r", 1, "paused")
    story.run("r", "q1", 900, "expired")
    assert ("execute_tool look", RUN, 2, 900) in story.told()


def test_an_answer_that_is_told_again_is_no_new_step() -> None:
    story = Story()
    story.response("q1", "r", 1, "paused")
    story.response("q2", "r", 5, "paused", "resumed")
    story.response("q1", "r", 6, "paused", "resumed")
    story.run("r", "q1", 9)
    assert sum(one[0] == "execute_tool look" for one in story.told()) == 2


def test_two_runs_of_one_request_and_one_that_is_told_twice() -> None:
    story = Story()
    story.run("r1", "q1", 2, "lost")
    story.run("r2", "q1", 3, "stopped")
    story.response("q1", "r2", 1)
    story.run("r2", "q1", 4, "stopped", again=True)
    assert [one[0] for one in story.told()].count(RUN) == 2


def test_a_run_for_each_pause() -> None:
    """Backends without a run that lives through a pause."""
    story = Story()
    story.run("r", "q1", 2, "paused")
    story.response("q1", "r", 1, "paused")
    story.run("r.2", "q1", 6)
    story.response("q2", "r", 5, session="resumed")
    told = story.told()
    assert [one[0] for one in told].count(RUN) == 2
    assert ("execute_tool look", RUN, 2, 5) in told
    story.spans.close()
    assert len(story.told()) == len(told), "nothing was left open"


def test_refused_requests() -> None:
    story = Story()
    for turn, dialect in ((True, "openai_chat"), (False, "openai_chat"), (True, "")):
        story.spans.request_refused(
            RefusedRequest(
                "q", "POST", "/v1/chat/completions", 400, "bad_request", "", "No.", 7, dialect=dialect, turn=turn
            )
        )
    assert story.told() == [(POST, "", 7, 7)]


def test_little_is_remembered_of_what_has_no_end() -> None:
    """Runs that nobody hears of again, and responses that never come."""
    story = Story()
    for number in range(3 * MAX_REMEMBERED):
        story.response(f"q{number}", f"r{number}", number, "paused")
        story.run(f"x{number}", f"y{number}", number)
    kept = [len(one) for one in vars(story.spans).values() if isinstance(one, OrderedDict)]
    assert kept == [MAX_REMEMBERED] * 3
    told = [one[0] for one in story.told()]
    assert told.count(RUN) == 2 * MAX_REMEMBERED, "what had to go was told as far as it was known"
    story.spans.close()
    assert [one[0] for one in story.told()].count(RUN) == 3 * MAX_REMEMBERED


HIDE = Redactor(["correct horse battery"]).text


def content(*messages: Message, reply: Reply | None = None) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    said, answer = content_json(TurnRequest("m", messages), reply or Reply("yes"), HIDE)
    return json.loads(said), json.loads(answer)


def test_only_what_is_new() -> None:
    said, answer = content(
        Message(Role.USER, (Text("old"),)),
        Message(Role.ASSISTANT, (ToolCall("c1", "look", "{}"),)),
        Message(Role.TOOL, (ToolResult("c1", (Text("found"),)),)),
        Message(Role.USER, (Text("and this"), Image(b"12345", "image/png"))),
    )
    assert said == [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}]},
        {
            "role": "user",
            "parts": [{"type": "text", "content": "and this"}, {"type": "text", "content": "[image/png, 5 bytes]"}],
        },
    ]
    assert answer == [{"role": "assistant", "parts": [{"type": "text", "content": "yes"}], "finish_reason": "stop"}]


def test_calls() -> None:
    call = ToolCall("c2", "look", '{"at": 1}')
    _, answer = content(Message(Role.USER, (Text("go"),)), reply=Reply(calls=(call,), paused=True))
    assert answer == [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c2", "name": "look", "arguments": '{"at": 1}'}],
            "finish_reason": "tool_call",
        }
    ]


def test_no_secret_whole_or_in_part_and_no_endless_text() -> None:
    filler = "word " * (MAX_TEXT_CHARS // 5 - 2)
    for words in ("correct horse battery", filler + "correct horse battery", filler + "sk-" + "x" * 99):
        said, _ = content(Message(Role.USER, (Text(words + " tail" * 9000),)))
        text = json.dumps(said)
        assert "horse" not in text and "xxx" not in text
        assert len(text) < MAX_TEXT_CHARS + 200
    said, _ = content(*[Message(Role.USER, (Text("a"),) * 500)] * 500)
    assert len(said) == MAX_PARTS
