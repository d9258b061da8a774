"""A web search that Cursor makes itself, as the official SDKs see it in each API, and the conversation after it."""

from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from caretway.backends.builtin_tools.queries import NO_WEB_SEARCH
from caretway_sim.execs import FOUND
from caretway_sim.manners import LIVE
from contract.gateways import Client, gateway

QUERY = 'sim: query web_search {"search_term": "caretway"}'
SCRIPT = f"sim: say Let me look.\n{QUERY}\nsim: say See {FOUND.url} for more."
TEXT = f"See {FOUND.url} for more."
ALL = f"Let me look.{TEXT}"
OPENAI: Any = {"type": "web_search", "external_web_access": True}
ANTHROPIC: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
TOOL: Any = {"type": "function", "name": "lookup", "parameters": {"type": "object"}}
ACTION = {
    "type": "search",
    "query": "caretway",
    "queries": ["caretway"],
    "sources": [{"type": "url", "url": FOUND.url}],
}


def openai_of(client: Client) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{client.gateway.base_url}/v1", api_key="any", max_retries=0)


def anthropic_of(client: Client) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=client.gateway.base_url, api_key="any", max_retries=0)


def plain(value: Any) -> Any:
    return value.model_dump(exclude_none=True)


async def test_responses_stream_and_whole_are_one(transport: str) -> None:
    asked: Any = {"model": "sim-auto", "input": SCRIPT, "tools": [OPENAI, TOOL]}
    async with gateway(transport, manners=LIVE, web_search="cursor") as client, openai_of(client) as sdk:
        async with await sdk.responses.create(**asked, stream=True) as stream:
            events = [event async for event in stream]
        kinds = [event.type.removeprefix("response.") for event in events]
        first = kinds.index("web_search_call.in_progress")
        assert kinds[first - 1 : first + 4] == [
            "output_item.added",
            *(f"web_search_call.{state}" for state in ("in_progress", "searching", "completed")),
            "output_item.done",
        ]
        assert "output_text.annotation.added" in kinds
        last: Any = events[-1]
        whole = await sdk.responses.with_raw_response.create(**asked)
        assert "x-caretway-ignored" not in whole.headers
        for response in (last.response, whole.parse()):
            before, search, answer = response.output
            assert (search.type, search.status, plain(search.action)) == ("web_search_call", "completed", ACTION)
            assert (before.content[0].text, before.content[0].annotations) == ("Let me look.", [])
            (cited,) = answer.content[0].annotations
            assert answer.content[0].text[cited.start_index : cited.end_index] == cited.url == FOUND.url
            assert cited.title == FOUND.title


async def test_a_search_in_the_history_continues_the_conversation() -> None:
    async with gateway(manners=LIVE, web_search="cursor") as client:
        async with openai_of(client) as sdk:
            first = await sdk.responses.create(model="sim-auto", input=SCRIPT, tools=[OPENAI])
            said = [{"role": "user", "content": SCRIPT}, *[plain(item) for item in first.output]]
            asked: Any = [*said, {"role": "user", "content": "sim: recall"}]
            again = await sdk.responses.with_raw_response.create(model="sim-auto", input=asked, tools=[OPENAI])
            assert again.headers["x-caretway-session"] == "continued"
        async with anthropic_of(client) as other:
            prompt: Any = {"role": "user", "content": SCRIPT}
            given: Any = {"model": "sim-auto", "max_tokens": 99, "tools": [ANTHROPIC]}
            message = await other.messages.create(**given, messages=[prompt])
            asked = [
                prompt,
                {"role": "assistant", "content": plain(message)["content"]},
                {"role": "user", "content": "x"},
            ]
            raw = await other.messages.with_raw_response.create(**given, messages=asked)
            assert raw.headers["x-caretway-session"] == "continued"
        assert client.stats()["runs_opened"] == 4


async def test_messages_stream_and_whole(transport: str) -> None:
    given: Any = {"model": "sim-auto", "max_tokens": 99, "tools": [ANTHROPIC]}
    given["messages"] = [{"role": "user", "content": SCRIPT}]
    async with gateway(transport, manners=LIVE, web_search="cursor") as client, anthropic_of(client) as sdk:
        async with sdk.messages.stream(**given) as stream:
            streamed = await stream.get_final_message()
        whole = await sdk.messages.create(**given)
        for message in (streamed, whole):
            assert message.stop_reason == "end_turn"
            content: Any = message.content
            uses = [block for block in content if block.type == "server_tool_use"]
            results = [block for block in content if block.type == "web_search_tool_result"]
            texts = [block for block in content if block.type == "text"]
            assert [(use.name, use.input, use.id) for use in uses] == [
                ("web_search", {"query": "caretway"}, results[0].tool_use_id)
            ]
            assert [(page.url, page.title) for page in results[0].content] == [(FOUND.url, FOUND.title)]
            assert "".join(block.text for block in texts) == ALL
            (cited,) = texts[-1].citations
            assert (cited.url, cited.title, cited.cited_text) == (FOUND.url, FOUND.title, FOUND.chunk)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_chat_shows_the_citation_alone(stream: bool) -> None:
    async with gateway(manners=LIVE, web_search="cursor") as client:
        answer = await client.chat(SCRIPT, stream=stream, web_search_options={})
        assert (answer.text, answer.calls, answer.finish) == (ALL, (), "stop")
        message = answer.chunks[-3]["choices"][0]["delta"] if stream else answer.message
        if stream:
            (cited,) = message["annotations"]
            assert answer.text[cited["url_citation"]["start_index"] : cited["url_citation"]["end_index"]] == FOUND.url


async def test_clients_that_offer_no_search_see_none_of_it() -> None:
    async with gateway(manners=LIVE, web_search="cursor") as client, openai_of(client) as sdk:
        response = await sdk.responses.create(model="sim-auto", input=SCRIPT, tools=[TOOL])
        assert [item.type for item in response.output] == ["message"]


@pytest.mark.parametrize("by", ["off", "client"])
async def test_a_model_without_a_search_is_told_so(by: Any) -> None:
    async with gateway(manners=LIVE, web_search=by) as client:
        async with openai_of(client) as sdk:
            asked = f"{QUERY}\nsim: result\nsim: instructions"
            raw = await sdk.responses.with_raw_response.create(model="sim-auto", input=asked, tools=[OPENAI])
            response = raw.parse()
            assert [item.type for item in response.output] == ["message"]
            assert response.output_text.startswith("rejected: ")
            assert response.output_text.endswith(NO_WEB_SEARCH)
            assert raw.headers["x-caretway-ignored"] == "tools.web_search"
        for more in ({}, {"tools": [ANTHROPIC]}):
            body = {
                "model": "sim-auto",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "sim: instructions"}],
            }
            answer = (await client.http.post("/v1/messages", json=body | more)).json()
            assert (NO_WEB_SEARCH in str(answer["content"])) == bool(more)


async def test_a_cut_after_the_search_shows_it_once(transport: str) -> None:
    asked: Any = {"model": "sim-auto", "input": SCRIPT.replace("\nsim: say See", "\nsim: drop\nsim: say See")}
    async with gateway(transport, manners=LIVE, web_search="cursor") as client, openai_of(client) as sdk:
        response = await sdk.responses.create(**asked, tools=[OPENAI])
        assert [item.type for item in response.output] == ["message", "web_search_call", "message"]
        assert client.stats()["runs_opened"] == 2
