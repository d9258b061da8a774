"""When a refusal may be about the conversation that an attempt goes on with, and what is done then."""

from collections.abc import Callable

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Recovered, TurnFailed
from caretway.core.recovery import Cause
from caretway.core.request import Text, ToolResult
from unit.backends.agent.stories import Story, checkpoint, heartbeat, mcp, text


def asked(story: Story) -> Story:
    """The client has a call, and the turn is paused."""
    story.hear(mcp(1, "c1", "look"), checkpoint(b"k"))
    story.wait(1)
    return story


def answered(story: Story) -> Story:
    story.conversation.submit([ToolResult("c1", (Text("A"),))], [], story.now)
    return story


def hear(story: Story, *words: str) -> Story:
    story.hear(heartbeat(), *map(text, words))
    return story


def saved(story: Story) -> Story:
    story.hear(checkpoint(b"k"))
    return story


def dropped(story: Story) -> Story:
    story.drop()
    return story


STORIES: list[tuple[str, Callable[[Story], Story], bool]] = [
    ("a first run", lambda story: story, False),
    ("a first run with an early checkpoint", saved, False),
    ("the same run from its checkpoint", lambda story: dropped(saved(story)), True),
    ("the same, and heartbeats", lambda story: hear(dropped(saved(story))), True),
    ("the same, and words", lambda story: hear(dropped(saved(story)), "word"), False),
    ("the same run without a checkpoint", dropped, False),
    ("after results, on the same attempt", lambda story: answered(asked(story)), False),
    ("after results, on a new attempt", lambda story: dropped(answered(asked(story))), True),
]


@pytest.mark.parametrize(("name", "happened", "stale"), STORIES, ids=[row[0] for row in STORIES])
def test_may_be_stale(name: str, happened: Callable[[Story], Story], stale: bool) -> None:
    story = happened(Story("look"))
    assert story.conversation.may_be_stale is stale
    assert story.conversation.asked.continued is (stale or "and words" in name)


def test_the_history_goes_to_a_fresh_run_with_its_results() -> None:
    story = dropped(answered(asked(Story("look"))))
    story.events()
    assert story.lose(Cause.STALE) is None
    recovered, failed = story.events()
    assert recovered == Recovered("fresh run", "stale", 2)
    assert isinstance(failed, TurnFailed) and failed.error.kind is ErrorKind.TURN_GONE


def test_the_retry_budget_is_the_same_for_all_causes() -> None:
    story = saved(Story("look"))
    for _ in range(2):
        story = dropped(story)
    story.events()
    assert story.lose(Cause.STALE) is None
    (failed,) = story.events()
    assert isinstance(failed, TurnFailed) and failed.error.kind is ErrorKind.UPSTREAM_DOWN


def test_a_second_stream_without_a_message_is_the_end() -> None:
    story = Story()
    fault = GatewayError(ErrorKind.UPSTREAM_DOWN, "nothing", code="empty_stream", repeatable=False)
    retry = story.conversation.lost(Cause.UNHEARD, fault, retryable=True)
    assert retry is not None and retry.alone
    story.conversation.open(story.now)
    assert story.conversation.watch.unheard
    assert story.conversation.lost(Cause.UNHEARD, fault, retryable=True) is None
    failed = story.events()[-1]
    assert isinstance(failed, TurnFailed)
    assert (failed.error.code, failed.error.may_repeat) == ("empty_stream", False)


def test_what_a_refusal_can_be_about() -> None:
    assert not Story().conversation.asked.tools
    story = Story("look")
    assert (story.conversation.asked.tools, story.conversation.asked.heard) == (True, False)
    assert hear(story, "word").conversation.asked.heard
