"""Fields and paths at the edge of the public APIs, over real sockets, with the official SDKs as clients."""

from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from contract.gateways import Client, gateway

LONG = "sim: say " + "word " * 50


@pytest.fixture
def transport() -> str:
    return "h2"


@pytest.mark.parametrize("max_tokens", ["ignore", "cut"])
@pytest.mark.parametrize("stream", [False, True])
async def test_max_tokens_is_ignored_or_cut(max_tokens: str, stream: bool) -> None:
    async with gateway(max_tokens=max_tokens) as client:
        answer = await client.chat(LONG, stream=stream, max_completion_tokens=5)
        if max_tokens == "ignore":
            assert (answer.finish, len(answer.text.split())) == ("stop", 50)
            assert "max_completion_tokens" in answer.headers["x-caretway-ignored"]
        else:
            assert (answer.finish, answer.text) == ("length", ("word " * 50)[:20])
            assert "x-caretway-ignored" not in answer.headers
        body = {"model": "sim-auto", "max_tokens": 5, "messages": [{"role": "user", "content": LONG}]}
        message = (await client.http.post("/v1/messages", json=body)).json()
        assert message["stop_reason"] == ("end_turn" if max_tokens == "ignore" else "max_tokens")
        asked = {"model": "sim-auto", "max_output_tokens": 5, "input": LONG}
        response = (await client.http.post("/v1/responses", json=asked)).json()
        assert response["status"] == ("completed" if max_tokens == "ignore" else "incomplete")
        assert client.gateway.tenants.live == 0


async def test_the_old_completions_with_the_official_sdk(client: Client) -> None:
    async with openai.AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="any") as sdk:
        whole = await sdk.completions.create(model="sim-auto", prompt="sim: say one two")
        assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("one two", "stop")
        pieces = [
            choice.text
            async for chunk in await sdk.completions.create(model="sim-auto", prompt="sim: say one two", stream=True)
            for choice in chunk.choices
        ]
        assert "".join(pieces) == "one two"
        with pytest.raises(openai.BadRequestError, match="fill in between"):
            await sdk.completions.create(model="sim-auto", prompt="a", suffix="b")


async def test_pages_of_models_with_the_official_sdk(client: Client) -> None:
    async with anthropic.AsyncAnthropic(base_url=client.gateway.base_url, api_key="any") as sdk:
        every = [model.id async for model in sdk.models.list(limit=1000)]
        paged = [model.id async for model in sdk.models.list(limit=2)]
    assert len(every) > 2
    assert paged == every


TEXTS = ["word " * 400, "Что такое шлюз? " * 60, "令牌不是字符。" * 80]


@pytest.mark.parametrize("text", TEXTS, ids=["English", "Russian", "Chinese"])
async def test_a_count_is_what_the_simulator_counts(client: Client, text: str) -> None:
    """Within ten per cent, without the preamble that no client sees."""
    tool = {"name": "look", "description": "Looks at it. " * 20, "input_schema": {"type": "object", "properties": {}}}
    body: dict[str, Any] = {
        "model": "sim-auto",
        "max_tokens": 99,
        "system": "Be brief. " * 30,
        "tools": [tool],
        "messages": [{"role": "user", "content": f"sim: say ok\n{text}"}],
    }
    counted = (await client.http.post("/v1/messages/count_tokens", json=body)).json()["input_tokens"]
    stats = client.stats()
    before = stats["tokens_in_uncached"] + stats["tokens_in_cached"]
    assert (await client.http.post("/v1/messages", json=body)).status_code == 200
    stats = client.stats()
    read = stats["tokens_in_uncached"] + stats["tokens_in_cached"] - before - 12_000
    print(f"counted {counted}, the simulator read {read}")
    assert counted == pytest.approx(read, rel=0.1)
    asked = {"model": "sim-auto", "input": text}
    told = (await client.http.post("/v1/responses/input_tokens", json=asked)).json()
    assert told == {"object": "response.input_tokens", "input_tokens": -(-len(text.encode()) // 4)}


async def test_a_conversation_is_compacted_and_goes_on(client: Client) -> None:
    """Shortened through the official SDK; the first request after it says so, the second continues."""
    tools: Any = [{"type": "function", "name": "bash", "parameters": {"type": "object"}}]
    named = {"session-id": "s1"}
    async with openai.AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="any") as sdk:
        history: list[Any] = []

        async def turn(text: str) -> tuple[str, str]:
            history.append({"role": "user", "content": text})
            raw = await sdk.responses.with_raw_response.create(
                model="sim-auto", input=history, tools=tools, store=False, extra_headers=named
            )
            history.extend(item.model_dump(exclude_none=True) for item in raw.parse().output)
            return raw.headers["x-caretway-session"], raw.headers["x-caretway-session-reason"]

        outcomes = [await turn(f"sim: say answer {i}") for i in range(4)]
        assert [outcome for outcome, _ in outcomes] == ["fresh", "continued", "continued", "continued"]
        compacted = await sdk.responses.with_raw_response.compact(model="sim-auto", input=history)
        assert [item.type for item in compacted.parse().output] == ["message"] * 4 + ["compaction"]
        history[:] = compacted.http_response.json()["output"]
        assert await turn("sim: say after") == ("fresh", "compacted")
        assert (await turn("sim: say later"))[0] == "continued"
        assert client.gateway.tenants.live == 0


async def test_a_trigger_compacts_through_the_official_sdk(client: Client, stream: bool) -> None:
    """As Codex does where its provider is named OpenAI: exactly one item, which stands for the conversation."""
    async with openai.AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="any") as sdk:
        history: Any = [
            {"role": "user", "content": "sim: say one"},
            {"role": "assistant", "content": "one"},
            {"type": "compaction_trigger"},
        ]
        tools: Any = [{"type": "function", "name": "bash", "parameters": {"type": "object"}}]
        if stream:
            events = [
                event
                async for event in await sdk.responses.create(
                    model="sim-auto", input=history, tools=tools, store=False, stream=True
                )
            ]
            last = events[-1]
            assert last.type == "response.completed"
            output = last.response.output
            done = [event.item for event in events if event.type == "response.output_item.done"]
            assert done == output
        else:
            output = (await sdk.responses.create(model="sim-auto", input=history, tools=tools, store=False)).output
        (item,) = output
        assert item.type == "compaction"
        after: Any = [item.model_dump(), {"role": "user", "content": "sim: recall"}]
        told = await sdk.responses.create(model="sim-auto", input=after, tools=tools, store=False)
        assert "Summary of the conversation" in told.output_text
        assert client.gateway.tenants.live == 0


async def test_a_summary_through_anthropic_s_sdk(client: Client, stream: bool) -> None:
    """`compaction`: a block alone, which a later request sends back in place of what it summarises."""
    asked: Any = {
        "model": "sim-auto",
        "max_tokens": 999,
        "tools": [{"name": "bash", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [{"role": "user", "content": "sim: say one"}, {"role": "assistant", "content": "one"}],
    }
    summarize: Any = {"compaction": {"type": "summarize", "instructions": "sim: say They said one."}}
    async with anthropic.AsyncAnthropic(base_url=client.gateway.base_url, api_key="any") as sdk:
        if stream:
            async with sdk.beta.messages.stream(**asked, **summarize) as events:
                message: Any = await events.get_final_message()
        else:
            message = await sdk.beta.messages.create(**asked, **summarize)
        (block,) = message.content
        assert (message.stop_reason, block.type, block.content) == ("compaction", "compaction", "They said one.")
        shortened = [
            {"role": "user", "content": [block.model_dump(exclude_none=True)]},
            {"role": "user", "content": "sim: recall"},
        ]
        told: Any = await sdk.beta.messages.create(**(asked | {"messages": shortened}))
        assert "They said one." in told.content[0].text
        assert client.gateway.tenants.live == 0


async def test_a_history_that_keeps_what_was_summarised_is_compacted_once(client: Client) -> None:
    """Clients of Anthropic append the block and send the whole history again: what is before it does not count."""
    said: Any = [{"role": "user", "content": "long ago " * 500}]
    asked: Any = {"model": "sim-auto", "max_tokens": 999, "messages": said}
    trigger = {"type": "input_tokens", "value": 1000}
    edit = {"type": "compact_20260112", "pause_after_compaction": True, "trigger": trigger}
    asked["context_management"] = {"edits": [edit | {"instructions": "sim: say They said one."}]}
    async with anthropic.AsyncAnthropic(base_url=client.gateway.base_url, api_key="any") as sdk:
        summary: Any = await sdk.beta.messages.create(**asked)
        assert summary.stop_reason == "compaction"
        said.append({"role": "assistant", "content": summary.content})
        said.append({"role": "user", "content": "sim: recall"})
        told: Any = await sdk.beta.messages.create(**asked)
        assert told.stop_reason == "end_turn"
        assert "They said one." in told.content[0].text
        assert "long ago" not in told.content[0].text


SESSION = "240a7dc9-d31d-44bf-875f-819d8a37eb0a"
SUMMARY = "Here is what happened so far. " * 20
# path, where the client names its session, a prompt's tools
NAMED = {
    "opencode": ("/v1/chat/completions", {"x-opencode-session": SESSION}, {}),
    "opencode, own provider": ("/v1/chat/completions", {"x-session-id": SESSION}, {}),
    "codex": ("/v1/responses", {"session-id": SESSION}, {}),
    "codex, older": ("/v1/responses", {"session_id": SESSION}, {}),
    "claude code": ("/v1/messages", {"x-claude-code-session-id": SESSION}, {}),
    "claude code, JSON": ("/v1/messages", {}, {"user_id": f'{{"device_id":"d","session_id":"{SESSION}"}}'}),
    "claude code, older": ("/v1/messages", {}, {"user_id": f"user_0a1b_account__session_{SESSION}"}),
}


def body_for(path: str, said: list[dict[str, Any]], metadata: dict[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    body: dict[str, Any] = {"model": "sim-auto", "messages": said, "tools": []}
    if path.endswith("completions"):
        return body | {"tools": [{"type": "function", "function": {"name": "bash", "parameters": schema}}]}
    if path.endswith("responses"):
        tools = [{"type": "function", "name": "bash", "parameters": schema}]
        return {"model": "sim-auto", "input": said, "tools": tools, "store": False}
    return body | {"max_tokens": 99, "tools": [{"name": "bash", "input_schema": schema}], "metadata": metadata}


def text_in(path: str, answer: dict[str, Any]) -> str:
    read: dict[str, Callable[[], Any]] = {
        "completions": lambda: answer["choices"][0]["message"]["content"],
        "responses": lambda: answer["output"][0]["content"][0]["text"],
        "messages": lambda: answer["content"][0]["text"],
    }
    return str(read[path.rpartition("/")[2]]())


@pytest.mark.parametrize("name", NAMED)
async def test_a_client_s_own_name_for_its_session(client: Client, name: str) -> None:
    """With it a shortened conversation is found again. It alone resumes nothing: another history under it is new."""
    path, headers, metadata = NAMED[name]
    said: list[dict[str, Any]] = []

    async def turn(text: str, headers: dict[str, str] = headers) -> tuple[str, str]:
        said.append({"role": "user", "content": text})
        answer = await client.http.post(path, json=body_for(path, said, metadata), headers=headers)
        assert answer.status_code == 200, answer.text
        said.append({"role": "assistant", "content": text_in(path, answer.json())})
        return answer.headers["x-caretway-session"], answer.headers["x-caretway-session-reason"]

    outcomes = [(await turn(f"sim: say answer {i}"))[0] for i in range(3)]
    assert outcomes == ["fresh", "continued", "continued"]
    said[:] = [{"role": "user", "content": SUMMARY}, {"role": "assistant", "content": "I know."}]
    assert await turn("sim: recall") == ("replayed", "compacted")
    assert "answer 0" not in said[-1]["content"]
    assert (await turn("sim: say on"))[0] == "continued"
    said.clear()
    assert await turn("sim: recall") == ("fresh", "first message")
    assert "0 earlier" in said[-1]["content"] or "no earlier" in said[-1]["content"], said[-1]
    assert client.gateway.tenants.live == 0


UNKNOWN_WORDS: list[dict[str, Any]] = [
    {"reasoning": {"effort": "ultra"}},
    {"reasoning": {"summary": "long"}},
    {"truncation": "always"},
    {"text": {"verbosity": "chatty"}},
]


@pytest.mark.parametrize("fields", UNKNOWN_WORDS, ids=lambda fields: next(iter(fields)))
async def test_a_word_that_is_not_known_does_not_come_back(client: Client, fields: dict[str, Any]) -> None:
    """The response repeats what was asked for. The SDKs' types, which read every answer here, know no other words."""
    answer = await client.http.post("/v1/responses", json={"model": "sim-auto", "input": "sim: say ok", **fields})
    assert answer.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_background_response_is_refused(client: Client, stream: bool) -> None:
    sdk = openai.AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="any", max_retries=0)
    async with sdk:
        with pytest.raises(openai.BadRequestError, match="Leave `background` out, and use `stream`") as refused:
            await sdk.responses.create(model="sim-auto", input="sim: say hello", background=True, stream=stream)
    assert (refused.value.param, refused.value.code) == ("background", "unsupported")
    assert client.stats()["runs_opened"] == 0


async def test_a_path_that_is_nobodys_speaks_as_the_client_does(client: Client) -> None:
    marked = {"anthropic-version": "2023-06-01"}
    theirs = (await client.http.post("/v1/files", json={}, headers=marked)).json()
    assert (theirs["type"], theirs["error"]["type"]) == ("error", "not_found_error")
    ours = (await client.http.post("/v1/files", json={})).json()
    assert ours["error"]["code"] == "not_found"
