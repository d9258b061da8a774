"""Which offered tool a call means, and which call a message tells of."""

import pytest

from caretway.backends.agent.snapshots import MAX_UNREAD_CHARS
from caretway.backends.agent.wire_calls import client_name, wire_ids, with_extra
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import ToolCallReady
from caretway.core.request import Message, Role, Text, ToolResult, as_user_text
from caretway.cursor.wire.messages import pb

from .stories import Story, mcp, partial

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
    for text in ('{"key": "', '{"key": "a'):
        story.hear(partial(first, "look", text, inner="i1"))
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
    assert given[1].text == f"two\n\n[The user adds:]\n{REMINDER.text}\n\nHurry."


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
