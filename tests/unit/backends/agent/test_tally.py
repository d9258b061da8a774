"""What Cursor's messages tell the tally: which of them mean a model call, and what a total is."""

import pytest

from caretway.backends.agent.tally import ASSUMED, MAX_KINDS, MAX_UNSEEN, AgentTally, UnseenTokens, read_total
from caretway.core.events import RunUsage, ToolCallReady, TurnStarted, Usage, UsageReported
from caretway.core.request import Message, Role, Text, ToolChoice, ToolResult, ToolSpec, TurnRequest
from caretway.cursor.wire.messages import pb

from .stories import Story, checkpoint, ended, listed, mcp, partial, text, thinking, update

LOOK = (ToolSpec("look", "", {}),)


def asked(model: str = "auto", tools: tuple[ToolSpec, ...] = LOOK, choice: ToolChoice | None = None) -> TurnRequest:
    return TurnRequest(model, (Message(Role.USER, (Text("hi"),)),), tools=tools, tool_choice=choice or ToolChoice())


def test_a_kind_is_a_model_with_or_without_tools() -> None:
    unseen = UnseenTokens()
    assert unseen.expected(asked()) == ASSUMED
    assert unseen.expected(asked(tools=())) == unseen.expected(asked(choice=ToolChoice("none"))) == 0
    unseen.learner(asked())(17_000)
    unseen.learner(asked(tools=()))(900)
    assert [unseen.expected(asked()), unseen.expected(asked(tools=()))] == [17_000, 900]
    assert unseen.expected(asked("other")) == ASSUMED
    unseen.learner(asked())(14_000)
    assert unseen.expected(asked()) == 14_000, "the newest run tells"


def test_what_is_remembered_is_bounded() -> None:
    unseen = UnseenTokens()
    for number in range(MAX_KINDS + 1):
        unseen.learner(asked(f"model-{number}"))(number)
    assert unseen.expected(asked("model-0")) == ASSUMED, "the one that was told first"
    assert unseen.expected(asked("model-1")) == 1
    for told, kept in ((-5, 0), (10 * MAX_UNSEEN, MAX_UNSEEN)):
        unseen.learner(asked())(told)
        assert unseen.expected(asked()) == kept


def details(used: int) -> pb.ConversationTokenDetails:
    return pb.ConversationTokenDetails(used_tokens=used)


def test_only_the_first_checkpoint_shows_it() -> None:
    tally = AgentTally(1_000)
    assert tally.details(details(0)) is None, "it says nothing"
    tally.counted(40)
    assert tally.details(details(13_040)) == 12_000, "without what the model has said since"
    assert tally.details(details(15_000)) is None


def test_a_checkpoint_that_may_lack_the_results_shows_nothing() -> None:
    tally = AgentTally(1_000)
    tally.called("look", "{}")
    tally.next_response([ToolResult("c", (Text("r" * 4_000),))])
    assert tally.details(details(13_000)) is None


def tokens(count: int) -> pb.AgentServerMessage:
    return update(token_delta=pb.TokenDeltaUpdate(tokens=count))


def started(call: str) -> pb.AgentServerMessage:
    return update(tool_call_started=pb.ToolCallStartedUpdate(call_id=call))


def completed(call: str) -> pb.AgentServerMessage:
    return update(tool_call_completed=pb.ToolCallCompletedUpdate(call_id=call))


def context_asked() -> pb.AgentServerMessage:
    exec_ = pb.ExecServerMessage(id=1, request_context_args=pb.RequestContextArgs())
    return pb.AgentServerMessage(exec_server_message=exec_)


def reported(story: Story) -> list[Usage]:
    return [event.usage for event in story.events() if isinstance(event, UsageReported)]


def answer(story: Story, call: str, words: str) -> None:
    story.conversation.submit([ToolResult(call, (Text(words),))], [], story.now)


def test_a_loop_of_three_steps() -> None:
    """Each response has its own step; the run's total stands beside the last one's figures."""
    story = Story("look")
    arguments = '{"key":"' + "k" * 30 + '"}'
    story.hear(context_asked(), partial("c1", "look", arguments), listed(1), mcp(1, "c1", "look", key="k" * 30))
    (first,) = reported(story)
    assert (first.output_tokens, first.estimated) == (11, True), "name and arguments of the call: 44 characters"
    answer(story, "c1", "r" * 400)
    story.hear(completed("c1"), checkpoint(used=12_150), listed(1), mcp(2, "c2", "look"))
    assert reported(story) == [Usage(12_150, 2, estimated=True, shared_tokens=12_039)], "less the call and its result"
    answer(story, "c2", "r" * 400)
    story.hear(
        completed("c2"), checkpoint(used=12_260), thinking("hm"), text("done"), tokens(3), checkpoint(used=12_263)
    )
    story.hear(ended(input_tokens=36_400, output_tokens=20, cache_read_tokens=24_000, cache_write_tokens=0))
    total = RunUsage(36_400, 20, 24_000, 0, steps=3)
    assert reported(story) == [Usage(12_260, 3, shared_tokens=24_000 - 12_039, run=total)]


@pytest.mark.parametrize(("seconds", "shared"), [(299, 12_100), (301, None)])
def test_after_a_pause_of_five_minutes_nothing_is_taken_as_cached(seconds: float, shared: int | None) -> None:
    story = Story("look")
    story.hear(checkpoint(used=12_100), listed(1), mcp(1, "c1", "look"))
    story.events()
    story.now += seconds
    answer(story, "c1", "r" * 400)
    story.hear(completed("c1"), checkpoint(used=12_210), listed(1), mcp(2, "c2", "look"))
    assert reported(story) == [Usage(12_210, 2, estimated=True, shared_tokens=shared)]


def test_a_run_that_only_asked_for_its_context_is_one_call() -> None:
    story = Story("look")
    story.hear(
        context_asked(), text("hi"), tokens(1), checkpoint(used=12_010), ended(input_tokens=12_009, output_tokens=1)
    )
    assert reported(story) == [Usage(12_009, 1, run=RunUsage(12_009, 1))]


def test_a_tool_of_the_servers_own_makes_it_two() -> None:
    story = Story()
    story.hear(started("s1"), completed("s1"), checkpoint(used=12_500), text("hi"), tokens(1))
    story.hear(ended(input_tokens=24_600, output_tokens=9))
    assert reported(story) == [Usage(12_500, 1, estimated=True, run=RunUsage(24_600, 9, steps=2))]


def test_a_question_to_the_user_makes_it_two() -> None:
    story = Story()
    query = pb.InteractionQuery(id=1, web_search_request_query=pb.WebSearchRequestQuery())
    story.hear(pb.AgentServerMessage(interaction_query=query), text("hi"), ended(input_tokens=24_600, output_tokens=9))
    (usage,) = reported(story)
    assert usage.run == RunUsage(24_600, 9, steps=2)
    assert usage.input_tokens == 12_300, "the average call, for want of a checkpoint"


def test_after_a_lost_attempt_the_total_is_not_all() -> None:
    story = Story()
    story.hear(text("one "), tokens(1))
    story.drop()
    story.hear(text("one "), tokens(1), text("two"), tokens(1), checkpoint(used=12_003))
    story.hear(ended(input_tokens=12_001, output_tokens=2))
    assert reported(story) == [Usage(12_001, 2, estimated=True, run=RunUsage(12_001, 2, complete=False))]


def test_a_call_that_had_to_wait_is_output_of_its_own_response() -> None:
    story = Story("a", "b", parallel=False)
    story.hear(listed(2), mcp(1, "c1", "a", x="1" * 20), mcp(2, "c2", "b", x="1" * 40))
    (first,) = reported(story)
    answer(story, "c1", "")
    events = story.events()
    assert events[0] == TurnStarted((first.input_tokens or 0) + (first.output_tokens or 0))
    assert [event.id for event in events if isinstance(event, ToolCallReady)] == ["c2"]
    (second,) = [event.usage for event in events if isinstance(event, UsageReported)]
    assert (first.output_tokens, second.output_tokens) == (8, 13)


def test_the_window_is_the_last_one_that_was_told() -> None:
    tally = AgentTally(60_000)
    assert not tally.fills_window
    for window in (100_000, 0):
        state = pb.ConversationStateStructure()
        state.token_details.max_tokens = window
        tally.details(state.token_details)
    assert tally.fills_window


def test_totals() -> None:
    assert read_total(pb.TurnEndedUpdate()) is None
    assert read_total(pb.TurnEndedUpdate(output_tokens=3)) == RunUsage(None, 3)
    assert read_total(pb.TurnEndedUpdate(input_tokens=0, output_tokens=0, cache_read_tokens=0)) == RunUsage(0, 0, 0)


MONEY = [(1.25, 0.5, 1.25, 0.5), (0.0, 0.0, 0.0, 0.0), (float("nan"), float("inf"), None, None), (-1.0, 2.0, None, 2.0)]


@pytest.mark.parametrize(("raw", "charged", "cents", "charged_cents"), MONEY)
def test_what_cursor_says_a_run_costs(
    raw: float, charged: float, cents: float | None, charged_cents: float | None
) -> None:
    cost = pb.EstimatedCost(raw_cost_cents=raw, charged_cents=charged)
    told = read_total(pb.TurnEndedUpdate(input_tokens=1, estimated_cost=cost))
    assert told == RunUsage(1, cents=cents, charged_cents=charged_cents)
