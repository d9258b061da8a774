"""Responses requests -> TurnRequest: items, tools, the fields around them, and what an earlier response adds."""

from typing import Any

import msgspec
import pytest

from caretway.core.errors import GatewayError
from caretway.core.fold import Reply
from caretway.core.request import (
    Message,
    OutputFormat,
    Part,
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
from caretway.dialects import Dialect, ResponseMeta
from caretway.dialects.fields import MAX_LISTED
from caretway.dialects.openai_chat import OpenAIChat
from caretway.dialects.openai_responses import ResponseStore, openai_responses
from caretway.sessions.transcript import fingerprint, tools_key

OPENAI_CHAT = OpenAIChat()

SHELL = {"type": "function", "name": "shell", "description": "runs", "parameters": {"type": "object"}}


def decode(headers: dict[str, str] | None = None, **body: Any) -> TurnRequest:
    return openai_responses(ResponseStore()).decode({"model": "m", "input": "hi", **body}, headers or {})


def message(role: Role, *parts: Part | str) -> Message:
    return Message(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


# ---- items

ITEMS: dict[str, tuple[object, list[Message]]] = {
    "a string": ("hi", [message(Role.USER, "hi")]),
    "what one agent tells another": (
        [
            {"type": "function_call", "call_id": "a", "name": "spawn", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {
                "type": "agent_message",
                "author": "/agent",
                "recipient": "/agent/child",
                "content": [
                    {"type": "input_text", "text": "Sender: /agent\n"},
                    {"type": "encrypted_content", "encrypted_content": "Count."},
                ],
            },
        ],
        [
            message(Role.ASSISTANT, ToolCall("a", "spawn", "{}")),
            message(Role.TOOL, ToolResult("a", (Text("1"),))),
            message(Role.USER, "Sender: /agent\n", "Count."),
        ],
    ),
    "a tool search of the client": (
        [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
            {"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {"query": "x"}},
            {
                "type": "tool_search_output",
                "call_id": "a",
                "execution": "client",
                "tools": [{"type": "namespace", "name": "crm", "tools": [SHELL, {"type": "custom", "name": "patch"}]}],
            },
            {"type": "tool_search_call", "call_id": "b", "execution": "client", "arguments": None},
            {"type": "tool_search_output", "call_id": "b", "execution": "client", "tools": []},
        ],
        [
            message(Role.ASSISTANT, "wait", ToolCall("a", "tool_search", '{"query":"x"}')),
            message(Role.TOOL, ToolResult("a", (Text("Tool: shell\nTool: patch\n"),))),
            message(Role.ASSISTANT, ToolCall("b", "tool_search", "{}")),
            message(Role.TOOL, ToolResult("b", (Text("No tool was found.\n"),))),
        ],
    ),
    "a message without a type": ([{"role": "user", "content": "hi"}], [message(Role.USER, "hi")]),
    "parts": (
        [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
        [message(Role.USER, "a", "b")],
    ),
    "developer and system": (
        [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}],
        [message(Role.SYSTEM, "a"), message(Role.SYSTEM, "b"), message(Role.USER, "c")],
    ),
    "an answer and its calls are one message": (
        [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"n":1}'},
            {"type": "function_call", "call_id": "b", "name": "g"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
        ],
        [
            message(Role.ASSISTANT, "wait", ToolCall("a", "f", '{"n":1}'), ToolCall("b", "g", "{}")),
            message(Role.TOOL, ToolResult("a", (Text("1"),))),
            message(Role.TOOL, ToolResult("b", (Text("2"),))),
        ],
    ),
    "steps stay apart": (
        [
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": ""},
        ],
        [
            message(Role.ASSISTANT, ToolCall("a", "f", "{}")),
            message(Role.TOOL, ToolResult("a", (Text("1"),))),
            message(Role.ASSISTANT, ToolCall("b", "f", "{}")),
            message(Role.TOOL, ToolResult("b", ())),
        ],
    ),
    "reasoning": (
        [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
                "encrypted_content": "opaque",
            },
            {"type": "reasoning", "id": "rs_2", "summary": []},
            {"role": "assistant", "content": "x"},
        ],
        [message(Role.ASSISTANT, Reasoning("a\n\nb", "opaque"), "x")],
    ),
    "a refusal is text": (
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
        [message(Role.ASSISTANT, "no")],
    ),
    "a custom tool's call": (
        [
            {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": 'say "x"\n'},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
        ],
        [
            message(Role.ASSISTANT, ToolCall("a", "patch", '{"input":"say \\"x\\"\\n"}')),
            message(Role.TOOL, ToolResult("a", (Text("done"),))),
        ],
    ),
    "a local shell's call": (
        [
            {"type": "local_shell_call", "id": "ls_1", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "a", "output": "files"},
        ],
        [
            message(Role.ASSISTANT, ToolCall("a", "local_shell", '{"type":"exec","command":["ls"]}')),
            message(Role.TOOL, ToolResult("a", (Text("files"),))),
        ],
    ),
}


@pytest.mark.parametrize("name", ITEMS)
def test_items(name: str) -> None:
    given, expected = ITEMS[name]
    request = decode(input=given)
    assert list(request.messages) == expected
    assert request.ignored == ()


def test_instructions_come_first() -> None:
    request = decode(
        instructions="be brief", input=[{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]
    )
    assert [each.text for each in request.messages] == ["be brief", "x", "y"]
    assert request.messages[0].role is Role.SYSTEM


def test_items_of_hosted_tools_are_named() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    odd = {"type": "tomorrow's item", "id": "x"}
    request = decode(input=[{"role": "user", "content": "hi"}, search, search, odd])
    assert request.messages == (message(Role.USER, "hi"),)
    assert request.ignored == ("input.web_search_call", "(unprintable)")


# ---- one transcript, two dialects


def test_the_same_conversation_has_the_same_fingerprint_on_chat() -> None:
    call = {"name": "shell", "arguments": '{"command": "ls"}'}
    chat = OPENAI_CHAT.decode(
        {
            "model": "m",
            "tools": [{"type": "function", "function": {key: SHELL[key] for key in SHELL if key != "type"}}],
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "list"},
                {
                    "role": "assistant",
                    "content": "wait",
                    "tool_calls": [{"id": "c1", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "files"},
                {"role": "assistant", "content": "There are files."},
            ],
        },
        {},
    )
    responses = decode(
        instructions="be brief",
        tools=[SHELL],
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "list"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
            {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command":"ls"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "files"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There are "}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "files."}]},
        ],
    )
    prints = [fingerprint(tools_key(request.tools), request.messages) for request in (chat, responses)]
    assert prints[0] == prints[1]


# ---- tools


def test_function_tools() -> None:
    (tool,) = decode(tools=[{**SHELL, "strict": True}]).tools
    assert (tool.name, tool.description, tool.schema) == ("shell", "runs", {"type": "object"})
    (bare,) = decode(tools=[{"type": "function", "name": "f", "parameters": None}]).tools
    assert bare.schema == {}


def test_custom_tools_become_functions_with_one_text() -> None:
    (tool,) = decode(tools=[{"type": "custom", "name": "patch", "format": {"type": "text"}}]).tools
    assert tool.description == ""
    assert tool.schema["required"] == ["input"]
    rule = {"type": "grammar", "syntax": "regex", "definition": "[ab]+"}
    (tool,) = decode(tools=[{"type": "custom", "name": "patch", "description": "d", "format": rule}]).tools
    assert tool.description == "d\n\n`input` must match this grammar (regex):\n[ab]+"


def test_a_namespace_yields_to_plain_tools() -> None:
    inner = [{"type": "function", "name": "shell"}, {"type": "function", "name": "wait"}, {"type": "magic"}]
    namespace = {"type": "namespace", "name": "crm", "description": "d", "tools": inner}
    history = [
        {"type": "function_call", "call_id": "a", "namespace": "crm", "name": "shell", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "shell", "arguments": "{}"},
        {"type": "function_call", "call_id": "c", "namespace": "crm", "name": "wait", "arguments": "{}"},
        {"type": "function_call", "call_id": "d", "namespace": "old", "name": "gone", "arguments": "{}"},
    ]
    request = decode(tools=[namespace, SHELL], input=history)
    assert [tool.name for tool in request.tools] == ["shell", "crm__shell", "wait"]
    calls = [part for part in request.messages[0].parts if isinstance(part, ToolCall)]
    assert [call.name for call in calls] == ["crm__shell", "shell", "wait", "gone"]
    assert request.ignored == ("tools.magic",)


EXEC = {"type": "custom", "name": "exec"}
ENCRYPTED = {"type": "object", "properties": {"message": {"type": "string", "encrypted": True}}}
SPAWN = {"type": "function", "name": "spawn", "parameters": ENCRYPTED}
SEARCH = {"type": "tool_search", "execution": "client", "description": "finds", "parameters": {"type": "object"}}


def more(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def found(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": list(tools)}


def within(name: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools)}


def test_tools_inside_the_input() -> None:
    """Wherever they stand, and beside those of the request."""
    request = decode(
        tools=[{"type": "function", "name": "f"}],
        input=[
            more(within("functions", EXEC, SHELL)),
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "wait"},
            more(within("collaboration", SPAWN), {"type": "web_search"}),
            {"type": "custom_tool_call", "call_id": "a", "name": "exec", "namespace": "functions", "input": "1"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "one"},
            more(),
            more(SHELL),
        ],
        parallel_tool_calls=False,
    )
    assert [tool.name for tool in request.tools] == ["f", "shell", "exec", "functions__shell", "spawn"]
    assert request.tools[-1].schema == ENCRYPTED
    assert request.tool_choice == ToolChoice(parallel=False)
    assert request.ignored == ("tools.web_search",)
    assert request.messages[1] == message(Role.ASSISTANT, "wait", ToolCall("a", "exec", '{"input":"1"}'))


def test_tools_inside_the_input_are_no_part_of_what_was_said() -> None:
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "one "},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "more"},
    ]
    tools: list[dict[str, Any]] = [EXEC, SHELL]
    plain = decode(tools=tools, input=said)
    for place in range(len(said) + 1):
        mixed = decode(input=[*said[:place], more(*tools), *said[place:]])
        assert (mixed.messages, mixed.tools, mixed.ignored) == (plain.messages, plain.tools, ())


def test_the_last_definition_of_a_tool_inside_the_input_counts() -> None:
    newer = {**SHELL, "description": "runs better"}
    request = decode(tools=[SHELL], input=[more(SHELL), {"role": "user", "content": "hi"}, found(newer), more(newer)])
    assert [(tool.name, tool.description) for tool in request.tools] == [("shell", "runs better")]
    assert [tool.name for tool in decode(input=[more(EXEC, EXEC), {"role": "user", "content": "hi"}]).tools] == ["exec"]


def test_tool_choice_knows_the_tools_inside_the_input() -> None:
    said = [more(within("functions", EXEC, SHELL)), found(SPAWN), {"role": "user", "content": "hi"}]
    choice = {"type": "custom", "name": "exec", "namespace": "functions"}
    assert decode(input=said, tool_choice=choice).tool_choice == ToolChoice("named", "exec")
    assert decode(input=said, tool_choice="required").tool_choice == ToolChoice("required")
    allowed = {
        "type": "allowed_tools",
        "tools": [choice, {"type": "function", "name": "spawn"}, {"type": "tool_search"}],
    }
    request = decode(tools=[SEARCH], input=said, tool_choice=allowed)
    assert [tool.name for tool in request.tools] == ["tool_search", "spawn", "exec"]


def test_tools_inside_the_input_stay_through_the_store() -> None:
    dialect = openai_responses(ResponseStore())
    answered(dialect, "1", "one", input=[more(within("functions", EXEC)), {"role": "user", "content": "first"}])
    request = dialect.decode({"model": "m", "previous_response_id": "resp_1", "input": "more"}, {})
    assert [tool.name for tool in request.tools] == ["exec"]
    again = [more(within("functions", EXEC, SHELL)), {"role": "user", "content": "more"}]
    request = dialect.decode({"model": "m", "previous_response_id": "resp_1", "input": again}, {})
    assert [tool.name for tool in request.tools] == ["exec", "shell"]


def test_a_tool_search_of_the_client_is_a_function() -> None:
    request = decode(tools=[SHELL, SEARCH])
    assert request.tools[1] == ToolSpec("tool_search", "finds", {"type": "object"})
    assert request.ignored == ()
    for hosted in ({"type": "tool_search"}, {"type": "tool_search", "execution": "server"}):
        request = decode(tools=[SHELL, hosted])
        assert [tool.name for tool in request.tools] == ["shell"]
        assert request.ignored == ("tools.tool_search",)


def test_what_a_tool_search_found_is_offered() -> None:
    search = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "x"}}
    request = decode(
        tools=[SHELL, SEARCH],
        input=[
            {"role": "user", "content": "hi"},
            search,
            found(within("crm", {**SHELL, "defer_loading": True}, SPAWN)),
        ],
    )
    assert [tool.name for tool in request.tools] == ["shell", "tool_search", "crm__shell", "spawn"]
    assert request.messages[-1].parts == (ToolResult("s", (Text("Tool: crm__shell\nTool: spawn\n"),)),)


def test_a_tool_search_of_openai_is_left_out() -> None:
    call = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["crm"]}}
    output = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [within("crm", SHELL)]}
    request = decode(input=[{"role": "user", "content": "hi"}, call, output])
    assert (request.tools, request.messages) == ((), (message(Role.USER, "hi"),))
    assert request.ignored == ("input.tool_search_call", "input.tool_search_output")


@pytest.mark.parametrize(
    "kind",
    [
        "web_search",
        "web_search_preview",
        "file_search",
        "code_interpreter",
        "mcp",
        "image_generation",
        "local_shell",
        "computer_use_preview",
        "tool_search",
        "shell",
        "apply_patch",
    ],
)
def test_hosted_tools_are_named_and_not_offered(kind: str) -> None:
    request = decode(tools=[{"type": kind}, SHELL])
    assert [tool.name for tool in request.tools] == ["shell"]
    assert request.ignored == (f"tools.{kind}",)
    assert decode(tools=[{"type": kind}]).tools == ()


CHOICES: dict[str, tuple[object, ToolChoice]] = {
    "absent": (None, ToolChoice()),
    "auto": ("auto", ToolChoice("auto")),
    "none": ("none", ToolChoice("none")),
    "required": ("required", ToolChoice("required")),
    "named": ({"type": "function", "name": "shell"}, ToolChoice("named", "shell")),
    "custom": ({"type": "custom", "name": "patch"}, ToolChoice("named", "patch")),
}


@pytest.mark.parametrize("name", CHOICES)
def test_tool_choice(name: str) -> None:
    given, expected = CHOICES[name]
    tools = [SHELL, {"type": "custom", "name": "patch"}]
    assert decode(tools=tools, tool_choice=given).tool_choice == expected
    alone = decode(tools=tools, tool_choice=given, parallel_tool_calls=False)
    assert alone.tool_choice == msgspec.structs.replace(expected, parallel=False)


def test_allowed_tools() -> None:
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
    }
    request = decode(tools=[SHELL, {"type": "function", "name": "f"}], tool_choice=allowed)
    assert [tool.name for tool in request.tools] == ["f"]
    assert request.tool_choice == ToolChoice("required")


# ---- the fields around

IGNORED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"max_output_tokens": 5}, ("max_output_tokens",)),
    ({"max_tool_calls": 5}, ("max_tool_calls",)),
    ({"temperature": 1, "top_p": 1.0, "top_logprobs": 0, "truncation": "disabled", "service_tier": "auto"}, ()),
    ({"temperature": 0.5, "truncation": "auto"}, ("temperature", "truncation")),
    ({"text": {"verbosity": "low"}}, ("text.verbosity",)),
    ({"text": {"verbosity": "medium"}}, ()),
    ({"reasoning": {"effort": "low", "summary": "auto", "mode": "pro"}}, ("reasoning.mode",)),
    ({"include": ["reasoning.encrypted_content"]}, ()),
    ({"include": ["message.output_text.logprobs"]}, ("include.message.output_text.logprobs",)),
    ({"stream_options": {"include_obfuscation": False}}, ()),
    ({"stream_options": {"include_obfuscation": True}}, ("stream_options.include_obfuscation",)),
    ({"user": "u", "metadata": {"k": "v"}, "prompt_cache_key": "k", "safety_identifier": "s"}, ()),
    ({"client_metadata": {"a": "b"}, "store": True, "background": False}, ()),
    ({"seed": 1, "stop": None}, ("seed",)),
]


@pytest.mark.parametrize(("fields", "expected"), IGNORED)
def test_what_has_no_effect_is_named(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert decode(**fields).ignored == expected


def test_the_list_of_unknown_fields_is_bounded() -> None:
    many: dict[str, Any] = {f"x{i}": 1 for i in range(1000)}
    for fields in (many, {"reasoning": many}, {"text": many}, {"stream_options": many}):
        ignored = decode(**fields).ignored
        assert len(ignored) == MAX_LISTED + 1
        assert ignored[-1].endswith(f"(and {1000 - MAX_LISTED} more)")


def test_formats_effort_session_stream() -> None:
    schema = {"type": "object"}
    given = {"type": "json_schema", "name": "Ev", "strict": True, "schema": schema}
    assert decode(text={"format": given}).output_format == OutputFormat("Ev", schema)
    assert decode(text={"format": {"type": "json_object"}}).output_format == OutputFormat()
    assert decode(text={"format": {"type": "text"}}).output_format is None
    assert decode(reasoning={"effort": "high"}).effort == "high"
    request = decode({"x-caretway-session": "fresh", "x-caretway-workspace": "/srv"}, stream=True)
    assert (request.session, request.workspace, request.stream) == (SessionMode.FRESH, "/srv", True)


# ---- what an earlier response adds


def answered(dialect: Dialect, name: str, text: str, **body: Any) -> TurnRequest:
    request = dialect.decode({"model": "m", **body}, {})
    dialect.render(Reply(text=text), request, ResponseMeta(name, 1, "m"))
    return request


def test_previous_response_puts_the_conversation_before_the_input() -> None:
    dialect = openai_responses(ResponseStore())
    answered(dialect, "1", "one", input="first", instructions="only then")
    answered(dialect, "2", "two", input=[{"role": "user", "content": "second"}], previous_response_id="resp_1")
    request = dialect.decode(
        {"model": "m", "input": "third", "previous_response_id": "resp_2", "instructions": "now"}, {}
    )
    said = [(each.role.value, each.text) for each in request.messages]
    assert said == [
        ("system", "now"),
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", "two"),
        ("user", "third"),
    ]
    assert dialect.decode({"model": "m", "previous_response_id": "resp_2"}, {}).messages[-1].text == "two"


def test_references_are_replaced_and_kept_as_what_they_are() -> None:
    dialect = openai_responses(ResponseStore())
    answered(dialect, "1", "one", input="first")
    asked = [{"type": "item_reference", "id": "msg_1_0"}, {"role": "user", "content": "second"}]
    request = answered(dialect, "2", "two", input=asked)
    assert [each.text for each in request.messages] == ["one", "second"]
    dialect.lookups["deleteResponse"]({"id": "resp_1"}, {}, None)
    listed = dialect.lookups["getInput"]({"id": "resp_2"}, {}, None)
    kinds = [item.get("type", "message") for item in msgspec.json.decode(listed)["data"]]
    assert kinds == ["message", "message"]
    bare = dialect.decode({"model": "m", "input": [{"id": "msg_2_0"}]}, {})
    assert bare.messages[0].text == "two"


def test_store_false_leaves_nothing_behind() -> None:
    store = ResponseStore()
    dialect = openai_responses(store)
    answered(dialect, "1", "one", input="first", store=False)
    assert len(store) == 0
    with pytest.raises(GatewayError) as caught:
        dialect.decode({"model": "m", "input": "x", "previous_response_id": "resp_1"}, {})
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")
