"""The Agent API conversation as stories, without a socket and with a clock of its own."""

import pytest

from caretway.backends.agent_api.conversation import Phase
from caretway.backends.agent_api.snapshots import read_snapshot
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    ReasoningDelta,
    RunUsage,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.order import EventOrder
from caretway.core.request import Text, ToolResult
from caretway.wire.messages import pb

from .stories import (
    Story,
    checkpoint,
    ended,
    get_blob,
    heartbeat,
    listed,
    mcp,
    partial,
    set_blob,
    text,
    thinking,
)

DROPPED = GatewayError(ErrorKind.UPSTREAM_DOWN, "cut")


def result(call: str, words: str) -> ToolResult:
    return ToolResult(call, (Text(words),))


def test_a_text_turn() -> None:
    story = Story()
    (opening,) = story.said()
    run = opening.run_request
    assert run.HasField("conversation_state"), "required by the server even when it is empty"
    assert run.action.user_message_action.user_message.text == "hello"
    assert (run.run_id, run.conversation_id) == ("run", "conv")
    story.hear(set_blob(1, b"k", b"v"), thinking("hm"), text("a"), text("b"), checkpoint(b"k"))
    story.hear(ended(input_tokens=9, output_tokens=2, cache_read_tokens=4))
    assert story.kinds() == ["kv_client_message.set_blob_result"]
    events = story.events()
    assert events == [
        TurnStarted(2),
        ReasoningDelta("hm"),
        TextDelta("a"),
        TextDelta("b"),
        UsageReported(Usage(9, 2, 4, run=RunUsage(9, 2, 4))),
        TurnEnded(),
    ]
    order = EventOrder()
    for event in events:
        order.check(event)
    snapshot = story.conversation.snapshot("agent")
    assert snapshot is not None
    assert dict(snapshot.blobs) == {b"k": b"v"}
    assert read_snapshot(snapshot)[0] == "conv"


def test_usage_is_estimated_when_the_server_does_not_count() -> None:
    story = Story()
    story.hear(text("x" * 40), checkpoint(used=77), ended())
    (usage,) = [event.usage for event in story.events() if isinstance(event, UsageReported)]
    assert usage == Usage(67, 10, estimated=True), "what was said is part of the context that is left behind"


def test_the_request_context_is_given_when_asked_for() -> None:
    story = Story("look")
    story.said()
    asked = pb.ExecServerMessage(id=1, request_context_args=pb.RequestContextArgs())
    story.hear(pb.AgentServerMessage(exec_server_message=asked))
    answer, close = story.said()
    context = answer.exec_client_message.request_context_result.success.request_context
    assert [tool.tool_name for tool in context.tools] == ["look"]
    assert close.exec_client_control_message.stream_close.id == 1


def test_a_missing_blob_is_never_answered_with_nothing() -> None:
    story = Story()
    story.said()
    story.hear(get_blob(1, b"gone"))
    assert story.said() == []
    (failed,) = [event for event in story.events() if isinstance(event, TurnFailed)]
    assert failed.error.kind is ErrorKind.TURN_GONE


def test_blobs_come_back_from_here_and_from_the_store() -> None:
    story = Story(fetch={b"old": b"kept"}.get)
    story.said()
    story.hear(set_blob(1, b"new", b"fresh"), get_blob(2, b"new"), get_blob(3, b"old"))
    _, new, old = story.said()
    assert new.kv_client_message.get_blob_result.blob_data == b"fresh"
    assert old.kv_client_message.get_blob_result.blob_data == b"kept"


# ---- tool calls


def test_announced_calls_pause_at_once() -> None:
    story = Story("a", "b")
    story.hear(listed(2), mcp(1, "c1", "a", x=1), mcp(2, "c2", "b"))
    assert [type(event).__name__ for event in story.events()] == [
        "TurnStarted",
        "ToolCallStarted",
        "ToolCallReady",
        "ToolCallStarted",
        "ToolCallReady",
        "UsageReported",
        "TurnPaused",
    ]


def test_unannounced_calls_wait_for_a_short_quiet() -> None:
    story = Story("a", "b")
    story.hear(mcp(1, "c1", "a"))
    assert TurnPaused() not in story.events()
    assert story.conversation.deadline() == pytest.approx(story.now + 0.5)
    story.now += 0.3
    story.hear(mcp(2, "c2", "b"))
    story.wait(0.4)
    assert TurnPaused() not in story.events(), "the second call started the quiet anew"
    story.wait(0.2)
    assert story.events()[-1] == TurnPaused()


def test_a_call_that_is_still_being_written_is_waited_for() -> None:
    story = Story("a", "b")
    story.hear(partial("c2", "b", '{"x": '), mcp(1, "c1", "a"))
    story.wait(60)
    assert TurnPaused() not in story.events()
    story.hear(partial("c2", "b", "1}"), mcp(2, "c2", "b", x=1))
    story.wait(1)
    assert story.events()[-1] == TurnPaused()


def test_arguments_are_streamed_in_the_models_own_spelling() -> None:
    story = Story("a")
    story.hear(partial("c1", "a", '{"n": 2,'), partial("c1", "a", ' "m": 1.0}'), mcp(1, "c1", "a", n=2, m=1))
    assert story.events()[1:] == [
        ToolCallStarted("c1", "a"),
        ToolCallDelta("c1", '{"n": 2,'),
        ToolCallDelta("c1", ' "m": 1.0}'),
        ToolCallReady("c1", "a", '{"n": 2, "m": 1.0}'),
    ]


def test_streamed_arguments_that_differ_from_the_call_end_the_turn() -> None:
    story = Story("a")
    story.hear(partial("c1", "a", '{"n": 3}'), mcp(1, "c1", "a", n=2))
    assert isinstance(story.events()[-1], TurnFailed)


def test_results_go_back_in_one_order_with_stream_closes() -> None:
    story = Story("a", "b")
    story.hear(listed(2), mcp(7, "c1", "a"), mcp(8, "c2", "b"))
    story.said()
    story.events()
    story.conversation.submit([result("c2", "B"), result("c1", "A")], [], story.now)
    messages = story.said()
    assert [m.exec_client_message.id or m.exec_client_control_message.stream_close.id for m in messages] == [8, 8, 7, 7]
    (started,) = story.events()
    assert isinstance(started, TurnStarted)
    story.hear(text("done"), ended(output_tokens=1))
    assert story.events()[0] == TextDelta("done")


def test_kv_and_heartbeats_go_on_while_parked() -> None:
    story = Story("a")
    story.hear(listed(1), mcp(1, "c1", "a"))
    story.said()
    assert story.conversation.phase is Phase.PAUSED
    story.hear(set_blob(1, b"k", b"v"))
    assert story.kinds() == ["kv_client_message.set_blob_result"]
    for _ in range(200):  # ten minutes: heartbeats only, and that is right while a client works
        story.hear(heartbeat())
        assert story.wait(3) is None
    kinds = story.kinds()
    assert kinds.count("client_heartbeat") == 100
    assert kinds.count("exec_client_control_message.heartbeat") == 200
    assert story.conversation.phase is Phase.PAUSED


def test_an_undeclared_tool_is_answered_with_the_ones_that_exist() -> None:
    story = Story("a", "b")
    story.said()
    story.hear(mcp(1, "c1", "zzz"))
    answer, _ = story.said()
    missing = answer.exec_client_message.mcp_result.tool_not_found
    assert (missing.name, list(missing.available_tools)) == ("zzz", ["a", "b"])


def test_one_call_at_a_time() -> None:
    story = Story("a", "b", parallel=False)
    story.hear(listed(2), mcp(1, "c1", "a"), mcp(2, "c2", "b"))
    assert [event.id for event in story.events() if isinstance(event, ToolCallReady)] == ["c1"]
    story.said()
    story.conversation.submit([result("c1", "A")], [], story.now)
    events = story.events()
    assert [event.id for event in events if isinstance(event, ToolCallReady)] == ["c2"]
    assert events[-1] == TurnPaused()


def test_words_beside_the_results_ride_on_the_last_one() -> None:
    story = Story("a")
    story.hear(listed(1), mcp(1, "c1", "a"))
    story.said()
    story.conversation.submit([result("c1", "A")], [Text("hurry")], story.now)
    answer = story.said()[0]
    content = answer.exec_client_message.mcp_result.success.content
    assert "A" in content[0].text.text
    assert "hurry" in content[1].text.text


# ---- dropped connections


def test_a_drop_resumes_from_the_checkpoint_and_says_nothing_twice() -> None:
    story = Story()
    story.said()
    story.hear(text("one "), checkpoint(b"k"), text("two "))
    assert story.conversation.lost(DROPPED, retryable=True, now=story.now) == 0.0
    story.conversation.open(story.now)
    (again,) = story.said()
    assert again.run_request.action.WhichOneof("action") == "resume_action"
    assert list(again.run_request.conversation_state.root_prompt_messages_json) == [b"k"]
    story.hear(text("tw"), text("o three"), ended(output_tokens=1))
    assert "".join(e.text for e in story.events() if isinstance(e, TextDelta)) == "one two three"


def test_a_drop_without_checkpoint_repeats_the_action() -> None:
    story = Story()
    story.said()
    story.hear(text("one "))
    assert story.conversation.lost(DROPPED, retryable=True, now=story.now) == 0.0
    story.conversation.open(story.now)
    (again,) = story.said()
    assert again.run_request.action.WhichOneof("action") == "user_message_action"
    story.hear(text("one "), text("two"), ended(output_tokens=1))
    assert "".join(e.text for e in story.events() if isinstance(e, TextDelta)) == "one two"


def test_another_story_after_a_drop_is_an_error() -> None:
    story = Story()
    story.hear(text("one "))
    story.conversation.lost(DROPPED, retryable=True, now=story.now)
    story.conversation.open(story.now)
    story.hear(text("uno "))
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert last.error.kind is ErrorKind.UPSTREAM_DOWN


def test_attempts_are_bounded_and_back_off() -> None:
    story = Story()
    delays = []
    while (delay := story.conversation.lost(DROPPED, retryable=True, now=story.now)) is not None:
        delays.append(delay)
        story.conversation.open(story.now)
    assert delays == [0.0, 0.25]
    assert story.events()[-1] == TurnFailed(DROPPED)


def test_an_answered_call_that_is_asked_again_is_answered_from_memory() -> None:
    story = Story("charge")
    story.hear(listed(1), mcp(1, "c1", "charge", card=7))
    story.conversation.submit([result("c1", "paid")], [], story.now)
    story.conversation.lost(DROPPED, retryable=True, now=story.now)
    story.conversation.open(story.now)
    story.said()
    story.events()
    story.hear(mcp(4, "c1", "charge", card=7))
    answer = story.said()[0].exec_client_message
    assert (answer.id, answer.mcp_result.success.content[0].text.text) == (4, "paid")
    assert story.events() == [], "the client is not asked a second time"


def test_lost_while_parked_refuses_results() -> None:
    story = Story("a")
    story.hear(listed(1), mcp(1, "c1", "a"))
    assert story.conversation.lost(DROPPED, retryable=True, now=story.now) is None
    with pytest.raises(GatewayError) as gone:
        story.conversation.submit([result("c1", "A")], [], story.now)
    assert gone.value.kind is ErrorKind.TURN_GONE


# ---- the two watchdogs


def test_silence_gives_the_attempt_up() -> None:
    story = Story()
    assert story.wait(29) is None
    fault = story.wait(2)
    assert fault is not None
    assert fault.kind is ErrorKind.TIMEOUT


def test_silence_proves_nothing_while_the_reader_is_slow() -> None:
    story = Story()
    story.now += 500
    assert story.conversation.tick(story.now, reading=False) is None


def test_heartbeats_are_no_progress() -> None:
    story = Story()
    story.hear(text("x"))
    for _ in range(31):
        story.hear(heartbeat(), set_blob(1, b"k", b"v"))
        story.wait(3)
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert last.error.kind is ErrorKind.TIMEOUT


def test_before_the_first_byte_there_is_one_fresh_retry() -> None:
    story = Story()
    for _ in range(31):
        story.hear(heartbeat())
        fault = story.wait(3)
        if fault is not None:
            break
    assert fault is not None
    assert story.conversation.lost(fault, retryable=True, now=story.now) == 0.0


def test_garbage_from_upstream_is_an_error_not_a_crash() -> None:
    story = Story()
    story.conversation.feed([b"\xff\xff\xff"], story.now)
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert last.error.kind is ErrorKind.UPSTREAM_PROTOCOL
