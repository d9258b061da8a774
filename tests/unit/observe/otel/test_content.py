"""What a span holds for somebody who asked for content."""

import json

from caretway.core.fold import Reply
from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolResult, TurnRequest
from caretway.observe.otel.content import MAX_PARTS, MAX_TEXT_CHARS, told_content
from caretway.observe.redact import Redactor

HIDE = Redactor(["correct horse battery"]).text


def told(*messages: Message, reply: Reply | None = None) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    said, answer = told_content(TurnRequest("m", messages), reply or Reply("yes"), HIDE)
    return json.loads(said), json.loads(answer)


def test_only_what_is_new() -> None:
    said, answer = told(
        Message(Role.USER, (Text("old"),)),
        Message(Role.ASSISTANT, (ToolCall("c1", "look", "{}"),)),
        Message(Role.TOOL, (ToolResult("c1", (Text("found"),)),)),
        Message(Role.USER, (Text("and this"), Image(b"12345", "image/png"))),
    )
    assert said == [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}]},
        {
            "role": "user",
            "parts": [{"type": "text", "content": "and this"}, {"type": "text", "content": "[image/png, 5 bytes]"}],
        },
    ]
    assert answer == [{"role": "assistant", "parts": [{"type": "text", "content": "yes"}], "finish_reason": "stop"}]


def test_calls() -> None:
    call = ToolCall("c2", "look", '{"at": 1}')
    _, answer = told(Message(Role.USER, (Text("go"),)), reply=Reply(calls=(call,), paused=True))
    assert answer == [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c2", "name": "look", "arguments": '{"at": 1}'}],
            "finish_reason": "tool_call",
        }
    ]


def test_no_secret_whole_or_in_part_and_no_endless_text() -> None:
    filler = "word " * (MAX_TEXT_CHARS // 5 - 2)
    for words in ("correct horse battery", filler + "correct horse battery", filler + "sk-" + "x" * 99):
        said, _ = told(Message(Role.USER, (Text(words + " tail" * 9000),)))
        text = json.dumps(said)
        assert "horse" not in text and "xxx" not in text
        assert len(text) < MAX_TEXT_CHARS + 200
    said, _ = told(*[Message(Role.USER, (Text("a"),) * 500)] * 500)
    assert len(said) == MAX_PARTS
