"""What a chat request becomes. Tables: a body's difference from the smallest one -> the difference in the request."""

import base64
from typing import Any

import pytest

from caretway.core.request import (
    Image,
    Message,
    OutputFormat,
    Reasoning,
    Role,
    SessionMode,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    TurnRequest,
)
from caretway.dialects.fields import MAX_LISTED
from caretway.dialects.openai_chat import OpenAIChat

OPENAI_CHAT = OpenAIChat()

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
SHELL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
READ = {"type": "function", "function": {"name": "read", "description": "reads", "strict": True}}


def request(headers: dict[str, str] | None = None, **fields: Any) -> TurnRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    return OPENAI_CHAT.decode(body, headers or {})


def one(message: dict[str, Any]) -> Message:
    (message_read,) = request(messages=[message]).messages
    return message_read


@pytest.mark.seed("B13")
def test_smallest_request() -> None:
    assert request() == TurnRequest("m", (Message(Role.USER, (Text("hi"),)),))


def user(*parts: Text | Image) -> Message:
    return Message(Role.USER, parts)


CALL = {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
BARE_CALL = {"id": "call_1", "function": {"name": "shell"}}

MESSAGES: list[tuple[dict[str, Any], Message]] = [
    ({"role": "system", "content": "be brief"}, Message(Role.SYSTEM, (Text("be brief"),))),
    ({"role": "developer", "content": "be brief"}, Message(Role.SYSTEM, (Text("be brief"),))),
    ({"role": "system", "content": [{"type": "text", "text": "a"}]}, Message(Role.SYSTEM, (Text("a"),))),
    ({"role": "user", "content": "hi", "name": "Ann"}, user(Text("hi"))),
    ({"role": "user", "content": ""}, user()),
    ({"role": "user", "content": None}, user()),
    ({"role": "user"}, user()),
    ({"role": "user", "content": []}, user()),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]},
        user(Text("a")),
    ),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG_URL}}]},
        user(Image(PNG, "image/png")),
    ),
    ({"role": "user", "content": [{"type": "image_url", "image_url": PNG_URL}]}, user(Image(PNG, "image/png"))),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "DATA:image/JPG;x=y;base64,AAAA"}}]},
        user(Image(b"\0\0\0", "image/jpeg")),
    ),
    ({"role": "assistant", "content": "yes"}, Message(Role.ASSISTANT, (Text("yes"),))),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        Message(Role.ASSISTANT, (Text("no"),)),
    ),
    ({"role": "assistant", "content": None, "refusal": "no"}, Message(Role.ASSISTANT, (Text("no"),))),
    (
        {"role": "assistant", "content": "yes", "reasoning_content": "hm", "tool_calls": [CALL]},
        Message(Role.ASSISTANT, (Reasoning("hm"), Text("yes"), ToolCall("call_1", "shell", '{"command": "ls"}'))),
    ),
    (
        {"role": "assistant", "tool_calls": [BARE_CALL], "annotations": []},
        Message(Role.ASSISTANT, (ToolCall("call_1", "shell", "{}"),)),
    ),
    (
        {"role": "assistant", "content": "", "tool_calls": [{**CALL, "function": {"name": "shell", "arguments": ""}}]},
        Message(Role.ASSISTANT, (ToolCall("call_1", "shell", "{}"),)),
    ),
    (
        {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "shell", "arguments": "not json {"}}]},
        Message(Role.ASSISTANT, (ToolCall("call_1", "shell", "not json {"),)),
    ),
    ({"role": "assistant", "content": "", "tool_calls": []}, Message(Role.ASSISTANT, ())),
    (
        {"role": "tool", "tool_call_id": "call_1", "content": "out", "name": "shell"},
        Message(Role.TOOL, (ToolResult("call_1", (Text("out"),)),)),
    ),
    (
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": [{"type": "text", "text": "out"}, {"type": "image_url", "image_url": {"url": PNG_URL}}],
        },
        Message(Role.TOOL, (ToolResult("call_1", (Text("out"), Image(PNG, "image/png"))),)),
    ),
    ({"role": "tool", "tool_call_id": "call_1"}, Message(Role.TOOL, (ToolResult("call_1", ()),))),
]


@pytest.mark.seed("B15")
@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_message(message: dict[str, Any], expected: Message) -> None:
    assert one(message) == expected


def test_legacy_functions_become_tools_with_ids() -> None:
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "function", "name": "f", "content": "one"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
        {"role": "function", "name": "f", "content": "two"},
    ]
    read = request(messages=history, functions=[{"name": "f"}], function_call={"name": "f"})
    assert read.tools == (ToolSpec("f"),)
    assert read.tool_choice == ToolChoice("named", "f", parallel=False)
    assert [message.parts for message in read.messages[1:]] == [
        (ToolCall("function_1", "f", '{"a":1}'),),
        (ToolResult("function_1", (Text("one"),)),),
        (ToolCall("function_2", "f", "{}"),),
        (ToolResult("function_2", (Text("two"),)),),
    ]
    assert request(functions=[{"name": "f"}]).tool_choice == ToolChoice(parallel=False)
    assert request(functions=[{"name": "f"}], function_call="none").tool_choice.mode == "none"


@pytest.mark.seed("B16")
def test_tools() -> None:
    assert request(tools=[SHELL, READ]).tools == (ToolSpec("shell", "", {"type": "object"}), ToolSpec("read", "reads"))
    assert request(tools=[]).tools == request(tools=None).tools == ()
    name = "mcp:files/read.text-v2" + "x" * 106
    assert request(tools=[{"type": "function", "function": {"name": name}}]).tools[0].name == name


CHOICES: list[tuple[dict[str, Any], ToolChoice]] = [
    ({}, ToolChoice()),
    ({"tool_choice": "auto"}, ToolChoice()),
    ({"tool_choice": "none"}, ToolChoice("none")),
    ({"tool_choice": "required"}, ToolChoice("required")),
    ({"tool_choice": {"type": "function", "function": {"name": "read"}}}, ToolChoice("named", "read")),
    ({"parallel_tool_calls": True}, ToolChoice()),
    ({"parallel_tool_calls": False}, ToolChoice(parallel=False)),
    ({"parallel_tool_calls": False, "tool_choice": "required"}, ToolChoice("required", parallel=False)),
]


@pytest.mark.seed("B16")
@pytest.mark.parametrize(("fields", "expected"), CHOICES)
def test_tool_choice(fields: dict[str, Any], expected: ToolChoice) -> None:
    assert request(tools=[SHELL, READ], **fields).tool_choice == expected


def test_tool_choice_without_tools_is_harmless_when_it_demands_nothing() -> None:
    assert request(tool_choice="auto").tool_choice == ToolChoice()
    assert request(tool_choice="none").tool_choice == ToolChoice("none")


def test_allowed_tools_restrict_what_is_passed_on() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "read"}}]}
    read = request(tools=[SHELL, READ], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [tool.name for tool in read.tools] == ["read"]
    assert read.tool_choice == ToolChoice("required")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ("END", ("END",)),
        ("", ()),
        (["a", "", "b", "a"], ("a", "b")),
        ([str(i) for i in range(16)], tuple(str(i) for i in range(16))),
    ],
)
def test_stop(value: object, expected: tuple[str, ...]) -> None:
    assert request(stop=value).stop == expected


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat()),
        (
            {"type": "json_schema", "json_schema": {"name": "Ev", "schema": SCHEMA, "strict": True}},
            OutputFormat("Ev", SCHEMA),
        ),
        ({"type": "json_schema", "json_schema": {"name": "Ev"}}, OutputFormat("Ev")),
    ],
)
def test_response_format(value: object, expected: OutputFormat | None) -> None:
    assert request(response_format=value).output_format == expected


def test_effort() -> None:
    assert request().effort is None
    assert request(reasoning_effort="low").effort == "low"
    assert request(reasoning={"effort": "high"}).effort == "high"
    both = request(reasoning_effort="low", reasoning={"effort": "high", "max_tokens": 9, "exclude": None})
    assert both.effort == "low"
    assert both.ignored == ("reasoning.max_tokens",)


def test_streaming_and_usage() -> None:
    read = request(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert (read.stream, read.include_usage, read.ignored) == (True, True, ())
    assert request(stream=None, stream_options=None).stream is False
    assert request(stream=True, stream_options={}).include_usage is False


@pytest.mark.parametrize("mode", list(SessionMode))
def test_session_header(mode: SessionMode) -> None:
    assert request({"x-caretway-session": f" {mode.value.upper()} "}).session is mode


def test_workspace_header() -> None:
    assert request({"x-caretway-workspace": " /srv/project "}).workspace == "/srv/project"
    assert request({"x-caretway-workspace": " "}).workspace is None
    assert request().session is None


IGNORED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"max_tokens": 5}, ("max_tokens",)),
    ({"max_completion_tokens": 5}, ("max_completion_tokens",)),
    ({"temperature": 0}, ("temperature",)),
    ({"temperature": 1}, ()),
    ({"temperature": 1.0, "top_p": 1.0}, ()),
    ({"top_p": 0.5}, ("top_p",)),
    ({"seed": 0}, ("seed",)),
    ({"frequency_penalty": 0, "presence_penalty": 0.0}, ()),
    ({"frequency_penalty": 0.1, "presence_penalty": -1}, ("frequency_penalty", "presence_penalty")),
    ({"logit_bias": {}}, ()),
    ({"logit_bias": {"50256": -100}}, ("logit_bias",)),
    ({"logprobs": False, "top_logprobs": 0}, ()),
    ({"logprobs": True, "top_logprobs": 2}, ("logprobs", "top_logprobs")),
    ({"service_tier": "auto"}, ()),
    ({"service_tier": "default"}, ()),
    ({"service_tier": "flex"}, ("service_tier",)),
    ({"store": False}, ()),
    ({"store": True}, ("store",)),
    ({"prediction": {"type": "content", "content": "x"}}, ("prediction",)),
    ({"verbosity": "medium"}, ()),
    ({"verbosity": "low"}, ("verbosity",)),
    ({"modalities": ["text"]}, ()),
    ({"web_search_options": {}}, ("web_search_options",)),
    ({"user": "u", "metadata": {"k": "v"}, "prompt_cache_key": "k", "safety_identifier": "s", "n": 1}, ()),
    ({"top_k": 40, "my_field": {"a": 1}, "nothing": None}, ("top_k", "my_field")),
    ({"bad\r\nx-header: 1": 1}, ("(unprintable)",)),
    ({"messages": [{"role": "user", "content": "hi", "name": "Ann"}]}, ("messages.name",)),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": PNG_URL, "detail": detail}}],
                }
                for detail in ("auto", "high", "low")
            ]
        },
        ("image_url.detail",),
    ),
]


@pytest.mark.parametrize(("fields", "expected"), IGNORED)
def test_ignored(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert request(**fields).ignored == expected


def test_every_idle_field_is_ignored_when_null() -> None:
    nulls = dict.fromkeys(["max_tokens", "temperature", "seed", "store", "logit_bias", "stop", "n", "tools", "user"])
    assert request(**nulls) == request()


def test_the_list_of_unknown_fields_is_bounded() -> None:
    ignored = request({}, **{f"x{i}": 1 for i in range(1000)}).ignored
    assert len(ignored) == MAX_LISTED + 1
    assert ignored[-1] == f"(and {1000 - MAX_LISTED} more)"
