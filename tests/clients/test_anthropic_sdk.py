"""The real `anthropic` package against a running gateway on the simulator: real sockets, its own helpers."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic, beta_async_tool

from caretway.config import Settings
from caretway.gateway import Gateway

BASH: Any = {
    "name": "bash",
    "description": "run a shell command",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
SYSTEM: Any = [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]
ENABLED: Any = {"type": "enabled", "budget_tokens": 2000}


@pytest.fixture
async def client() -> AsyncIterator[AsyncAnthropic]:
    async with (
        Gateway(Settings(port=0, backend="simulator")) as gateway,
        AsyncAnthropic(base_url=gateway.base_url, api_key="sk-test", max_retries=0, timeout=30) as sdk,
    ):
        yield sdk


def script(*lines: str) -> Any:
    return [{"role": "user", "content": "\n".join(["Please do this.", *lines, "Thank you."])}]


def given(messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "sim-auto", "max_tokens": 1000, "system": SYSTEM, "messages": messages, **more}


async def streamed(client: AsyncAnthropic, **request: Any) -> Any:
    async with client.messages.stream(**request) as stream:
        async for _event in stream:
            pass
        return await stream.get_final_message()


def told(message: Any) -> tuple[Any, ...]:
    """The message without what differs from run to run."""
    blocks = [block.to_dict() for block in message.content]
    shown = [{key: value for key, value in block.items() if key != "id" and value is not None} for block in blocks]
    return message.role, message.model, message.stop_reason, message.stop_sequence, shown, tokens(message)


def tokens(message: Any) -> tuple[int, int]:
    """Input and output. How much of the input comes from the cache depends on what was asked before."""
    usage = message.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return usage.input_tokens + cached, usage.output_tokens


def words(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


ONE_CALL = 'sim: call bash {"command": "ls -l"}'
TWO_CALLS = 'sim: call bash {"command": "a"} & bash {"command": "b"}'


@pytest.mark.parametrize(
    ("lines", "more", "kinds", "stop_reason"),
    [
        (["sim: say PONG and more"], {}, ["text"], "end_turn"),
        (["sim: think hm hm", "sim: say PONG"], {"thinking": ENABLED}, ["thinking", "text"], "end_turn"),
        (["sim: think hm hm", "sim: say PONG"], {}, ["text"], "end_turn"),
        (["sim: say wait", ONE_CALL], {"tools": [BASH]}, ["text", "tool_use"], "tool_use"),
        ([TWO_CALLS], {"tools": [BASH]}, ["tool_use", "tool_use"], "tool_use"),
        (["sim: say one STOP two"], {"stop_sequences": ["STOP"]}, ["text"], "stop_sequence"),
    ],
    ids=["text", "thinking", "thinking nobody asked for", "one call", "two calls", "stop sequence"],
)
async def test_the_stream_helper_ends_with_the_whole_answer(
    client: AsyncAnthropic, lines: list[str], more: dict[str, Any], kinds: list[str], stop_reason: str
) -> None:
    request = given(script(*lines), **more)
    fresh = {"x-caretway-session": "fresh"}
    await client.messages.create(**request, extra_headers=fresh)  # what Cursor adds to a prompt is known from then on
    whole = await client.messages.create(**request, extra_headers=fresh)
    rebuilt = await streamed(client, **request, extra_headers=fresh)
    assert told(rebuilt) == told(whole)
    assert [block.type for block in whole.content] == kinds
    assert whole.stop_reason == stop_reason
    if stop_reason == "end_turn":
        assert min(tokens(whole)) > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("lines", "calls"), [(ONE_CALL, 1), (TWO_CALLS, 2)])
async def test_a_tool_loop(client: AsyncAnthropic, stream: bool, lines: str, calls: int) -> None:
    messages = script(lines, "sim: say FINAL", "sim: result")
    request = given(messages, tools=[BASH])
    first = await (streamed(client, **request) if stream else client.messages.create(**request))
    uses = [block for block in first.content if block.type == "tool_use"]
    assert len(uses) == calls
    messages.append({"role": "assistant", "content": [block.to_dict() for block in first.content]})
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": f"<{use.input['command']}>"} for use in uses]
    messages.append({"role": "user", "content": results})
    raw = await client.messages.with_raw_response.create(**given(messages, tools=[BASH]))
    last = await raw.parse()
    assert raw.headers["x-caretway-session"] == "resumed"
    assert last.stop_reason == "end_turn"
    assert "FINAL" in words(last)
    assert all(f"<{use.input['command']}>" in words(last) for use in uses)


async def test_the_tool_runner_gives_up_threads_and_sends_its_history(client: AsyncAnthropic) -> None:
    commands: list[str] = []

    @beta_async_tool
    async def bash(command: str) -> str:
        """Run a shell command."""
        commands.append(command)
        return f"<{command}>"

    runner = client.beta.messages.tool_runner(
        model="sim-auto",
        max_tokens=1000,
        tools=[bash],
        messages=script('sim: call bash {"command": "a"}', 'sim: call bash {"command": "b"}', "sim: result"),
    )
    last: Any = [message async for message in runner][-1]
    assert commands == ["a", "b"]
    assert "<b>" in words(last)


async def test_a_conversation_goes_on(client: AsyncAnthropic) -> None:
    messages = script("sim: think hm", "sim: say first")
    first = await client.messages.create(**given(messages, thinking=ENABLED))
    messages.append({"role": "assistant", "content": [block.to_dict() for block in first.content]})
    messages += script("sim: recall")
    raw = await client.messages.with_raw_response.create(**given(messages, thinking=ENABLED))
    assert raw.headers["x-caretway-session"] == "continued"
    assert (await raw.parse()).stop_reason == "end_turn"


@pytest.mark.parametrize("lines", [("sim: say first",), (ONE_CALL, "sim: say first", "sim: result")])
async def test_a_conversation_begun_on_the_chat_api_goes_on_here(
    client: AsyncAnthropic, lines: tuple[str, ...]
) -> None:
    function = {"name": BASH["name"], "description": BASH["description"], "parameters": BASH["input_schema"]}
    messages = script(*lines)
    begun: Any = await client.post(
        "/v1/chat/completions",
        cast_to=object,
        body={"model": "sim-auto", "messages": messages, "tools": [{"type": "function", "function": function}]},
    )
    answer = begun["choices"][0]["message"]
    calls = answer.get("tool_calls", [])
    if calls:
        uses = [{"type": "tool_use", "id": one["id"], "name": "bash", "input": {"command": "ls -l"}} for one in calls]
        messages.append({"role": "assistant", "content": uses})
        results = [{"type": "tool_result", "tool_use_id": one["id"], "content": "<listing>"} for one in calls]
        messages.append({"role": "user", "content": results})
    else:
        messages.append({"role": "assistant", "content": answer["content"]})
        messages += script("sim: recall")
    raw = await client.messages.with_raw_response.create(
        model="sim-auto", max_tokens=1000, messages=messages, tools=[BASH]
    )
    assert raw.headers["x-caretway-session"] == ("resumed" if calls else "continued")
    assert ("<listing>" if calls else "1 earlier user turn") in words(await raw.parse())


@pytest.mark.parametrize(
    ("code", "error", "kind"),
    [
        ("unauthenticated", anthropic.AuthenticationError, "authentication_error"),
        ("rate_limit", anthropic.RateLimitError, "rate_limit_error"),
        ("usage_limit", anthropic.APIStatusError, "billing_error"),
        ("overflow", anthropic.BadRequestError, "invalid_request_error"),
        ("bad_model", anthropic.BadRequestError, "invalid_request_error"),
        ("unavailable", anthropic.InternalServerError, "overloaded_error"),
        ("internal", anthropic.InternalServerError, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_byte(
    client: AsyncAnthropic, code: str, error: type[anthropic.APIStatusError], kind: str, stream: bool
) -> None:
    request = given(script(f"sim: fail {code}"))
    with pytest.raises(error) as caught:
        await (streamed(client, **request) if stream else client.messages.create(**request))
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == kind
    if code == "overflow":
        assert "prompt is too long" in body["error"]["message"].lower()


async def test_a_failure_after_the_first_byte(client: AsyncAnthropic) -> None:
    seen = ""

    async def listen() -> None:
        nonlocal seen
        async with client.messages.stream(**given(script("sim: say PART", "sim: fail internal"))) as stream:
            async for text in stream.text_stream:
                seen += text

    with pytest.raises(anthropic.APIStatusError) as caught:
        await listen()
    assert seen.strip() == "PART"
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "api_error")


async def test_count_tokens(client: AsyncAnthropic) -> None:
    plain = await client.messages.count_tokens(model="sim-auto", messages=script("hello"))
    more = await client.messages.count_tokens(model="sim-auto", messages=script("hello"), system=SYSTEM, tools=[BASH])
    assert 0 < plain.input_tokens < more.input_tokens
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.count_tokens(model="sim-auto", messages=[])


async def test_models(client: AsyncAnthropic) -> None:
    models = [model async for model in client.models.list()]
    assert "sim-auto" in [model.id for model in models]
    assert all(model.display_name and model.lifecycle == "active" for model in models)


async def test_what_is_not_served_is_not_found(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.messages.batches.list()
    body: Any = caught.value.body
    assert body["error"]["type"] == "not_found_error"


async def test_ignored_fields_are_named(client: AsyncAnthropic) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    raw = await client.messages.with_raw_response.create(
        **given(script("sim: say PONG"), tools=[search, BASH], extra_body={"top_k": 3})
    )
    assert raw.headers["x-caretway-ignored"] == "top_k, tools.web_search_20250305"
    assert "PONG" in words(await raw.parse())
