"""Messages requests -> TurnRequest: what each field becomes."""

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
from caretway.dialects.anthropic_messages import AnthropicMessages
from caretway.dialects.fields import HEADING

ANTHROPIC_MESSAGES = AnthropicMessages()

PNG = b"\x89PNG\r\n\x1a\n0000"
PICTURE = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
TOOL = {"name": "bash", "description": "run", "input_schema": {"type": "object"}}
SPEC = ToolSpec("bash", "run", {"type": "object"})
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


def decode(**fields: Any) -> TurnRequest:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]} | fields
    return ANTHROPIC_MESSAGES.decode(body, {})


def parts(*blocks: Any, role: str = "user") -> tuple[Any, ...]:
    """The parts that the blocks of one message become."""
    (message,) = decode(messages=[{"role": role, "content": list(blocks)}]).messages
    return message.parts


def test_the_least_there_is() -> None:
    request = decode()
    assert request == TurnRequest(
        "m",
        (Message(Role.USER, (Text("hi"),)),),
        max_output=10,
        include_usage=True,
        call_prefix="toolu_",
        echo={"thinking": False},
    )
    assert request.ignored == ()


def test_max_tokens_may_be_absent() -> None:
    assert ANTHROPIC_MESSAGES.decode({"model": "m", "messages": [{"role": "user", "content": "x"}]}, {}).ignored == ()


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (None, []),
        ("", []),
        ("be brief", ["be brief"]),
        (
            [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
            ["a", "b"],
        ),
    ],
)
def test_system(system: Any, expected: list[str]) -> None:
    request = decode(system=system)
    assert [m.text for m in request.messages if m.role is Role.SYSTEM] == expected
    assert request.system == "\n\n".join(expected)
    assert request.ignored == ()


def test_system_inside_messages_stays_in_its_place() -> None:
    request = decode(
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "new rule"},
            {"role": "system", "content": [{"type": "text", "text": "another"}]},
            {"role": "system", "output_config": {"effort": "low"}},
        ]
    )
    assert [(m.role, m.text) for m in request.messages] == [
        (Role.USER, "hi"),
        (Role.SYSTEM, "new rule"),
        (Role.SYSTEM, "another"),
    ]
    assert request.ignored == ("messages.output_config",)


def test_text_and_image() -> None:
    assert parts(
        {"type": "text", "text": "see"}, {"type": "image", "source": PICTURE}, {"type": "text", "text": ""}
    ) == (
        Text("see"),
        Image(PNG, "image/png"),
    )


@pytest.mark.parametrize(
    ("source", "more", "text"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "abc"}, {}, "Document:\n\nabc\n"),
        ({"type": "text", "data": "abc"}, {"title": "T", "context": "C"}, "Document: T\nC\n\nabc\n"),
        (
            {"type": "base64", "media_type": "text/markdown", "data": base64.b64encode("ä".encode()).decode()},
            {"title": "T"},
            "Document: T\n\nä\n",
        ),
        ({"type": "content", "content": "abc"}, {}, "Document:\n\nabc\n"),
        ({"type": "content", "content": [{"type": "text", "text": "abc"}]}, {}, "Document:\n\nabc\n"),
    ],
)
def test_document(source: Any, more: dict[str, str], text: str) -> None:
    assert "".join(part.text for part in parts({"type": "document", "source": source, **more})) == text


def test_search_result() -> None:
    block = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}
    assert parts(block) == (Text("Search result: t (s)\nfound\n"),)


def test_assistant() -> None:
    assert parts(
        {"type": "thinking", "thinking": "hm", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls", "n": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "bash"},
        role="assistant",
    ) == (
        Reasoning("hm", "sig=="),
        Text("I look"),
        ToolCall("toolu_1", "bash", '{"command":"ls","n":1}'),
        ToolCall("toolu_2", "bash", "{}"),
    )


def test_results_come_before_what_was_said_beside_them() -> None:
    request = decode(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "beside"},
                    {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "is_error": True,
                        "content": [{"type": "text", "text": "two"}, {"type": "image", "source": PICTURE}],
                    },
                    {"type": "tool_result", "tool_use_id": "c"},
                ],
            }
        ]
    )
    assert request.messages == (
        Message(Role.TOOL, (ToolResult("a", (Text("one"),)),)),
        Message(Role.TOOL, (ToolResult("b", (Text("two"), Image(PNG, "image/png")), is_error=True),)),
        Message(Role.TOOL, (ToolResult("c", ()),)),
        Message(Role.USER, (Text("beside"),)),
    )


def test_results_alone_leave_no_empty_user_message() -> None:
    request = decode(messages=[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}])
    assert [message.role for message in request.messages] == [Role.TOOL]


def test_what_a_tool_search_found() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "grep"}]}
    (message,) = decode(messages=[{"role": "user", "content": [block]}]).messages
    assert message.parts == (ToolResult("a", (Text("Tool: grep\n"),)),)


def test_the_placeholder_of_deferred_tools_is_not_offered() -> None:
    """Claude Code sends it in place of tools that the model has not searched for yet."""
    placeholder = {"name": "DeferredToolPlaceholder", "description": "", "input_schema": {}, "defer_loading": True}
    request = decode(tools=[placeholder, TOOL])
    assert (request.tools, request.ignored) == ((SPEC,), ())
    assert decode(tools=[placeholder], tool_choice={"type": "any"}).tool_choice.mode == "auto"
    own = {"name": "DeferredToolPlaceholder", "input_schema": {}}
    assert [tool.name for tool in decode(tools=[own]).tools] == ["DeferredToolPlaceholder"]


NOTE = ToolSpec("note", "", {})


def by_value(**definition: Any) -> dict[str, Any]:
    return {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}


def by_name(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "tool": {"type": "tool_reference", "name": name}}


CHANGES: dict[str, tuple[list[dict[str, Any]], tuple[ToolSpec, ...]]] = {
    "added": ([by_value(name="note")], (SPEC, NOTE)),
    "added and removed": ([by_value(name="note"), by_name("tool_removal", "note")], (SPEC,)),
    "removed": ([by_name("tool_removal", "bash")], ()),
    "removed and added again": ([by_name("tool_removal", "bash"), by_name("tool_addition", "bash")], (SPEC,)),
    "defined anew": ([by_value(**TOOL | {"description": "walk"})], (ToolSpec("bash", "walk", {"type": "object"}),)),
    "of a name that is not known": ([by_name("tool_addition", "x"), by_name("tool_removal", "y")], (SPEC,)),
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("apart", [False, True])
def test_tool_changes_among_the_messages(case: str, apart: bool) -> None:
    blocks, expected = CHANGES[case]
    changes = [[block] for block in blocks] if apart else [blocks]
    said = [{"role": "user", "content": "hi"}, *({"role": "system", "content": blocks} for blocks in changes)]
    request = decode(messages=said, tools=[TOOL])
    assert (request.tools, request.ignored) == (expected, ())
    assert [message.text for message in request.messages if message.parts] == ["hi"]


def test_a_tool_that_was_added_can_be_demanded() -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "system", "content": [by_value(name="note")]}]
    choice = decode(messages=said, tool_choice={"type": "tool", "name": "note"}).tool_choice
    assert choice == ToolChoice("named", "note")


def test_tool_changes_that_only_anthropic_can_make_are_named() -> None:
    toolset = {"type": "tool_addition", "tool": {"type": "mcp_toolset_reference", "server_name": "x"}}
    search = by_value(**SEARCH)
    request = decode(messages=[{"role": "user", "content": "hi"}, {"role": "system", "content": [toolset, search]}])
    assert request.ignored == ("tool_addition.mcp_toolset_reference", "tools.web_search_20250305")


OLD: dict[str, object] = {"role": "user", "content": "old"}
SUMMARY = {"type": "compaction", "content": "so far"}
NEXT: dict[str, object] = {"role": "user", "content": "next"}


def assistant(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([assistant(SUMMARY), NEXT], [f"user: {HEADING}\n\nso far", "user: next"]),
        ([OLD, assistant(SUMMARY)], [f"user: {HEADING}\n\nso far"]),
        ([OLD, {"role": "user", "content": [SUMMARY]}, NEXT], [f"user: {HEADING}\n\nso far", "user: next"]),
        (
            [OLD, assistant({"type": "text", "text": "before"}, SUMMARY, {"type": "text", "text": "after"}), NEXT],
            [f"user: {HEADING}\n\nso far", "assistant: after", "user: next"],
        ),
        (
            [assistant(SUMMARY), OLD, assistant(SUMMARY | {"content": "newer"}), NEXT],
            [f"user: {HEADING}\n\nnewer", "user: next"],
        ),
        (
            [OLD, assistant({"type": "compaction", "content": None}, {"type": "text", "text": "after"}), NEXT],
            ["user: old", "assistant: after", "user: next"],
        ),
    ],
)
def test_a_summary_stands_for_what_was_before(messages: list[dict[str, object]], told: list[str]) -> None:
    request = decode(messages=messages, system="Be brief.")
    assert [f"{message.role.value}: {message.text}" for message in request.messages[1:]] == told
    assert request.system == "Be brief."


@pytest.mark.parametrize(
    "kind",
    [
        "server_tool_use",
        "web_search_tool_result",
        "code_execution_tool_result",
        "mcp_tool_use",
        "container_upload",
        "not_invented_yet",
    ],
)
def test_foreign_blocks_are_left_out_and_named(kind: str) -> None:
    block = {"type": kind, "id": "x", "content": [{"type": "odd"}], "input": {}}
    request = decode(messages=[{"role": "assistant", "content": [block, {"type": "text", "text": "so"}]}])
    assert request.messages[0].parts == (Text("so"),)
    assert request.ignored == (f"content.{kind}",)


def test_unknown_fields_are_named_wherever_they_are() -> None:
    request = decode(
        mood="good",
        system=[{"type": "text", "text": "a", "colour": "red"}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "b", "citations": []}], "name": "me"}],
        tools=[TOOL | {"input_examples": [{}]}],
        tool_choice={"type": "auto", "haste": True},
        thinking={"type": "adaptive", "depth": 3},
        output_config={"task_budget": {}},
    )
    assert set(request.ignored) == {
        "mood",
        "content.text.colour",
        "content.text.citations",
        "messages.name",
        "tools.input_examples",
        "tool_choice.haste",
        "thinking.depth",
        "output_config.task_budget",
    }


def test_the_list_is_fit_for_a_header() -> None:
    request = decode(**{f"field{i}": 1 for i in range(100)}, **{"a\r\nb: c": 1})
    assert len(request.ignored) == 33
    assert request.ignored[-1].startswith("(and ")
    assert all("\n" not in name for name in request.ignored)


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"temperature": 1}, ()),
        ({"temperature": 1.0, "top_p": 1, "service_tier": "auto", "speed": "standard", "mcp_servers": []}, ()),
        ({"temperature": 0}, ("temperature",)),
        ({"top_p": 0.5, "top_k": 4}, ("top_p", "top_k")),
        ({"service_tier": "standard_only"}, ("service_tier",)),
        ({"container": "c1"}, ("container",)),
        ({"container": {"id": "c1"}}, ("container",)),
        ({"mcp_servers": [{"type": "url"}]}, ("mcp_servers",)),
        ({"metadata": {"user_id": "u"}, "betas": ["x"], "cache_control": {"type": "ephemeral"}}, ()),
        ({"temperature": None, "mood": None, "system": None, "tools": None, "stop_sequences": None}, ()),
    ],
)
def test_ignored(fields: dict[str, Any], ignored: tuple[str, ...]) -> None:
    assert decode(**fields).ignored == ignored


def test_tools() -> None:
    request = decode(
        tools=[
            TOOL,
            {"type": "custom", "name": "mcp__files.read", "defer_loading": True, "strict": True},
            TOOL | {"name": "c", "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True},
        ]
    )
    assert request.tools == (SPEC, ToolSpec("mcp__files.read"), ToolSpec("c", "run", {"type": "object"}))
    assert request.ignored == ()


@pytest.mark.parametrize(
    "kind",
    [
        "web_search_20250305",
        "web_fetch_20250910",
        "code_execution_20250825",
        "bash_20250124",
        "text_editor_20250728",
        "computer_20251124",
        "memory_20250818",
        "tool_search_tool_bm25_20251119",
        "mcp_toolset",
    ],
)
def test_anthropic_s_own_tools_are_not_offered(kind: str) -> None:
    request = decode(tools=[{"type": kind, "name": "bash"}, TOOL])
    assert request.tools == (SPEC,)
    assert request.ignored == (f"tools.{kind}",)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required", parallel=False)),
        ({"type": "tool", "name": "bash"}, ToolChoice("named", "bash")),
        ({"type": "none"}, ToolChoice("none")),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert decode(tools=[TOOL], tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "web_search"}, {"type": "any"}])
def test_claude_code_s_web_search_gets_an_answer_in_words(choice: Any) -> None:
    request = decode(tools=[SEARCH], tool_choice=choice)
    assert (request.tools, request.tool_choice) == ((), ToolChoice())
    assert set(request.ignored) == {"tools.web_search_20250305", "tool_choice"}


def test_stop_sequences() -> None:
    assert decode(stop_sequences=["END", "", "END", "\n\n"]).stop == ("END", "\n\n")


@pytest.mark.parametrize(
    ("thinking", "config", "shown", "effort"),
    [
        (None, None, False, None),
        ({"type": "disabled"}, None, False, None),
        ({"type": "enabled", "budget_tokens": 1024}, None, True, "low"),
        ({"type": "enabled", "budget_tokens": 4096}, None, True, "low"),
        ({"type": "enabled", "budget_tokens": 10_000}, None, True, "medium"),
        ({"type": "enabled", "budget_tokens": 31_999}, None, True, "high"),
        ({"type": "enabled", "budget_tokens": 31_999}, {"effort": "low"}, True, "low"),
        ({"type": "adaptive"}, {"effort": "xhigh"}, True, "xhigh"),
        ({"type": "adaptive", "display": "summarized"}, None, True, None),
        ({"type": "adaptive", "display": "omitted"}, {"effort": "max"}, False, "max"),
        (None, {"effort": "medium"}, False, "medium"),
    ],
)
def test_thinking_and_effort(thinking: Any, config: Any, shown: bool, effort: str | None) -> None:
    request = decode(thinking=thinking, output_config=config)
    assert (request.echo, request.effort, request.ignored) == ({"thinking": shown}, effort, ())


def test_a_kind_of_thinking_that_is_not_known() -> None:
    request = decode(thinking={"type": "sideways"})
    assert (request.echo, request.ignored) == ({"thinking": False}, ("thinking.type",))


@pytest.mark.parametrize("field", ["output_format", "output_config"])
def test_output_format(field: str) -> None:
    wanted: dict[str, Any] = {"type": "json_schema", "schema": {"type": "object"}}
    request = decode(**{field: wanted if field == "output_format" else {"format": wanted}})
    assert request.output_format == OutputFormat(schema={"type": "object"})
    assert request.ignored == ()


def test_headers() -> None:
    headers = {"x-caretway-session": "Fresh", "x-caretway-workspace": " /w ", "anthropic-beta": "a,b"}
    request = ANTHROPIC_MESSAGES.decode({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, headers)
    assert (request.session, request.workspace) == (SessionMode.FRESH, "/w")


def test_stream() -> None:
    assert decode(stream=True).stream
    assert not decode(stream=False).stream
