"""Histories as clients send them, replayed to the profile `live`: one story for each thing that Cursor refuses."""

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from caretway_sim.manners import LIVE
from contract.gateways import Client, gateway, result, tool
from contract.test_chat import PIXEL

TOOLS = [tool("lookup", "key")]
SCRIPT = 'sim: call lookup {"key": "k"}\nsim: result'
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"}}


@pytest.fixture
async def live(transport: str) -> AsyncIterator[Client]:
    async with gateway(transport, manners=replace(LIVE, lingers_ms=0)) as client:
        yield client


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def called(*ids: str) -> dict[str, Any]:
    function = {"name": "lookup", "arguments": '{"key": "k"}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": one, "type": "function", "function": function} for one in ids],
    }


def answered(call: str, content: Any = "VALUE") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content}


@pytest.mark.parametrize("call", ["call_x|fc_y", "functions.lookup:0", "a\nb", "x" * 90, "größe"])
@pytest.mark.parametrize("model", ["gpt-5.4", "composer-2.5", "sim-auto"])
async def test_r4_r14_ids_of_other_makers(live: Client, call: str, model: str) -> None:
    """The history ends with the result: the model goes on from it, on composer-2.5 too."""
    answer = await live.chat([user(SCRIPT), called(call), answered(call)], tools=TOOLS, model=model)
    assert (answer.status, answer.text) == (200, "VALUE"), answer.error
    assert live.stats()["runs_opened"] == 1


async def test_r14_composer_answers_nothing_to_a_bare_resume(transport: str) -> None:
    history = [user(SCRIPT), called("a"), answered("a")]
    async with gateway(transport, manners=replace(LIVE, lingers_ms=0), agent_quirks={"replay": "resume"}) as client:
        slow = await client.chat(history, tools=TOOLS, model="composer-2.5@fast=false")
        assert (await client.chat(history, tools=TOOLS, model="sim-auto")).text == "VALUE"
    async with gateway(transport, manners=replace(LIVE, lingers_ms=0)) as client:
        assert (await client.chat(history, tools=TOOLS, model="composer-2.5@fast=false")).text == "VALUE"
    assert slow.text == ""


@pytest.mark.parametrize("model", ["claude-sonnet-5", "sim-auto"])
async def test_r19_a_result_without_its_call(live: Client, model: str) -> None:
    history = [user("look"), answered("gone", "ORPHAN"), {"role": "assistant", "content": "well"}, user("sim: recall")]
    answer = await live.chat(history, tools=TOOLS, model=model)
    assert answer.status == 200, answer.error
    assert "0 tool results" in answer.text
    assert "2 earlier user turns" in answer.text, "it is told as a message of the user"
    assert live.stats()["runs_opened"] == 1


async def test_r15_pairs_stay_pairs(live: Client) -> None:
    history = [user("look"), called("a|1", "b|2"), answered("b|2", "B"), answered("a|1", "A"), answered("gone")]
    answer = await live.chat([*history, user("sim: recall")], tools=TOOLS, model="gpt-5.4")
    assert "2 tool results" in answer.text


@pytest.mark.parametrize("model", ["gpt-5.4", "claude-fable-5"])
async def test_i1_pictures_in_a_history(live: Client, model: str) -> None:
    seen = user([{"type": "text", "text": "see"}, PICTURE])
    history = [seen, {"role": "assistant", "content": "a pixel"}, user("sim: say hi")]
    answer = await live.chat(history, model=model)
    assert (answer.status, answer.text) == (200, "hi"), answer.error


async def test_i1_pictures_of_results(live: Client) -> None:
    """Messages can have pictures in results; they follow the results in a message of the user."""
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    shown = [{"type": "text", "text": "VALUE"}, {"type": "image", "source": source}]
    body = {
        "model": "gpt-5.4",
        "max_tokens": 100,
        "tools": [{"name": "lookup", "input_schema": {"type": "object"}}],
        "messages": [
            user(SCRIPT),
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t.1", "name": "lookup", "input": {"key": "k"}}],
            },
            user([{"type": "tool_result", "tool_use_id": "t.1", "content": shown}]),
        ],
    }
    answer = await live.http.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["content"][0]["text"] == "VALUE"


@pytest.mark.parametrize("names", ["plain", "prefixed"])
async def test_r13_names_of_tools_in_a_replay(transport: str, names: str) -> None:
    """Both are taken; the model finds its own call and goes on from the result."""
    manners = replace(LIVE, lingers_ms=0)
    async with gateway(transport, manners=manners, agent_quirks={"names": names}) as client:
        answer = await client.chat([user(SCRIPT), called("a"), answered("a")], tools=TOOLS, model="gpt-5.4")
        assert (answer.text, answer.session) == ("VALUE", "replayed")


@pytest.mark.parametrize("stream", [False, True])
async def test_r13_a_call_by_a_prefixed_name(live: Client, stream: bool) -> None:
    messages = [user('sim: call mcp_caretway_lookup {"key": "k"}\nsim: result')]
    first = await live.chat(messages, tools=TOOLS, stream=stream)
    (call,) = first.calls
    assert call["function"]["name"] == "lookup"
    second = await live.chat([*messages, first.message, result(call, "VALUE")], tools=TOOLS, stream=stream)
    assert (second.session, second.text) == ("resumed", "VALUE")
