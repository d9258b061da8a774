"""The Agent API conversation as stories, without a socket and with a clock of its own."""

from collections.abc import Callable

import pytest

from caretway.backends.agent.compose import read_snapshot
from caretway.backends.agent.conversation import MAX_LATE_BYTES, LateWords, Retry, RunPhase
from caretway.backends.agent.turn_clock import GivenUp
from caretway.backends.builtin_tools import execs
from caretway.backends.builtin_tools.execs import Refuse, RunHere
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    Event,
    EventOrder,
    ReasoningDelta,
    Recovered,
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
from caretway.core.recovery import Loss
from caretway.core.request import Text, ToolResult, ToolSpec
from caretway.cursor.wire.messages import pb

from .stories import (
    Story,
    checkpoint,
    completed,
    ended,
    get_blob,
    heartbeat,
    listed,
    mcp,
    partial,
    set_blob,
    shell,
    text,
    thinking,
    update,
)


def test_they_are_taken_once_and_in_order() -> None:
    words = LateWords()
    assert words.keep([ReasoningDelta("hm"), TextDelta("a")])
    assert words.keep([TextDelta("bc")])
    assert words.take() == ([ReasoningDelta("hm"), TextDelta("a"), TextDelta("bc")], 5)
    assert words.take() == ([], 0)


def test_they_are_bounded() -> None:
    words = LateWords()
    assert words.keep([TextDelta("x" * (MAX_LATE_BYTES // 2))])
    assert not words.keep([TextDelta("x" * (MAX_LATE_BYTES // 2))])
    words.take()
    assert words.keep([TextDelta("x")])


def result(call: str, words: str) -> ToolResult:
    return ToolResult(call, (Text(words),))


def tool_call(kind: str) -> pb.AgentServerMessage:
    shown = pb.ToolCall(mcp_tool_call=pb.McpToolCall(args=pb.McpArgs(tool_name="add", tool_call_id="c1")))
    return update(**{f"tool_call_{kind}": {"call_id": "c1", "tool_call": shown}})


context = pb.AgentServerMessage(
    exec_server_message=pb.ExecServerMessage(id=1, request_context_args=pb.RequestContextArgs())
)
KINDS: dict[str, tuple[pb.AgentServerMessage, list[type[Event]], list[str], bool]] = {
    "text": (text("a"), [TextDelta], [], True),
    "tokens": (update(token_delta=pb.TokenDeltaUpdate(tokens=3)), [], [], True),
    "thinking": (thinking("hm"), [ReasoningDelta], [], True),
    "a call begins": (tool_call("started"), [], [], True),
    "a call is written": (partial("c1", "add", '{"a":'), [ToolCallStarted, ToolCallDelta], [], True),
    "a call is over": (tool_call("completed"), [], [], True),
    "an exec for the client": (mcp(1, "c1", "add"), [ToolCallStarted, ToolCallReady], [], True),
    "an exec for the gateway": (
        context,
        [],
        ["exec_client_message.request_context_result", "exec_client_control_message.stream_close"],
        True,
    ),
    "an exec that nobody runs": (
        shell(1, "c1", "ls"),
        [],
        ["exec_client_message.shell_result", "exec_client_control_message.stream_close"],
        True,
    ),
    "a blob to keep": (set_blob(1, b"k", b"v"), [], ["kv_client_message.set_blob_result"], True),
    "a blob that is wanted": (get_blob(1, b"k"), [], ["kv_client_message.get_blob_result"], True),
    "a heartbeat": (heartbeat(), [], [], False),
    "a checkpoint": (checkpoint(b"k"), [], [], True),
    "the end": (ended(output_tokens=1), [UsageReported, TurnEnded], [], False),
}


@pytest.mark.seed("E08")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_server_message(kind: str) -> None:
    """What the client gets of it, what Cursor gets as an answer, and whether the run has made progress."""
    message, events, replies, progress = KINDS[kind]
    story = Story("add", policy=lambda _: Refuse("not here"), fetch=lambda _: b"v")
    story.events(), story.said()
    story.now += 10
    story.hear(message)
    assert story.conversation.watch.heard == story.now
    assert (story.conversation.watch.progressed == story.now) is progress
    assert [type(event) for event in story.events()] == events
    assert story.kinds() == replies


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
        TurnStarted(2, conversation="conv"),
        ReasoningDelta("hm"),
        TextDelta("ab"),  # what is read together is told together
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


@pytest.mark.seed("E11")
def test_blobs_come_back_from_here_and_from_the_store() -> None:
    story = Story(fetch={b"old": b"kept"}.get)
    story.said()
    story.hear(set_blob(1, b"new", b"fresh"), get_blob(2, b"new"), get_blob(3, b"old"))
    _, new, old = story.said()
    assert new.kv_client_message.get_blob_result.blob_data == b"fresh"
    assert old.kv_client_message.get_blob_result.blob_data == b"kept"


# ---- tool calls


@pytest.mark.seed("F11")
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
    assert story.conversation.watch.due() == pytest.approx(story.now + 0.5)
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
    story.hear(partial("c2", "b", '{"x": 1}'), mcp(2, "c2", "b", x=1))
    story.wait(1)
    assert story.events()[-1] == TurnPaused()


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(['{"n": 2,', '{"n": 2, "m": 1.0}'], id="each piece is the whole text so far"),
        pytest.param(['{"n": 2,', ' "m": 1.0}'], id="each piece is what is new"),
    ],
)
def test_arguments_are_streamed_in_the_models_own_spelling(pieces: list[str]) -> None:
    story = Story("a")
    story.hear(*[partial("c1", "a", piece) for piece in pieces], mcp(1, "c1", "a", n=2, m=1))
    assert story.events()[1:] == [
        ToolCallStarted("c1", "a"),
        ToolCallDelta("c1", '{"n": 2,'),
        ToolCallDelta("c1", ' "m": 1.0'),
        ToolCallDelta("c1", "}"),
        ToolCallReady("c1", "a", '{"n": 2, "m": 1.0}'),
    ]


def test_a_call_that_is_told_of_under_two_ids_is_one_call() -> None:
    story = Story("a")
    story.hear(partial("envelope", "a", '{"n":'), mcp(1, "inner", "a", n=2), listed(1))
    assert [type(event).__name__ for event in story.events()[1:]] == [
        "ToolCallStarted",
        "ToolCallDelta",
        "ToolCallDelta",
        "ToolCallReady",
        "UsageReported",
        "TurnPaused",
    ]


def test_a_whole_call_that_the_client_has_is_kept_when_the_exec_differs() -> None:
    story = Story("a")
    story.hear(partial("c1", "a", '{"n": 3}'), mcp(1, "c1", "a", n=2))
    assert story.events()[-1] == ToolCallReady("c1", "a", '{"n": 3}')


def test_half_a_call_that_cannot_be_completed_ends_the_turn() -> None:
    story = Story("a")
    story.hear(partial("c1", "a", '{"n": "thr'), mcp(1, "c1", "a", n=2))
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert last.error.code == "tool_call_cut"


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


@pytest.mark.seed("J12")
def test_kv_and_heartbeats_go_on_while_parked() -> None:
    story = Story("a")
    story.hear(listed(1), mcp(1, "c1", "a"))
    story.said()
    assert story.conversation.phase is RunPhase.PAUSED
    story.hear(set_blob(1, b"k", b"v"))
    assert story.kinds() == ["kv_client_message.set_blob_result"]
    for _ in range(200):  # ten minutes: heartbeats only, and that is right while a client works
        story.hear(heartbeat())
        assert story.wait(3) is None
    kinds = story.kinds()
    assert kinds.count("client_heartbeat") == 100
    assert kinds.count("exec_client_control_message.heartbeat") == 200
    assert story.conversation.phase is RunPhase.PAUSED


def test_an_undeclared_tool_is_answered_with_the_ones_that_exist() -> None:
    story = Story("a", "b")
    story.said()
    story.hear(mcp(1, "c1", "zzz"))
    answer, _ = story.said()
    missing = answer.exec_client_message.mcp_result.tool_not_found
    assert (missing.name, list(missing.available_tools)) == ("zzz", ["a", "b"])


KEYED = ToolSpec("a", schema={"type": "object", "required": ["key"]})


def test_arguments_that_do_not_fit_are_told_to_the_model_once() -> None:
    story = Story(KEYED)
    story.said()
    story.hear(mcp(1, "c1", "a"))
    answer, _ = story.said()
    assert "do not fit the tool" in str(answer.exec_client_message.mcp_result)
    assert not any(isinstance(event, ToolCallStarted) for event in story.events())
    story.hear(mcp(2, "c2", "a"))
    assert [event.id for event in story.events() if isinstance(event, ToolCallReady)] == ["c2"], "then it goes out"


def test_a_call_that_the_client_has_seen_growing_is_not_taken_back() -> None:
    story = Story(KEYED)
    story.hear(partial("c1", "a", "{}", inner="c1"), mcp(1, "c1", "a"))
    assert [event.id for event in story.events() if isinstance(event, ToolCallReady)] == ["c1"]


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
    story.drop()
    (again,) = story.said()
    assert again.run_request.action.WhichOneof("action") == "resume_action"
    assert list(again.run_request.conversation_state.root_prompt_messages_json) == [b"k"]
    story.hear(text("tw"), text("o three"), ended(output_tokens=1))
    assert "".join(e.text for e in story.events() if isinstance(e, TextDelta)) == "one two three"


def test_a_drop_without_checkpoint_repeats_the_action() -> None:
    story = Story()
    story.said()
    story.hear(text("one "))
    story.drop()
    (again,) = story.said()
    assert again.run_request.action.WhichOneof("action") == "user_message_action"
    story.hear(text("one "), text("two"), ended(output_tokens=1))
    assert "".join(e.text for e in story.events() if isinstance(e, TextDelta)) == "one two"


@pytest.mark.parametrize("then", [False, True])
def test_r10_a_conversation_is_not_kept_by_a_checkpoint_before_its_last(then: bool) -> None:
    """One that is too large comes as an empty one. A new attempt may begin at the last good one, a later turn not: it
    would not know what was said since. When a good one follows, all is well."""
    story = Story()
    too_large = pb.AgentServerMessage(conversation_checkpoint_update=pb.ConversationStateStructure())
    story.hear(text("one"), checkpoint(b"good"), text(" two"), too_large)
    story.said()
    story.drop()
    assert [said.run_request.conversation_state.root_prompt_messages_json for said in story.said()] == [[b"good"]]
    story.hear(text(" two"), too_large)
    if then:
        story.hear(checkpoint(b"better"))
    story.hear(ended(input_tokens=1, output_tokens=1))
    assert story.conversation.ended
    kept = story.conversation.snapshot("agent")
    assert (kept is not None) is then
    assert kept is None or b"better" in kept.state


def test_another_story_after_a_drop_is_an_error() -> None:
    story = Story()
    story.hear(text("one "))
    story.drop()
    story.hear(text("uno "))
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert last.error.kind is ErrorKind.UPSTREAM_DOWN


def test_attempts_are_bounded_and_back_off() -> None:
    story = Story()
    delays = []
    while (retry := story.lose()) is not None:
        delays.append(retry.delay)
        story.conversation.open(story.now)
    assert delays == [0.0, 0.25]
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert (last.error.kind, last.error.message) == (
        ErrorKind.UPSTREAM_DOWN,
        "cut (Not tried again: every new run ended without progress.)",
    )


@pytest.mark.parametrize("call", ["c1", "another-id"])
@pytest.mark.parametrize("told", [True, False], ids=["written first", "asked at once"])
def test_an_answered_call_that_is_asked_again_is_answered_from_memory(call: str, told: bool) -> None:
    story = Story("charge")
    story.hear(listed(1), mcp(1, "c1", "charge", card=7))
    story.conversation.submit([result("c1", "paid")], [], story.now)
    story.drop()
    story.said()
    story.events()
    if told:
        story.hear(partial(call, "charge", '{"card":'), partial(call, "charge", '{"card":7}'))
    story.hear(mcp(4, call, "charge", card=7))
    answer = story.said()[0].exec_client_message
    assert (answer.id, answer.mcp_result.success.content[0].text.text) == (4, "paid")
    assert story.events() == [], "the client is not asked a second time"
    story.hear(mcp(5, "c2", "charge", card=7), listed(1))
    assert [event.id for event in story.events() if isinstance(event, ToolCallReady)] == ["c2"], "a memory serves once"


def test_what_a_checkpoint_holds_is_asked_for_anew() -> None:
    """The same file, read again after it changed."""
    story = Story("read")
    story.hear(listed(1), mcp(1, "c1", "read", path="a"))
    story.conversation.submit([result("c1", "version 1")], [], story.now)
    story.hear(completed("c1"), checkpoint(b"k"), text("so "))
    story.drop()
    story.events()
    story.hear(text("so "), mcp(2, "c2", "read", path="a"), listed(1))
    assert [event.id for event in story.events() if isinstance(event, ToolCallReady)] == ["c2"]


def test_a_checkpoint_that_is_older_than_the_result_holds_nothing() -> None:
    """It was made before the result, and came after Cursor said that it has it."""
    story = Story("deploy")
    story.hear(listed(1), mcp(1, "c1", "deploy", to="prod"))
    story.conversation.submit([result("c1", "deployed")], [], story.now)
    call = b'{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c1"}]}'
    story.hear(set_blob(1, b"k", call), completed("c1"), checkpoint(b"k"))
    story.drop()
    story.said(), story.events()
    story.hear(mcp(2, "c2", "deploy", to="prod"))
    assert story.events() == [], "the client is not asked a second time"
    assert story.said()[0].exec_client_message.mcp_result.success.content[0].text.text == "deployed"


def test_another_call_than_before_is_told_to_a_fresh_run() -> None:
    story = Story("deploy")
    story.hear(listed(1), mcp(1, "c1", "deploy", to="prod"))
    story.conversation.submit([result("c1", "deployed")], [], story.now)
    story.drop()
    story.hear(mcp(2, "c2", "deploy", to="production"))
    told, failed = story.events()[-2:]
    assert told == Recovered("fresh run", "diverged", 2)
    assert isinstance(failed, TurnFailed)
    assert failed.error.kind is ErrorKind.TURN_GONE


def test_words_instead_of_the_call_are_told_to_a_fresh_run() -> None:
    story = Story("deploy")
    story.hear(text("I deploy. "), listed(1), mcp(1, "c1", "deploy"))
    story.conversation.submit([result("c1", "deployed")], [], story.now)
    story.drop()
    story.events()
    story.hear(text("I deploy. "), text("Shall I?"))
    failed = story.events()[-1]
    assert isinstance(failed, TurnFailed)
    assert failed.error.kind is ErrorKind.TURN_GONE


def test_a_cut_after_the_calls_are_out_leaves_them_with_the_client() -> None:
    story = Story("a", "b")
    story.hear(mcp(1, "c1", "a"))
    story.events()
    assert story.lose() is None
    events = story.events()
    assert events[0] == Recovered("hand over", "cut", 0)
    assert events[-1] == TurnPaused()
    with pytest.raises(GatewayError) as gone:
        story.conversation.submit([result("c1", "A")], [], story.now)
    assert gone.value.kind is ErrorKind.TURN_GONE, "its results are told to a fresh run"


def test_a_call_that_was_cut_while_it_was_written_goes_on() -> None:
    story = Story("a", "b")
    story.hear(mcp(1, "c1", "a"), partial("c2", "b", '{"x": "on'))
    story.events()
    story.drop()
    story.hear(partial("d1", "a", "{}"), mcp(1, "d1", "a"), partial("d2", "b", '{"x": "o'))
    story.hear(partial("d2", "b", '{"x": "one"}'), mcp(2, "d2", "b", x="one"), listed(2))
    events = [event for event in story.events() if not isinstance(event, Recovered | UsageReported)]
    assert events[:2] == [ToolCallDelta("c2", 'e"'), ToolCallDelta("c2", "}")]
    assert events[2:] == [ToolCallReady("c2", "b", '{"x": "one"}'), TurnPaused()]
    story.said()
    story.conversation.submit([result("c1", "A"), result("c2", "B")], [], story.now)
    answers = [message.exec_client_message for message in story.said() if message.HasField("exec_client_message")]
    assert [answer.id for answer in answers] == [1, 2]


def test_a_call_that_was_cut_and_goes_on_otherwise_ends_the_turn() -> None:
    story = Story("a")
    story.hear(partial("c1", "a", '{"x": "on'))
    story.drop()
    story.hear(mcp(1, "d1", "a", x="two"))
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert last.error.code == "tool_call_cut"


def test_a_cut_call_does_not_hold_the_turn_for_minutes() -> None:
    story = Story("a", "b")
    story.hear(mcp(1, "c1", "a"), partial("c2", "b", '{"x":'))
    assert beat_until_given_up(story).loss is Loss.STALLED


def test_a_local_tool_runs_once() -> None:
    story = Story(policy=lambda _: RunHere())
    story.hear(shell(1, "c1", "./deploy.sh"))
    ((call, _),) = story.conversation.jobs
    story.conversation.jobs = ()
    story.drop()
    story.said()
    story.hear(shell(5, "d1", "./deploy.sh"))
    assert story.conversation.jobs == (), "it is running already"
    story.conversation.finish_job(call, [execs.stream_close(1)], story.now)
    assert [message.exec_client_control_message.stream_close.id for message in story.said()] == [5]
    story.drop()
    story.said()
    story.hear(shell(9, "e1", "./deploy.sh"))
    assert [message.exec_client_control_message.stream_close.id for message in story.said()] == [9]
    assert story.conversation.jobs == ()


def test_progress_renews_the_retry_budget() -> None:
    story = Story()
    for number in range(6):
        story.hear(text(f"{number} "), checkpoint(b"k"))
        story.drop()
    said = [event.text for event in story.events() if isinstance(event, TextDelta)]
    assert "".join(said) == "0 1 2 3 4 5 "
    story.hear(checkpoint(b"k"))
    story.drop()
    assert story.lose() is None, "a checkpoint that holds nothing new is no progress"


def test_a_checkpoint_in_the_middle_of_what_is_repeated_loses_nothing() -> None:
    story = Story()
    story.hear(text("one two "))
    story.drop()
    story.hear(text("one "), checkpoint(b"k"), text("two "), text("three"), ended())
    assert "".join(e.text for e in story.events() if isinstance(e, TextDelta)) == "one two three"


@pytest.mark.parametrize("say", [text, thinking])
@pytest.mark.parametrize("at_once", [1, 4])
def test_what_goes_on_beyond_what_is_repeated_is_told_once(
    say: Callable[[str], pb.AgentServerMessage], at_once: int
) -> None:
    story = Story()
    story.hear(say("I know. "))
    story.drop()
    repeated = [say(words) for words in ("I ", "know. ", "And ", "more.")]
    for at in range(0, len(repeated), at_once):
        story.hear(*repeated[at : at + at_once])
    words = [event.text for event in story.events() if isinstance(event, TextDelta | ReasoningDelta)]
    assert "".join(words) == "I know. And more."


def test_an_edit_is_a_read_and_a_write_under_one_id() -> None:
    story = Story("a", "b")
    story.hear(listed(1), mcp(1, "c1", "a", path="f"))
    story.conversation.submit([result("c1", "old")], [], story.now)
    story.events()
    story.hear(mcp(2, "c1", "b", path="f"), listed(1))
    (ready,) = [event for event in story.events() if isinstance(event, ToolCallReady)]
    assert (ready.name, ready.id != "c1") == ("b", True)
    story.said()
    story.conversation.submit([result(ready.id, "written")], [], story.now)
    assert story.said()[0].exec_client_message.id == 2


def test_lost_while_parked_refuses_results() -> None:
    story = Story("a")
    story.hear(listed(1), mcp(1, "c1", "a"))
    assert story.lose() is None
    with pytest.raises(GatewayError) as gone:
        story.conversation.submit([result("c1", "A")], [], story.now)
    assert gone.value.kind is ErrorKind.TURN_GONE


# ---- the two watchdogs


def test_silence_gives_the_attempt_up() -> None:
    story = Story()
    assert story.wait(29) is None
    fault = story.wait(2)
    assert fault is not None
    assert (fault.loss, fault.error.kind) == (Loss.SILENT, ErrorKind.TIMEOUT)


def test_a_second_attempt_that_hears_nothing_is_given_up_sooner() -> None:
    story = Story()
    story.drop()
    assert story.wait(14) is None
    assert story.wait(2) is not None


def test_silence_proves_nothing_while_the_reader_is_slow() -> None:
    story = Story()
    story.now += 500
    assert story.conversation.tick(story.now, reading=False) is None


def beat_until_given_up(story: Story) -> GivenUp:
    for _ in range(40):
        story.hear(heartbeat(), set_blob(1, b"k", b"v"))
        if (given_up := story.wait(3)) is not None:
            return given_up
    raise AssertionError("nobody minds")


def test_heartbeats_are_no_progress() -> None:
    story = Story()
    story.hear(text("x"))
    given_up = beat_until_given_up(story)
    assert (given_up.loss, given_up.error.kind) == (Loss.STALLED, ErrorKind.TIMEOUT)
    assert story.lose(given_up.loss) == Retry(0.0, alone=True)
    story.conversation.open(story.now)
    assert story.lose(beat_until_given_up(story).loss) is None, "a long wait is repeated once"
    assert isinstance(story.events()[-1], TurnFailed)


def test_tokens_and_checkpoints_are_progress() -> None:
    story = Story()
    for message in (update(token_delta=pb.TokenDeltaUpdate(tokens=1)), checkpoint(b"k")):
        for _ in range(31):
            story.hear(message)
            assert story.wait(10) is None


def test_what_is_new_in_the_store_is_progress() -> None:
    """Storing the same once more is not: servers do that when nothing moves."""
    story = Story()
    for number in range(31):
        story.hear(set_blob(number, b"%d" % number, b"v"))
        assert story.wait(10) is None
    assert beat_until_given_up(story).loss is Loss.STALLED


def test_results_that_lead_nowhere_are_told_to_a_fresh_run() -> None:
    """Accepted, then heartbeats only, and the answer stays in a blob."""
    story = Story("a")
    story.hear(listed(1), mcp(1, "c1", "a"), checkpoint(b"k"))
    story.conversation.submit([result("c1", "A")], [], story.now)
    given_up = beat_until_given_up(story)
    assert story.lose(given_up.loss) is None
    told, failed = story.events()[-2:]
    assert told == Recovered("fresh run", "stalled", 1)
    assert isinstance(failed, TurnFailed)
    assert failed.error.kind is ErrorKind.TURN_GONE


def test_garbage_from_upstream_is_an_error_not_a_crash() -> None:
    story = Story()
    story.conversation.feed([b"\xff\xff\xff"], story.now)
    last = story.events()[-1]
    assert isinstance(last, TurnFailed)
    assert last.error.kind is ErrorKind.UPSTREAM_PROTOCOL


def test_a_call_of_an_earlier_step_that_a_new_attempt_repeats_is_not_rejected() -> None:
    """`add` is demanded next. `look` has its result, and gets it again."""
    story = Story("add", "look")
    story.hear(mcp(1, "c1", "look"), listed(1))
    story.conversation.submit([result("c1", "seen")], (), story.now, "add")
    story.drop()
    story.said(), story.events()
    story.hear(mcp(2, "c1", "look"))
    (answer, _) = story.said()
    assert answer.exec_client_message.mcp_result.success.content[0].text.text.startswith("seen")
    story.hear(mcp(3, "c2", "look"))
    assert "`add`" in story.said()[0].exec_client_control_message.throw.error
    story.hear(mcp(4, "c3", "add"))
    assert [event.name for event in story.events() if isinstance(event, ToolCallStarted)] == ["add"]


def test_a_call_that_waits_is_not_shown_where_another_one_is_demanded() -> None:
    story = Story("add", "look", parallel=False)
    story.hear(mcp(1, "c1", "add"), mcp(2, "c2", "look"))
    story.wait(1)
    with pytest.raises(GatewayError) as refused:
        story.conversation.submit([result("c1", "3")], (), story.now, "add")
    assert refused.value.kind is ErrorKind.TURN_GONE
    assert story.conversation.phase is RunPhase.PAUSED
