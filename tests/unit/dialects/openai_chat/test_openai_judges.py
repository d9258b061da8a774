"""OpenAI's own library as a foreign judge: its models and its stream accumulator read our bytes. No sockets."""

from typing import Any

import msgspec
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from caretway.core.events import (
    Event,
    ReasoningDelta,
    RunUsage,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.fold import fold
from caretway.core.request import TurnRequest
from caretway.dialects import ResponseMeta
from caretway.dialects.openai_chat import OpenAIChat

OPENAI_CHAT = OpenAIChat()

META = ResponseMeta(id="abc", created=1_700_000_000, model="m")
REQUEST = TurnRequest("m", (), include_usage=True)
USAGE = UsageReported(
    Usage(10, 5, cache_read_tokens=4, reasoning_tokens=2, estimated=True, run=RunUsage(40, 9, steps=3))
)

TURNS: dict[str, list[Event]] = {
    "text": [TurnStarted(), ReasoningDelta("hm"), TextDelta("PO"), TextDelta("NG"), USAGE, TurnEnded()],
    "calls": [
        TurnStarted(),
        TextDelta("wait"),
        ToolCallStarted("call_a", "shell"),
        ToolCallDelta("call_a", '{"command": '),
        ToolCallReady("call_a", "shell", '{"command": "ls"}'),
        ToolCallStarted("call_b", "shell"),
        ToolCallReady("call_b", "shell", "{}"),
        USAGE,
        TurnPaused(),
    ],
}


def payloads(raw: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in raw.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [msgspec.json.decode(line) for line in lines]


@pytest.mark.parametrize("name", TURNS)
def test_strict_models_accept_both_forms(name: str) -> None:
    for payload in payloads(OPENAI_CHAT.encoder(REQUEST, META).feed(TURNS[name])):
        ChatCompletionChunk.model_validate(payload)
    ChatCompletion.model_validate_json(OPENAI_CHAT.render(fold(TURNS[name]), REQUEST, META))


@pytest.mark.parametrize("name", TURNS)
def test_their_accumulator_rebuilds_the_answer(name: str) -> None:
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    seen: list[str] = []
    for payload in payloads(OPENAI_CHAT.encoder(REQUEST, META).feed(TURNS[name])):
        seen += [event.type for event in state.handle_chunk(ChatCompletionChunk.model_validate(payload))]
    rebuilt = state.get_final_completion()
    answer = ChatCompletion.model_validate_json(OPENAI_CHAT.render(fold(TURNS[name]), REQUEST, META))
    mine, theirs = answer.choices[0], rebuilt.choices[0]
    assert theirs.finish_reason == mine.finish_reason
    assert theirs.message.content == mine.message.content
    assert [
        (call.id, call.type, call.function.name, call.function.arguments) for call in theirs.message.tool_calls or []
    ] == [(call.id, "function", call.name, call.arguments) for call in fold(TURNS[name]).calls]
    assert rebuilt.usage == answer.usage
    assert ("tool_calls.function.arguments.done" in seen) == (name == "calls")
