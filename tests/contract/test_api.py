"""Fields and paths at the edge of the public APIs, over real sockets, with the official SDKs as clients."""

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
