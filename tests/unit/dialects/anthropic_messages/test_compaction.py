"""A summary in place of an answer, and what of `context_management` has an effect."""

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.fold import fold
from caretway.core.request import TurnRequest
from caretway.dialects import ResponseMeta
from caretway.dialects.anthropic_messages import AnthropicMessages
from caretway.dialects.fields import ASK

ANTHROPIC_MESSAGES = AnthropicMessages()

META = ResponseMeta("1" * 32, 1_700_000_000, "sim-auto")
SUMMARY = "We deploy on Friday – vielleicht 明日."
COMPACT = "compact_20260112"
TOOL = {"name": "bash", "input_schema": {"type": "object"}}


def asked(**fields: object) -> TurnRequest:
    body = {"model": "m", "max_tokens": 9, "tools": [TOOL], "messages": [{"role": "user", "content": "Deploy it."}]}
    return ANTHROPIC_MESSAGES.decode(body | fields, {})


def edits(*edits: dict[str, object]) -> dict[str, object]:
    return {"context_management": {"edits": list(edits)}}


def paused(tokens: int | None = None, **more: object) -> dict[str, object]:
    trigger = {} if tokens is None else {"trigger": {"type": "input_tokens", "value": tokens}}
    return {"type": COMPACT, "pause_after_compaction": True, **trigger, **more}


# what is sent, the words that ask for a summary, what is named as ignored
WISHES: list[tuple[dict[str, object], str, tuple[str, ...]]] = [
    ({}, "", ()),
    ({"compaction": {"type": "summarize"}}, ASK, ()),
    ({"compaction": {"type": "summarize", "instructions": " "}}, ASK, ()),
    ({"compaction": {"type": "summarize", "instructions": "In one line."}}, "In one line.", ()),
    (edits(paused(2)), ASK, ()),
    (edits(paused(2, instructions="Short.")), "Short.", ()),
    (edits(paused(2000)), "", ()),
    (edits(paused()), "", ()),
    (edits({"type": COMPACT}), "", (f"context_management.{COMPACT}",)),
    (edits({"type": "clear_thinking_20251015", "keep": "all"}), "", ()),
    (edits({"type": "clear_tool_uses_20250919"}), "", ("context_management.clear_tool_uses_20250919",)),
    (edits({"type": "new"}, {"type": "clear_thinking_20251015"}), "", ("context_management.new",)),
    ({"context_management": {}}, "", ()),
    ({"context_management": None, "compaction": None}, "", ()),
]


@pytest.mark.parametrize(("fields", "words", "ignored"), WISHES)
def test_what_is_wanted(fields: dict[str, object], words: str, ignored: tuple[str, ...]) -> None:
    request = asked(**fields)
    said = [message.text for message in request.messages]
    assert said == ["Deploy it.", words] if words else said == ["Deploy it."]
    assert [tool.name for tool in request.tools] == ([] if words else ["bash"])
    assert request.ignored == ignored
    assert request.max_output == (None if words else 9), "a summary is not cut"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"compaction": {"type": "shrink"}}, "compaction.type"),
        ({"compaction": "yes"}, "compaction"),
        ({"context_management": []}, "context_management"),
        ({"context_management": {"edits": 1}}, "context_management.edits"),
        (edits({}), "context_management.edits[0].type"),
        (edits(paused(trigger={"value": "2"})), "context_management.edits[0].trigger.value"),
    ],
)
def test_a_mistake_is_named(fields: dict[str, object], param: str) -> None:
    with pytest.raises(GatewayError) as caught:
        asked(**fields)
    assert str(caught.value.param) == param


def streamed(*events: Event) -> list[dict[str, Any]]:
    encoder = ANTHROPIC_MESSAGES.encoder(asked(compaction={"type": "summarize"}), META)
    text = b"".join(encoder.feed([event]) for event in (TurnStarted(), *events)).decode()
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]


def test_the_stream_is_one_block() -> None:
    told = streamed(ReasoningDelta("hm"), TextDelta(SUMMARY[:9]), TextDelta(SUMMARY[9:]), TurnEnded())
    assert [event["type"] for event in told] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert told[1]["content_block"] == {"type": "compaction", "content": None}
    assert told[2]["delta"] == {"type": "compaction_delta", "content": SUMMARY}
    assert told[4]["delta"] == {"stop_reason": "compaction", "stop_sequence": None}


def test_the_whole_answer_says_the_same() -> None:
    events: list[Event] = [TurnStarted(), TextDelta(SUMMARY), UsageReported(Usage(900, 12, 800, 5, 3)), TurnEnded()]
    body = json.loads(ANTHROPIC_MESSAGES.render(fold(events), asked(compaction={"type": "summarize"}), META))
    read = BetaMessage.model_validate(body)
    assert (read.stop_reason, read.content[0].type) == ("compaction", "compaction")
    assert body["content"] == [{"type": "compaction", "content": SUMMARY}]


def test_no_summary_is_an_error() -> None:
    assert streamed(TextDelta("  "), TurnEnded())[-1]["error"]["message"].startswith("The model wrote no summary.")
    with pytest.raises(GatewayError, match="wrote no summary"):
        ANTHROPIC_MESSAGES.render(fold([TurnStarted(), TurnEnded()]), asked(compaction={"type": "summarize"}), META)


def test_a_failure_is_told() -> None:
    told = streamed(TextDelta("half"), TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "gone")))
    assert [event["type"] for event in told] == ["message_start", "error"]
