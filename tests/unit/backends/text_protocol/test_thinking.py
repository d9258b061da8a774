"""Derived thinking models, and what clients see of thinking."""

import pytest

from caretway.backends.text_protocol.thinking import ThinkingMode, base_model, thinking, with_thinking
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
