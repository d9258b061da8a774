"""Derived thinking models, and what clients see of thinking."""

import pytest

from caretway.backends.text_protocol.parser import MAX_THOUGHTS
from caretway.backends.text_protocol.thinking import (
    HideThinking,
    ThinkingMode,
    ThinkTags,
    base_model,
    thinking,
    unclosed,
    with_thinking,
)
from caretway.core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from caretway.core.events import Usage as Tokens
from caretway.core.request import TurnRequest
from caretway.core.turn import ModelInfo

CASES = [
    ("plain words", "plain words", ""),
    ("<think>hm</think>\n\nanswer", "answer", "hm"),
    ("<thinking>hm</thinking>answer", "answer", "hm"),
    ("\n<think>hm</think> answer <think>no</think>", "\nanswer <think>no</think>", "hm"),
    ("<b>bold</b> <think>no</think>", "<b>bold</b> <think>no</think>", ""),
    ("<thin air", "<thin air", ""),
    ("<think>never closed", "", "never closed"),
    ("<", "<", ""),
    ("   ", "   ", ""),
    ("", "", ""),
]


def told(events: list[Event]) -> tuple[str, str]:
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, "".join(event.text for event in events if isinstance(event, ReasoningDelta))


@pytest.mark.seed("H03")
@pytest.mark.parametrize(("said", "text", "thought"), CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_tags(said: str, text: str, thought: str, size: int) -> None:
    stage = ThinkTags()
    events: list[Event] = [TurnStarted(0)]
    for at in range(0, len(said), size):
        events += stage.feed(TextDelta(said[at : at + size]))
    events += stage.feed(TurnEnded())
    assert told(events) == (text, thought)
    assert isinstance(events[-1], TurnEnded)


@pytest.mark.seed("F21")
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_an_answer_that_ends_inside_its_thinking_is_not_hidden(size: int) -> None:
    """FT3: 200 and an empty answer."""
    tags, hide = ThinkTags(), HideThinking()
    said = "<think>a</think><thinking>never closed"
    fed: list[Event] = [*(TextDelta(said[at : at + size]) for at in range(0, len(said), size)), TurnEnded()]
    events = [shown for event in fed for told_ in tags.feed(event) for shown in hide.feed(told_)]
    assert told(events) == ("anever closed", "")
    assert events[-2] == unclosed()


def test_thinking_that_leads_to_a_call_stays_hidden() -> None:
    tags, hide = ThinkTags(), HideThinking()
    fed: list[Event] = [TextDelta("<think>call it"), ToolCallStarted("1", "look"), TurnEnded()]
    events = [shown for event in fed for told_ in tags.feed(event) for shown in hide.feed(told_)]
    assert told(events) == ("", "")


def test_it_has_nothing_to_do_behind_the_first_word() -> None:
    stage = ThinkTags()
    stage.feed(TextDelta("Hello"))
    assert stage.spent
    stage = ThinkTags()
    stage.feed(TextDelta("<think>a</think>b"))
    assert stage.spent
    assert not ThinkTags().spent


def test_what_is_held_back_comes_before_a_call() -> None:
    stage = ThinkTags()
    assert stage.feed(TextDelta("<thi")) == []
    call = ToolCallStarted("call_1", "look")
    assert stage.feed(call) == [TextDelta("<thi"), call]


@pytest.mark.parametrize(("block", "thought"), [("<think>a</think>", "a"), ("<thinking></thinking>", "")])
@pytest.mark.parametrize("size", [5, 16384])
def test_thoughts_without_end_become_text(block: str, thought: str, size: int) -> None:
    """What a slow client has not read yet is worked on in one go: an event for each tag would hold every stream."""
    said = block * (MAX_THOUGHTS + 100)
    stage, events = ThinkTags(), list[Event]()
    for at in range(0, len(said), size):
        delta = TextDelta(said[at : at + size])
        events += [delta] if stage.spent else stage.feed(delta)
    assert stage.spent
    assert told(events) == (block * 100, thought * MAX_THOUGHTS)


@pytest.mark.seed("H04")
def test_every_base_model_gets_a_thinking_variant_unless_it_has_one() -> None:
    listed = [
        ModelInfo("plain", "Plain", aliases=("p",)),
        ModelInfo("native", reasoning=True),
        ModelInfo("both"),
        ModelInfo("both-thinking"),
        ModelInfo("max"),
        ModelInfo("max-thinking-high"),
    ]
    offered = with_thinking(listed)
    new = ["plain", "plain-thinking", "native", "both", "both-thinking", "max", "max-thinking-high"]
    assert [model.id for model in offered] == new
    derived = offered[1]
    assert (derived.name, derived.aliases, derived.reasoning) == ("Plain (thinking)", ("p-thinking",), True)
    assert with_thinking(offered) == offered  # never twice


@pytest.mark.seed("N08")
@pytest.mark.parametrize(
    ("model", "base", "asked"),
    [("plain", "plain", False), ("plain-thinking", "plain", True), ("own-thinking", "own-thinking", False)],
)
def test_a_thinking_model_is_its_base_model_upstream(model: str, base: str, asked: bool) -> None:
    assert base_model(model, frozenset({"plain", "own-thinking"})) == (base, asked)


SAID: list[Event] = [
    TurnStarted(),
    ReasoningDelta("a"),
    UsageReported(Tokens(1)),
    ReasoningDelta("b"),
    TextDelta("c"),
    ReasoningDelta("d"),
    ToolCallStarted("1", "t"),
    ReasoningDelta("e"),
    TurnEnded(),
]


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("hide", [TurnStarted(), UsageReported(Tokens(1)), TextDelta("c"), ToolCallStarted("1", "t"), TurnEnded()]),
        (
            "inline",
            [
                TurnStarted(),
                TextDelta("<think>a"),
                UsageReported(Tokens(1)),
                TextDelta("b"),
                TextDelta("</think>\n\n"),
                TextDelta("c"),
                TextDelta("<think>d"),
                TextDelta("</think>\n\n"),
                ToolCallStarted("1", "t"),
                TextDelta("<think>e"),
                TextDelta("</think>\n\n"),
                TurnEnded(),
            ],
        ),
    ],
)
def test_what_clients_see(mode: ThinkingMode, shown: list[Event]) -> None:
    stage = thinking(mode)(TurnRequest("m", ()))
    assert stage is not None
    assert [event for said in SAID for event in stage.feed(said)] == shown


def test_visible_thinking_needs_no_stage() -> None:
    assert thinking("visible")(TurnRequest("m", ())) is None
