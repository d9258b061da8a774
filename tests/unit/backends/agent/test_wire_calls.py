"""Which offered tool a call means, and which call a message tells of."""

import json

import pytest

from caretway.backends.agent.wire_calls import (
    MAX_OVERSIZED,
    MAX_UNREAD_CHARS,
    OfferedTools,
    client_name,
    wire_ids,
    with_extra,
)
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import TextDelta, ToolCallReady, TurnEnded, TurnFailed, TurnPaused
from caretway.core.request import Message, Role, Text, ToolResult, ToolSpec, as_user_text
from caretway.cursor.wire.heavy import MAX_ASKED_BYTES, Oversized, lighten
from caretway.cursor.wire.messages import pb

from .stories import Story, ended, mcp, partial, text


def asked(number: int, call: str, **arguments: str) -> Oversized:
    """As it comes from the carrier."""
    (bare,) = lighten(mcp(number, call, "look", **arguments).SerializeToString())
    assert type(bare) is Oversized
    return bare


def large() -> str:
    return "x" * MAX_ASKED_BYTES


def hear(story: Story, bare: Oversized) -> list[pb.AgentClientMessage]:
    story.said()
    story.conversation.feed([bare], story.now)
    return story.said()


def test_the_model_is_told_and_goes_on() -> None:
    story = Story("look")
    answer, close = hear(story, asked(7, "c1", key=large()))
    success = answer.exec_client_message.mcp_result.success
    assert (answer.exec_client_message.id, success.is_error) == (7, True)
    assert "too large (at most 512 KiB" in success.content[0].text.text
    assert close.exec_client_control_message.stream_close.id == 7
    story.hear(text("then in parts"), ended())
    assert [type(event) for event in story.events()[-3:-2]] == [TextDelta]


def test_a_built_in_tool_says_no_in_its_own_way() -> None:
    story = Story()
    exec_ = pb.ExecServerMessage(id=3, write_args=pb.WriteArgs(path="a.txt", file_text=large()))
    (bare,) = lighten(pb.AgentServerMessage(exec_server_message=exec_).SerializeToString())
    assert type(bare) is Oversized
    answer, _ = hear(story, bare)
    rejected = answer.exec_client_message.write_result.rejected
    assert (rejected.path, "too large" in rejected.reason) == ("a.txt", True)


def test_it_is_told_so_often_and_no_more() -> None:
    story = Story("look")
    for number in range(MAX_OVERSIZED):
        assert hear(story, asked(number, f"c{number}", key=large()))
    assert not hear(story, asked(99, "c99", key=large()))
    failed = story.events()[-1]
    assert isinstance(failed, TurnFailed)
    assert (failed.error.kind, failed.error.code) == (ErrorKind.UPSTREAM_PROTOCOL, "tool_call_too_large")
    assert "9th time" in failed.error.message


def test_a_call_whose_text_was_told_is_handed_over() -> None:
    """Its exec is not read; what the model wrote is the same call."""
    story = Story("look")
    words = '{"key": "' + large() + '"}'
    story.hear(partial("c1", "look", words))
    assert hear(story, asked(1, "c1", key=large())) == []
    story.wait(1.0)
    events = story.events()
    assert [event.arguments for event in events if isinstance(event, ToolCallReady)] == [words]
    assert isinstance(events[-1], TurnPaused)


def test_a_client_that_has_a_part_of_it_is_told_not_to_run_it() -> None:
    story = Story("look")
    story.hear(partial("c1", "look", '{"key": "xx'))
    hear(story, asked(1, "c1", key=large()))
    failed = story.events()[-1]
    assert isinstance(failed, TurnFailed)
    assert (failed.error.code, failed.error.hint.startswith("Do not run")) == ("tool_call_too_large", True)


def test_a_small_exec_whose_json_is_large() -> None:
    """A control character is six characters of JSON."""
    story = Story("look")
    story.hear(mcp(1, "c1", "look", key="\x01" * 300_000))
    assert not any(isinstance(event, TurnFailed | TurnEnded) for event in story.events())
    assert any(message.exec_client_message.mcp_result.success.is_error for message in story.said())


OFFERED = frozenset({"look", "mcp_caretway_odd", "a-b"})


@pytest.mark.parametrize(
    ("tool_name", "name", "meant"),
    [
        ("look", "", "look"),
        ("", "look", "look"),
        ("mcp_caretway_look", "", "look"),
        ("", "caretway-look", "look"),
        ("mcp__caretway__look", "", "look"),
        ("mcp_user-caretway_look", "", "look"),
        ("caretway.look", "", "look"),
        ("caretway_a-b", "", "a-b"),
        ("mcp_caretway_odd", "", "mcp_caretway_odd"),
        ("mcp_caretway_gone", "look", "look"),
        ("mcp_caretway_gone", "", "mcp_caretway_gone"),
        ("mcp_other_look", "", "mcp_other_look"),
        ("caretwaylook", "", "caretwaylook"),
        ("", "", ""),
    ],
)
def test_names(tool_name: str, name: str, meant: str) -> None:
    assert client_name(pb.McpArgs(tool_name=tool_name, name=name), OFFERED) == meant


@pytest.mark.parametrize(
    ("inner", "beside", "envelope", "ids"),
    [
        ("inner", "", "envelope", ("inner", "envelope")),
        ("inner", "beside", "envelope", ("inner", "beside", "envelope")),
        ("", "", "envelope", ("envelope",)),
        ("same", "same", "same", ("same",)),
        ("inner", "", "", ("inner",)),
        ("", "", "", ()),
    ],
)
def test_the_inner_id_comes_first(inner: str, beside: str, envelope: str, ids: tuple[str, ...]) -> None:
    """It is the one by which the call is asked for."""
    call = pb.ToolCall(mcp_tool_call=pb.McpToolCall(args=pb.McpArgs(tool_call_id=inner)))
    if beside:
        call.tool_call_id = beside
    assert wire_ids(call, envelope) == ids


@pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param("e1", "e2", id="one each"), pytest.param("e", "e", id="the same"), pytest.param("", "", id="none")],
)
def test_r2_calls_are_told_apart_by_their_inner_ids(first: str, second: str) -> None:
    """Both begin alike, whatever stands outside, and the later one is asked for first."""
    story = Story("look")
    for beginning in ('{"key": "', '{"key": "a'):
        story.hear(partial(first, "look", beginning, inner="i1"))
    story.hear(partial(second, "look", '{"key": "', inner="i2"))
    story.hear(mcp(2, "i2", "look", key="ab"), mcp(1, "i1", "look", key="ac"))
    ready = [event for event in story.events() if isinstance(event, ToolCallReady)]
    assert ready == [
        ToolCallReady("i2", "look", '{"key": "ab"}'),
        ToolCallReady("i1", "look", '{"key": "ac"}'),
    ]


def test_r2_a_call_that_began_without_its_inner_id_is_the_same_call() -> None:
    story = Story("look")
    story.hear(partial("e", "look", '{"key": '), partial("e", "look", '{"key": "a"', inner="i"))
    story.hear(partial("e", "look", '{"key": "a"}'), mcp(1, "i", "look", key="a"))
    ready = [event for event in story.events() if isinstance(event, ToolCallReady)]
    assert ready == [ToolCallReady("e", "look", '{"key": "a"}')]


RESULTS = [ToolResult("typed", (Text("one"),)), ToolResult("text", (Text("two"),)), ToolResult("also", (Text("x"),))]
REMINDER = as_user_text(Message(Role.SYSTEM, (Text("Be quick."),)))


def test_words_ride_on_the_last_result_with_text() -> None:
    first, second, _ = RESULTS
    given, unread = with_extra([first, second], [REMINDER, Text("Hurry.")], lambda call: call != "typed")
    assert (given[0], unread) == (first, ())
    assert given[1].text == f"two\n\n{REMINDER.text}\n\n[The user adds:]\nHurry."


def test_only_the_users_words_are_called_the_users() -> None:
    words = [Text("Hurry."), Text("Really."), REMINDER]
    for extra, added in (
        ([REMINDER], f"\n\n{REMINDER.text}"),
        (words, f"\n\n[The user adds:]\nHurry.\n\nReally.\n\n{REMINDER.text}"),
    ):
        given, _ = with_extra(RESULTS[:1], extra, lambda _: True)
        assert given[0].text == "one" + added


@pytest.mark.parametrize(
    ("extra", "waits"),
    [
        ([REMINDER], True),
        ([REMINDER, Text("Hurry.")], False),
        ([as_user_text(Message(Role.SYSTEM, (Text("x" * MAX_UNREAD_CHARS),)))], False),
    ],
    ids=["the system's", "the user's", "too many"],
)
def test_words_that_no_result_can_carry(extra: list[Text], waits: bool) -> None:
    """The system's wait, up to a limit; with others the history is sent again."""
    if waits:
        assert with_extra(RESULTS, extra, lambda _: False) == (RESULTS, extra)
        return
    with pytest.raises(GatewayError) as refused:
        with_extra(RESULTS, extra, lambda _: False)
    assert refused.value.kind is ErrorKind.TURN_GONE


def test_what_an_mcp_server_claims_of_a_tool_is_passed_on() -> None:
    """As the official client writes it; a client's own tool has nothing of the kind."""
    hints = (("readOnlyHint", False), ("destructiveHint", True))
    offer = OfferedTools().offer((ToolSpec("wipe", hints=hints), ToolSpec("look")))
    wipe, look = pb.AgentRunRequest.FromString(offer.in_run).mcp_tools.mcp_tools
    assert json.loads(wipe.annotations_json) == {"readOnlyHint": False, "destructiveHint": True}
    assert not look.HasField("annotations_json")
