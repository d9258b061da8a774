"""What real clients sent (tests/data/responses): every body is accepted, and nothing in it is lost without a word."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from caretway.core.request import Image, Role, Text, ToolCall, ToolResult, TurnRequest
from caretway.dialects.openai_responses import ResponseStore, openai_responses

CAPTURES = sorted((Path(__file__).parents[3] / "data" / "responses").glob("*/*.json"))

READ = {
    "": {"model", "input", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text", "store", "stream"},
    "message": {"type", "role", "content"},
    "additional_tools": {"type", "tools"},
    "tool_search_call": {"type", "call_id", "execution", "arguments"},
    "tool_search_output": {"type", "call_id", "execution", "tools"},
    "function_call": {"type", "call_id", "name", "namespace", "arguments"},
    "function_call_output": {"type", "call_id", "output"},
    "input_text": {"type", "text"},
    "input_image": {"type", "image_url"},
    "tool function": {"type", "name", "description", "parameters"},
    "tool custom": {"type", "name", "description", "format"},
    "tool namespace": {"type", "name", "tools"},
    "tool tool_search": {"type", "execution", "description", "parameters"},
    "reasoning": {"effort", "summary"},
    "text": {"format"},
    "format": {"type", "name", "schema"},
}
"""Kind of object -> the fields that have an effect."""
ACCEPTED = {
    "": {"include", "prompt_cache_key", "client_metadata"},  # they ask for nothing that could be given
    "message": {"id"},  # an item's name matters to references only, and those go by the store
    "additional_tools": {"id", "role"},
    "tool_search_call": {"id", "status"},
    "tool_search_output": {"id", "status"},
    "function_call": {"id", "status"},
    "function_call_output": {"id"},
    # Arguments are passed on as the model wrote them either way; a tool that was found is offered at once.
    "tool function": {"strict", "defer_loading"},
    "tool namespace": {"description"},  # the tools inside have their own
    "format": {"strict"},
}
"""Kind of object -> fields that are accepted and, by decision, neither used nor mentioned."""
LISTED = {
    "": {"max_output_tokens": "max_output_tokens"},
    "input_image": {"detail": "input_image.detail"},
    "text": {"verbosity": "text.verbosity"},
    "reasoning": {"context": "reasoning.context"},
    "tools": {"web_search": "tools.web_search"},
}
"""Kind of object -> field or type -> the name under which the client is told that it has no effect."""


def load(path: Path) -> tuple[dict[str, Any], TurnRequest]:
    captured = msgspec.json.decode(path.read_bytes())
    return captured["body"], openai_responses(ResponseStore()).decode(captured["body"], captured["headers"])


def objects(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a request that this dialect gives a meaning to, with its kind."""
    yield "", body
    for item in items(body):
        yield item.get("type", "message"), item
        for part in item["content"] if isinstance(item.get("content"), list) else ():
            yield part["type"], part
    for tool in tools(body):
        for one in (tool, *tool.get("tools", ())):
            if one["type"] not in LISTED["tools"]:
                yield f"tool {one['type']}", one
    if "reasoning" in body:
        yield "reasoning", body["reasoning"]
    if "text" in body:
        yield "text", body["text"]
        if "format" in body["text"]:
            yield "format", body["text"]["format"]


def tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [*body.get("tools", ()), *(tool for item in items(body) for tool in item.get("tools", ()))]


def items(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["input"] if isinstance(body["input"], list) else []


def test_the_captures_are_there() -> None:
    folders = {path.parent.name for path in CAPTURES}
    assert folders == {"codex", "continue", "goose", "langchain", "openai-python", "vercel-ai"}
    assert len(CAPTURES) == 34


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_field_is_dropped_in_silence(path: Path) -> None:
    body, request = load(path)
    told: set[str] = set()
    for kind, holder in objects(body):
        listed = LISTED.get(kind, {})
        known = READ[kind] | ACCEPTED.get(kind, set()) | listed.keys()
        assert set(holder) <= known, f"{kind or 'request'}: {set(holder) - known}"
        told |= {name for field, name in listed.items() if field in holder}
    told |= {LISTED["tools"][tool["type"]] for tool in tools(body) if tool["type"] in LISTED["tools"]}
    assert set(request.ignored) == told


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_read_is_all_there(path: Path) -> None:
    body, request = load(path)
    assert request.model == body["model"]
    assert request.stream == body.get("stream", False)
    assert request.effort == body.get("reasoning", {}).get("effort")
    assert request.tool_choice.parallel == body.get("parallel_tool_calls", True)
    declared = [one for tool in tools(body) for one in tool.get("tools", (tool,))]
    served = [{"name": one["type"], **one} for one in declared if one["type"] not in LISTED["tools"]]
    assert {tool.name for tool in request.tools} == {tool["name"] for tool in served}
    schemas = {tool.name: tool.schema for tool in request.tools}
    assert all(schemas[tool["name"]] == tool["parameters"] for tool in served if tool["type"] != "custom")
    assert list(said(request)) == list(sent(body))


def said(request: TurnRequest) -> Iterator[object]:
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text(text=text):
                    yield message.role, text
                case Image(mime_type=mime_type):
                    yield message.role, mime_type
                case ToolCall(id=call, name=name, arguments=arguments):
                    yield "call", call, name, arguments
                case ToolResult(call_id=call):
                    yield "result", call, part.text


def sent(body: dict[str, Any]) -> Iterator[object]:
    """The same, read off the body in the plainest way."""
    if isinstance(body["input"], str):
        yield Role.USER, body["input"]
    for item in items(body):
        match item.get("type", "message"):
            case "function_call":
                yield "call", item["call_id"], item["name"], item["arguments"]
            case "function_call_output":
                output = item["output"]
                yield (
                    "result",
                    item["call_id"],
                    output if isinstance(output, str) else "".join(p["text"] for p in output),
                )
            case "tool_search_call":
                yield "call", item["call_id"], "tool_search", msgspec.json.encode(item["arguments"]).decode()
            case "tool_search_output":
                found = [one["name"] for tool in item["tools"] for one in tool.get("tools", (tool,))]
                yield "result", item["call_id"], "".join(f"Tool: {name}\n" for name in found)
            case "additional_tools":
                pass
            case _:
                role = {"developer": Role.SYSTEM}.get(item["role"]) or Role(item["role"])
                content = item["content"]
                for part in [{"text": content}] if isinstance(content, str) else content:
                    yield role, part.get("text", "image/png")


def test_codex_gets_its_own_tools_back() -> None:
    by_name = {path.stem: path for path in CAPTURES if path.parent.name == "codex"}
    _, request = load(by_name["variant-codex-gpt55-001"])
    patch = next(tool for tool in request.tools if tool.name == "apply_patch")
    assert patch.schema["required"] == ["input"]
    assert "grammar (lark):\n<578 chars>" in patch.description
    _, request = load(by_name["lite-001"])
    assert [tool.name for tool in request.tools] == [
        "exec",
        "wait",
        "request_user_input",
        "followup_task",
        "interrupt_agent",
        "list_agents",
        "send_message",
        "spawn_agent",
        "wait_agent",
    ]
    spawn = next(tool for tool in request.tools if tool.name == "spawn_agent")
    properties = spawn.schema["properties"]
    assert isinstance(properties, dict)
    assert properties["message"]["encrypted"] is True
    _, request = load(by_name["search-003"])
    assert [tool.name for tool in request.tools][-2:] == ["tool_search", "reveal"]
    _, request = load(by_name["tool-001"])
    assert [tool.name for tool in request.tools][-5:] == [
        "close_agent",
        "resume_agent",
        "send_input",
        "spawn_agent",
        "wait_agent",
    ]
