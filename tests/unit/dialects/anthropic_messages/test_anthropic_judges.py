"""Anthropic's own library as a foreign judge: its models and its stream accumulators read our bytes. No sockets."""

from typing import Any

import httpx2
import msgspec
import pytest
from anthropic.lib.streaming._beta_messages import accumulate_event as accumulate_beta
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

from caretway.core.fold import fold
from caretway.dialects.anthropic_messages import AnthropicMessages

from .test_encode import META, TURNS

ANTHROPIC_MESSAGES = AnthropicMessages()

EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
BETA_EVENT: TypeAdapter[BetaRawMessageStreamEvent] = TypeAdapter(BetaRawMessageStreamEvent)


def payloads(name: str) -> list[Any]:
    events, request, _ = TURNS[name]
    raw = ANTHROPIC_MESSAGES.encoder(request, META).feed(events).decode()
    return [msgspec.json.decode(piece.split("\ndata: ")[1]) for piece in raw.split("\n\n") if piece]


def answer(name: str) -> bytes:
    events, request, _ = TURNS[name]
    return ANTHROPIC_MESSAGES.render(fold(events), request, META)


@pytest.mark.parametrize("name", TURNS)
def test_their_accumulator_rebuilds_the_answer(name: str) -> None:
    rebuilt: Any = None
    buffers: dict[int, bytes] = {}
    for payload in payloads(name):
        rebuilt = accumulate_event(event=EVENT.validate_python(payload), current_snapshot=rebuilt, json_bufs=buffers)
    message = Message.model_validate_json(answer(name))
    assert said(rebuilt) == said(message)


@pytest.mark.parametrize("name", TURNS)
def test_the_beta_accumulator_too(name: str) -> None:
    rebuilt: Any = None
    buffers: dict[int, bytes] = {}
    for payload in payloads(name):
        rebuilt = accumulate_beta(
            event=BETA_EVENT.validate_python(payload),
            current_snapshot=rebuilt,
            json_bufs=buffers,
            request_headers=httpx2.Headers(),
        )
    message = BetaMessage.model_validate_json(answer(name))
    assert said(rebuilt) == said(message)


def said(message: Any) -> dict[str, Any]:
    """What both forms must agree on: everything but the gateway's own additions and the accumulator's."""
    dumped: dict[str, Any] = message.to_dict(mode="json")
    dumped["usage"] = {key: value for key, value in dumped["usage"].items() if key not in ("estimated", "caretway")}
    dumped["content"] = [
        {key: value for key, value in block.items() if value is not None} for block in dumped["content"]
    ]
    return {key: value for key, value in dumped.items() if value is not None and key != "caretway"}
