"""What is offered beside a client's tools and how calls come back, with one well-behaved server for all tests."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from contract.bridge.servers import bridged, odd
from contract.gateways import Client, result, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    async with bridged({"odd": odd()}, mcp_result_bytes=1000) as running:
        yield running


def call(name: str, text: str = "") -> str:
    return f"sim: call mcp__odd__{name} {json.dumps({'text': text})}\nsim: result"


@pytest.mark.seed("K04")
async def test_results_are_passed_on_faithfully_and_bounded(client: Client) -> None:
    assert '{"sum": 7}' in (await client.chat(call("sum"))).text
    assert "no such file" in (await client.chat(call("write"))).text
    big = (await client.chat(call("big", "100000"))).text
    assert big.count("x") < 1100
    assert "[Cut by the gateway: 99000 more bytes." in big


async def test_a_tool_of_the_same_name_is_the_clients(client: Client) -> None:
    answer = await client.chat(call("echo", "hi"), tools=[tool("mcp__odd__echo", "text")])
    assert [one["function"]["name"] for one in answer.calls] == ["mcp__odd__echo"]


@pytest.mark.parametrize("choice", ["none", "required", {"type": "function", "function": {"name": "read"}}])
async def test_a_tool_choice_speaks_of_the_clients_tools(client: Client, choice: object) -> None:
    script = 'sim: call mcp__odd__echo {"text": "hi"} & read {"path": "a"}\nsim: result'
    answer = await client.chat(script, tools=[tool("read", "path")], tool_choice=choice)
    assert "plain says" not in answer.text
    assert [one["function"]["name"] for one in answer.calls] == ([] if choice == "none" else ["read"])


async def test_the_loop_guard_counts_bridged_calls(client: Client) -> None:
    answer = await client.chat('sim: loop mcp__odd__sum {"text": "x"}')
    assert answer.status == 502
    assert answer.error is not None
    assert answer.error["code"] == "tool_loop_detected"
    assert "`mcp__odd__sum`" in answer.error["message"]


async def test_results_for_a_mixed_step_wait_with_the_parked_turn(client: Client) -> None:
    """The client is quicker than the bridged call: its results wait, and the model gets both at once."""
    script = 'sim: call mcp__odd__slow {"text": "3"} & read {"path": "a"}\nsim: result'
    offered = [tool("read", "path")]
    first = await client.chat(script, tools=offered)
    answered = [{"role": "user", "content": script}, first.message, result(first.calls[0], "read by the client")]
    second = await client.chat(answered, tools=offered, stream=True)
    assert second.session == "resumed"
    assert "slow done" in second.text
    assert "read by the client" in second.text
