"""What bench/load.py asks and reads where a peer speaks the Messages API."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CALL = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"key": "k"}'}}
USED = {"type": "tool_use", "id": "call_1", "name": "lookup", "input": {"key": "k"}}
RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": "found"}
SCHEMA = {"type": "object", "properties": {}}
MESSAGES_STREAM = (
    'event: message_start\ndata: {"type":"message_start","message":{"content":[]}}\n\n'
    'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"one "}}\n\n'
    'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"two"}}\n\n'
    'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.load")


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}),
        ({"role": "assistant", "content": "ok"}, {"role": "assistant", "content": "ok"}),
        ({"role": "assistant", "tool_calls": [CALL]}, {"role": "assistant", "content": [USED]}),
        (
            {"role": "assistant", "content": "ok", "tool_calls": [CALL]},
            {"role": "assistant", "content": [{"type": "text", "text": "ok"}, USED]},
        ),
        ({"role": "tool", "tool_call_id": "call_1", "content": "found"}, {"role": "user", "content": [RESULT]}),
    ],
)
def test_a_message(load: Any, said: dict[str, Any], asked: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "messages": [said], "stream": True}).encode()
    assert json.loads(load.messages.as_messages(body, "there/m")) == {
        "model": "there/m",
        "max_tokens": load.messages.MAX_TOKENS,
        "messages": [asked],
        "stream": True,
    }


def test_instructions_and_tools(load: Any) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    function = {"name": "lookup", "description": "Looks up.", "parameters": SCHEMA}
    tools = [{"type": "function", "function": function}]
    body = json.dumps({"model": "m", "messages": talk, "tools": tools, "stream": False}).encode()
    asked = json.loads(load.messages.as_messages(body, "m"))
    assert asked["system"] == "Be brief."
    assert asked["messages"] == [{"role": "user", "content": "hi"}]
    assert asked["tools"] == [{"name": "lookup", "description": "Looks up.", "input_schema": SCHEMA}]


@pytest.mark.parametrize(("model", "path"), [("", "/v1/chat/completions"), ("there/m", "/v1/messages")])
def test_the_route_of_a_target(load: Any, model: str, path: str) -> None:
    body = load.chat(load.Order(), stream=True)
    head = load.Address(1, key="sk-own", messages_model=model).request(body).partition(b"\r\n\r\n")[0].decode()
    assert head.startswith(f"POST {path} HTTP/1.1\r\n")
    assert "authorization: Bearer sk-own" in head


@pytest.mark.parametrize(
    ("stream", "body"),
    [
        (False, '{"choices":[{"message":{"content":"one two"}}]}'),
        (False, '{"content":[{"type":"text","text":"one "},{"type":"text","text":"two"}]}'),
        (True, 'data: {"choices":[{"delta":{"content":"one "}}]}\n\ndata: {"choices":[{"delta":{"content":"two"}}]}\n'),
        (True, MESSAGES_STREAM),
    ],
)
def test_the_text_of_an_answer(load: Any, stream: bool, body: str) -> None:
    assert load.Answer(0.0, raw=b"HTTP/1.1 200 OK\r\n\r\n" + body.encode()).text(stream=stream) == "one two"
