"""Calls with more arguments than can be worked on: the model hears of it and goes on."""

from caretway.backends.agent.oversized import MAX_OVERSIZED
from caretway.core.errors import ErrorKind
from caretway.core.events import TextDelta, ToolCallReady, TurnEnded, TurnFailed, TurnPaused
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
