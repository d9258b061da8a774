"""Conversations across user turns: recognised by their exact transcript, continued from their checkpoint."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from caretway_sim.accounts import Accounts
from caretway_sim.manners import Manners
from caretway_sim.model_input import PREAMBLE_TOKENS
from caretway_sim.shared import Shared
from contract.gateways import Answer, Client, gateway, gateway_to, result, simulated, tool

TOOLS = [tool("lookup", "key")]


pytestmark = pytest.mark.both_profiles


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def say(client: Client, talk: list[dict[str, Any]], text: str, **more: Any) -> Answer:
    talk.append(user(text))
    answer = await client.chat(talk, **more)
    assert answer.status == 200, answer.error
    talk.append(answer.message)
    return answer


async def test_the_second_turn_sends_only_what_is_new(client: Client, stream: bool) -> None:
    talk: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    first = await say(client, talk, "sim: say The codeword is PELICAN", stream=stream)
    second = await say(client, talk, "sim: recall", stream=stream)
    assert (first.session, second.session) == ("fresh", "continued")
    assert "PELICAN" in second.text
    third = await say(client, talk, "sim: recall", stream=stream)
    assert third.session == "continued"
    assert (second.text.split()[0], third.text.split()[0]) == ("1", "2"), "earlier user turns"


@pytest.mark.seed("J02")
async def test_a_tool_loop_is_part_of_the_conversation(client: Client) -> None:
    """Upstream it is one conversation, too: each turn names it and sends its own words only."""
    talk = [user('sim: call lookup {"key": "a"}\nsim: result')]
    first = await client.chat(talk, tools=TOOLS)
    talk += [first.message, result(first.calls[0], "HERON")]
    second = await client.chat(talk, tools=TOOLS)
    talk.append(second.message)
    third = await say(client, talk, "sim: recall", tools=TOOLS)
    fourth = await say(client, talk, "sim: recall", tools=TOOLS)
    labels = [answer.session for answer in (first, second, third, fourth)]
    assert labels == ["fresh", "resumed", "continued", "continued"]
    assert client.stats()["runs_opened"] == 3
    assert third.text.startswith("1 earlier user turn and 1 tool result. ")
    assert fourth.text.startswith("2 earlier user turns and 1 tool result. ")
    owner = Accounts(Shared()).person("test-token").name
    opening, *later = reversed(client.simulator.billed.of(owner, sys.maxsize))
    assert {run.conversation for run in later} == {opening.conversation}
    assert all(run.read < 100 < run.cached for run in later)


Talk = list[dict[str, Any]]

RESENT: dict[str, Callable[[Talk], Talk]] = {
    "white space": lambda talk: [*talk[:-1], {"role": "assistant", "content": "  " + talk[-1]["content"] + "\n"}],
    "parts": lambda talk: [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in talk],
    "reasoning": lambda talk: [*talk[:-1], {**talk[-1], "reasoning_content": "I thought"}],
}


@pytest.mark.parametrize("change", RESENT)
async def test_what_clients_change_when_they_resend_does_not_matter(client: Client, change: str) -> None:
    talk: list[dict[str, Any]] = []
    await say(client, talk, "sim: say hello there")
    answer = await client.chat([*RESENT[change](talk), user("sim: recall")])
    assert answer.session == "continued"


DIVERGED: dict[str, Callable[[Talk], Talk]] = {
    "edited question": lambda talk: [user("sim: say something else"), *talk[1:]],
    "edited answer": lambda talk: [*talk[:-1], {"role": "assistant", "content": "I never said that"}],
    "other system prompt": lambda talk: [{"role": "system", "content": "New rules."}, *talk],
    "compaction": lambda talk: [user("Summary: they said hello.")],
}


@pytest.mark.parametrize("change", DIVERGED)
async def test_anything_else_is_another_conversation(client: Client, change: str) -> None:
    talk: list[dict[str, Any]] = []
    await say(client, talk, "sim: say hello there")
    other = await client.chat([*DIVERGED[change](talk), user("sim: recall")])
    assert other.session in ("fresh", "replayed")
    answer = await client.chat([*talk, user("sim: recall")])
    assert answer.session == "continued", "the conversation itself is left alone"


async def test_side_calls_do_not_disturb(client: Client) -> None:
    talk: list[dict[str, Any]] = [{"role": "system", "content": "Agent."}]
    await say(client, talk, "sim: say hello", tools=TOOLS)
    title = await client.chat([{"role": "system", "content": "Make a title."}, *talk[1:], user("sim: say A title")])
    assert title.session == "replayed"
    assert (await say(client, talk, "sim: recall", tools=TOOLS)).session == "continued"


@pytest.mark.seed("J01")
async def test_fresh_replays_everything(client: Client) -> None:
    talk: list[dict[str, Any]] = []
    await say(client, talk, "sim: say The codeword is STORK")
    answer = await say(client, talk, "sim: recall", headers={"x-caretway-session": "fresh"})
    assert answer.session == "replayed"
    assert "STORK" in answer.text


async def test_restart_in_between(transport: str, tmp_path: Any, manners: Manners) -> None:
    talk: list[dict[str, Any]] = []
    async with simulated(manners) as (simulator, port):
        async with gateway_to(simulator, port, transport, data_dir=tmp_path) as client:
            await say(client, talk, "sim: say The codeword is CRANE")
        async with gateway_to(simulator, port, transport, data_dir=tmp_path) as client:
            answer = await say(client, talk, "sim: recall")
        assert answer.session == "continued"
        assert "CRANE" in answer.text
    async with gateway(transport, manners=manners, data_dir=tmp_path) as client:
        answer = await say(client, talk, "sim: recall")
        assert answer.session == "replayed", "another host is another home: its conversations are not mixed in"


def once(talk: Talk) -> int:
    """Tokens of every message sent exactly once, at the simulator's own rate of four bytes a token."""
    return sum(-(-len(message["content"].encode()) // 4) for message in talk[:-1])


async def test_ten_turns_cost_what_their_messages_cost(client: Client, manners: Manners) -> None:
    """The last answer is not part of any prompt. Printed, because the README quotes these numbers. Cursor's own
    preamble is in the cache by then: whoever comes first pays for it, once."""
    await client.chat("sim: say warm")
    if not manners.empty_tools_drop_preamble:
        assert client.stats()["tokens_in_uncached"] > PREAMBLE_TOKENS
    cost: dict[str, int] = {}
    for mode in ("auto", "fresh"):
        client.simulator.stats.reset()
        talk: Talk = [{"role": "system", "content": f"Be {mode}. " + "Rules matter. " * 50}]
        for number in range(10):
            prompt = f"sim: say answer {number} " + "words " * 40
            await say(client, talk, prompt, headers={"x-caretway-session": mode})
        stats = client.stats()
        assert stats["runs_opened"] == 10
        cost[mode] = stats["tokens_in_uncached"]
    print(f"ten turns, uncached input tokens: {cost['auto']} with session reuse, {cost['fresh']} with fresh sessions")
    assert abs(cost["auto"] - once(talk)) <= 0.1 * once(talk)
    assert cost["fresh"] > 4 * cost["auto"]
