"""Requests that broke other gateways, as their users reported them in public threads, and what ours answers.

One test a thread; its docstring names the thread and what went wrong there. The words are ours. All answers are also
judged by the SDKs' own types (`strict_types`).
"""

import ast
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.gateways import Client, tool

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OBJECT = {"type": "object", "properties": {}}
LARK = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"}
PATCH = "*** Begin Patch\n*** Add File: hello.txt\n+hello\n*** End Patch"
Json = dict[str, Any]


@pytest.fixture
def transport() -> str:
    return "h2"


async def posted(client: Client, path: str, body: Json, status: int = 200, **more: Any) -> Json:
    answer = await client.http.post(f"/v1/{path}", json={"model": "sim-auto", **body}, **more)
    assert answer.status_code == status, answer.text
    read: Json = answer.json()
    return read | {"ignored": answer.headers.get("x-caretway-ignored", "")}


async def streamed(client: Client, path: str, body: Json) -> list[Json]:
    """The data of a stream's events."""
    answer = await client.http.post(f"/v1/{path}", json={"model": "sim-auto", "stream": True, **body})
    assert answer.status_code == 200, answer.text
    data = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    return [msgspec.json.decode(one) for one in data if one != "[DONE]"]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def message(text: str, **more: Any) -> Json:
    """A body for the Messages API."""
    return {"max_tokens": 99, "messages": [user(text)], **more}


def said(answer: Json) -> str:
    """The text of an answer of any of the three APIs."""
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    parts = answer["output"][-1]["content"] if "output" in answer else answer["content"]
    return "".join(part["text"] for part in parts if "text" in part)


# ---- Chat Completions


async def test_the_developer_role(client: Client) -> None:
    """github.com/peonist-ai/halogen-flash-server/issues/32: a client that sends its system prompt as `developer` got a
    400."""
    answer = await posted(
        client,
        "chat/completions",
        {"messages": [{"role": "developer", "content": "Be brief."}, user("sim: instructions")]},
    )
    assert "Be brief." in said(answer)


async def test_a_call_without_content(client: Client) -> None:
    """github.com/letta-ai/letta/issues/1571: `content: null` beside tool calls was refused as not a string."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history = [
        user("Look."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
        user("sim: say seen"),
    ]
    assert said(await posted(client, "chat/completions", {"messages": history, "tools": [tool("look")]})) == "seen"


async def test_deltas_of_calls_have_an_index(client: Client) -> None:
    """github.com/chenyme/grok2api/issues/239: without `index` in the deltas of a call, strict clients reject the
    stream."""
    body = {"messages": [user('sim: call a {"x": "1"} & b {"x": "2"}')], "tools": [tool("a", "x"), tool("b", "x")]}
    chunks = await streamed(client, "chat/completions", body)
    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls if "id" in call] == [0, 1]
    assert all("index" in call for call in calls)


async def test_the_first_call_has_the_index_0(client: Client) -> None:
    """github.com/agentgateway/agentgateway/issues/2965: text before the first call made its index 1."""
    body = {"messages": [user('sim: say I look.\nsim: call a {"x": "1"}')], "tools": [tool("a", "x")]}
    chunks = await streamed(client, "chat/completions", body)
    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert {call["index"] for call in calls} == {0}
    assert any(choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"])


@pytest.mark.parametrize("options", [None, {"include_usage": False}], ids=["not asked", "declined"])
async def test_no_chunk_without_choices_unless_asked_for(client: Client, options: Json | None) -> None:
    """github.com/Arthur-Ficial/apfel/issues/100, github.com/headroomlabs-ai/headroom/pull/2026: an usage chunk that
    nobody wanted, or that was declined, broke clients that read `choices[0]`."""
    chunks = await streamed(client, "chat/completions", {"messages": [user("sim: say hi")], "stream_options": options})
    assert all(chunk["choices"] for chunk in chunks)


async def test_the_usage_chunk_has_an_empty_list_of_choices(client: Client) -> None:
    """github.com/ROCm/ATOM/pull/1711: the chunk with the usage had no `choices` at all, and the SDK rejected it."""
    body = {"messages": [user("sim: say hi")], "stream_options": {"include_usage": True}}
    last = (await streamed(client, "chat/completions", body))[-1]
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > 0


async def test_a_call_without_arguments_is_an_empty_object(client: Client) -> None:
    """github.com/NousResearch/hermes-agent/issues/83937: `arguments: ""` for a tool without parameters is not JSON, and
    agents repeat the call without end."""
    answer = await posted(
        client, "chat/completions", {"messages": [user("sim: call ping {}")], "tools": [tool("ping")]}
    )
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert msgspec.json.decode(call["function"]["arguments"]) == {}


async def test_empty_arguments_in_a_history(client: Client) -> None:
    """github.com/openai/openai-agents-js/issues/664: a call that was recorded with `arguments: ""` ended the
    conversation."""
    call = {"id": "call_1", "type": "function", "function": {"name": "ping", "arguments": ""}}
    history = [
        user("Ping."),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "pong"},
        user("sim: say seen"),
    ]
    assert said(await posted(client, "chat/completions", {"messages": history, "tools": [tool("ping")]})) == "seen"


async def test_blocks_of_the_other_api_are_not_dropped(client: Client) -> None:
    """github.com/BerriAI/litellm/issues/25669: Anthropic's blocks in a chat message were left out in silence, and the
    model ran its tools again and again. Here the place is named."""
    block = {"type": "tool_result", "tool_use_id": "t", "content": "a cat"}
    body = {"messages": [user("Look."), {"role": "user", "content": [block]}]}
    error = (await posted(client, "chat/completions", body, 400))["error"]
    assert error["param"] == "messages[1].content[0].type"


# ---- Messages


async def test_no_tool_is_to_be_used(client: Client) -> None:
    """github.com/BerriAI/litellm/issues/24443: `tool_choice: {"type": "none"}` was answered with a 500."""
    tools = [{"name": "look", "input_schema": OBJECT}]
    answer = await posted(client, "messages", message("sim: say no", tools=tools, tool_choice={"type": "none"}))
    assert (said(answer), answer["stop_reason"]) == ("no", "end_turn")


async def test_a_system_message_among_the_others(client: Client) -> None:
    """github.com/chenyme/grok2api/issues/595: Claude Code puts `role: system` into `messages`, which was a 400."""
    messages = [user("Hello."), {"role": "system", "content": "Be concise.\nsim: say Concise."}, user("Go on.")]
    answer = await posted(client, "messages", {"max_tokens": 99, "system": "You help.", "messages": messages})
    assert said(answer) == "Concise."


async def test_a_system_message_that_comes_first(client: Client) -> None:
    """github.com/codeaashu/free-claude-code/issues/1: a role that validation did not know was a 422."""
    messages = [{"role": "system", "content": [{"type": "text", "text": "Be concise."}]}, user("sim: instructions")]
    answer = await posted(client, "messages", {"max_tokens": 99, "messages": messages}, params={"beta": "true"})
    assert "Be concise." in said(answer)


async def test_counting_tokens(client: Client) -> None:
    """github.com/BerriAI/litellm/issues/13252: Claude Code's `count_tokens?beta=true` was a 404."""
    answer = await posted(client, "messages/count_tokens", {"messages": [user("Hello.")]}, params={"beta": "true"})
    assert answer["input_tokens"] > 0


async def test_system_and_tools_are_counted(client: Client) -> None:
    """github.com/router-for-me/CLIProxyAPI/issues/679: 48 tokens were told where 728 were used: system prompt and tools
    did not count."""
    bare = (await posted(client, "messages/count_tokens", {"messages": [user("Hello.")]}))["input_tokens"]
    more = {
        "system": "You help. " * 40,
        "tools": [{"name": "look", "description": "Looks. " * 40, "input_schema": OBJECT}],
    }
    counted = (await posted(client, "messages/count_tokens", {"messages": [user("Hello.")], **more}))["input_tokens"]
    assert counted > bare + 150


async def test_a_call_has_its_name_and_input_in_the_stream(client: Client) -> None:
    """github.com/router-for-me/CLIProxyAPI/issues/3748: the tool_use block was lost from the stream, and Claude Code
    asked for the tool without end."""
    tools = [{"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]
    events = await streamed(client, "messages", message('sim: call Bash {"command": "ls"}', tools=tools))
    (start,) = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert (start["type"], start["name"], bool(start["id"])) == ("tool_use", "Bash", True)
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert msgspec.json.decode("".join(pieces)) == {"command": "ls"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


async def test_the_answer_is_told_once(client: Client) -> None:
    """github.com/hkc5/cursor-bridge/issues/1: text in `content_block_start` and again in the deltas was shown twice."""
    events = await streamed(client, "messages", message("sim: say once"))
    (start,) = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert start == {"type": "text", "text": ""}
    assert "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta") == "once"


async def test_a_signature_of_somebody_else(client: Client) -> None:
    """github.com/router-for-me/CLIProxyAPI/issues/2172: thinking that was signed elsewhere came back in the history,
    and the whole conversation was refused."""
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}
    hidden = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"}
    answered = {"role": "assistant", "content": [thought, hidden, {"type": "text", "text": "Yes."}]}
    body = message("", messages=[user("Is it?"), answered, user("sim: say on")])
    assert said(await posted(client, "messages", body)) == "on"


async def test_two_results_of_one_call(client: Client) -> None:
    """github.com/BerriAI/litellm/issues/16711: Claude Code sent two results of one call, and the upstream's refusal
    came back as a 500."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a cat"}
    messages = [user("Look."), {"role": "assistant", "content": [call]}, {"role": "user", "content": [result, result]}]
    body = {"max_tokens": 99, "messages": messages, "tools": [{"name": "look", "input_schema": OBJECT}]}
    answer = await client.http.post("/v1/messages", json={"model": "sim-auto", **body})
    assert answer.status_code in (200, 400), answer.text


# ---- Responses


async def test_input_as_a_list_of_messages_without_types(client: Client) -> None:
    """github.com/envoyproxy/ai-gateway/issues/1838: an array in `input` was a 500 without a body."""
    assert said(await posted(client, "responses", {"input": [user("sim: say hi")]})) == "hi"


async def test_an_answer_in_the_input(client: Client) -> None:
    """github.com/MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark/issues/138: an assistant's `output_text` that comes
    back in `input` was a validation error."""
    answered = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]}
    assert said(await posted(client, "responses", {"input": [user("One."), answered, user("sim: say two")]})) == "two"


async def test_tools_that_are_no_functions(client: Client) -> None:
    """github.com/CommandCodeAI/command-code/issues/885: Codex always declares `custom` and hosted tools beside
    functions, and one of them made every request a 400."""
    tools = [
        {"type": "function", "name": "exec_command", "parameters": OBJECT},
        {"type": "custom", "name": "apply_patch", "format": LARK},
        {"type": "web_search", "external_web_access": True},
    ]
    answer = await posted(client, "responses", {"input": "sim: say hi", "tools": tools})
    assert (said(answer), answer["ignored"]) == ("hi", "tools.web_search")


async def test_a_field_of_a_hosted_tool(client: Client) -> None:
    """github.com/lidge-jun/opencodex/issues/3204: a new field inside a hosted tool was refused as unsupported."""
    search = {"type": "web_search", "search_content_types": ["text", "image"]}
    assert said(await posted(client, "responses", {"input": "sim: say hi", "tools": [search]})) == "hi"


async def test_a_tool_with_a_grammar_is_called_with_plain_text(client: Client) -> None:
    """github.com/ardeyouxipianyi/workbuddy2api-intl/pull/12: `apply_patch` with a grammar was dropped, and the model
    wrote the patch as prose: status 200, and nothing happened on disk."""
    tools = [{"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": LARK}]
    script = f"sim: call apply_patch {msgspec.json.encode({'input': PATCH}).decode()}"
    events = await streamed(client, "responses", {"input": script, "tools": tools})
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", PATCH)


async def test_a_patch_in_a_history(client: Client) -> None:
    """github.com/lidge-jun/opencodex/pull/2270: a `custom_tool_call` in the history was a 422 with a misleading
    reason."""
    items = [
        user("Write it."),
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "apply_patch", "input": PATCH},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done!"},
        user("sim: say on"),
    ]
    tools = [{"type": "custom", "name": "apply_patch", "format": LARK}]
    assert said(await posted(client, "responses", {"input": items, "tools": tools})) == "on"


def seen(output: object) -> list[Json]:
    """A history in which a tool gave this."""
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    return [user("Read it."), call, {"type": "function_call_output", "call_id": "c1", "output": output}]


async def test_a_result_of_parts(client: Client) -> None:
    """github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2248: a tool's result as an array was refused, even of
    text."""
    items = [*seen([{"type": "input_text", "text": "line one"}]), user("sim: say on")]
    tools = [{"type": "function", "name": "read", "parameters": OBJECT}]
    assert said(await posted(client, "responses", {"input": items, "tools": tools})) == "on"


async def test_a_picture_in_a_result(client: Client) -> None:
    """github.com/router-for-me/CLIProxyAPI/issues/5039: a picture that a tool returned was dropped in silence."""
    picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"}
    items = seen([{"type": "input_text", "text": "Read image file [image/png]"}, picture])
    tools = [{"type": "function", "name": "read", "parameters": OBJECT}]
    answer = await client.http.post("/v1/responses", json={"model": "sim-auto", "input": items, "tools": tools})
    assert answer.status_code == 200, answer.text
    assert "1 image" in answer.text or "picture" in answer.headers.get("x-caretway-pictures", "")


async def test_reasoning_between_calls(client: Client) -> None:
    """github.com/theopenco/llmgateway/pull/2134: `reasoning` items, which Codex sends back, were not valid input."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo"}
    items = [*seen("text")[:1], thought, *seen("text")[1:], user("sim: say on")]
    tools = [{"type": "function", "name": "read", "parameters": OBJECT}]
    assert said(await posted(client, "responses", {"input": items, "tools": tools})) == "on"


async def test_a_summary_is_asked_for_by_an_item(client: Client) -> None:
    """github.com/Soju06/codex-lb/issues/971: a `compaction_trigger` was answered with no item, and Codex failed."""
    body = {"input": [user("sim: say one"), {"type": "compaction_trigger"}]}
    events = await streamed(client, "responses", body)
    done = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
    assert done == ["compaction"] == [item["type"] for item in events[-1]["response"]["output"]]


async def test_a_trigger_that_is_not_the_last_item(client: Client) -> None:
    """github.com/james-6-23/codex2api/pull/546: the VS Code client sends items after the trigger, which was refused."""
    body = {"input": [user("One."), {"type": "compaction_trigger"}, user("Two.")]}
    assert [item["type"] for item in (await posted(client, "responses", body))["output"]] == ["compaction"]


# ---- the threads themselves


def test_every_test_names_its_own_thread() -> None:
    tree = ast.parse(Path(__file__).read_text())
    tests = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")]
    links = [
        re.findall(r"github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+", ast.get_docstring(test) or "") for test in tests
    ]
    assert all(links)
    every = [link for found in links for link in found]
    assert len(every) == len(set(every)) >= 20
