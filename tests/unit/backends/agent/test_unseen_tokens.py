"""What Cursor puts before a prompt: assumed, learned by kind of run, bounded."""

from caretway.backends.agent.tally import AgentTally
from caretway.backends.agent.unseen_tokens import ASSUMED, MAX_KINDS, MAX_UNSEEN, UnseenTokens
from caretway.core.request import Message, Role, Text, ToolChoice, ToolResult, ToolSpec, TurnRequest
from caretway.cursor.wire.messages import pb

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
