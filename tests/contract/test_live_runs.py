"""Runs as others recorded them, gateway against the profile `live` on real sockets. Tests carry the names of rows."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from caretway.cursor.wire import paths
from caretway_sim.manners import LIVE, Manners
from contract.gateways import Client, gateway, result, tool
from contract.sim_peer import STREAM

SWIFT = replace(LIVE, lingers_ms=0)
TOOLS = [tool("lookup", "key"), tool("other", "key")]
LONG_KEY = "k" * 300


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


async def loop(client: Client, script: str, *, stream: bool = False, model: str = "sim-auto") -> list[str]:
    """The names of the calls of one conversation in order, and its last words; every call is answered with its key."""
    messages, said = [user(script)], list[str]()
    while True:
        answer = await client.chat(messages, tools=TOOLS, stream=stream, model=model)
        assert answer.status == 200, answer.error
        messages.append(answer.message)
        if not answer.calls:
            return [*said, answer.text]
        for call in answer.calls:
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["id"]), "no id of Cursor's reaches a client"
            said.append(call["function"]["name"])
            messages.append(result(call, json.loads(call["function"]["arguments"]).get("key", "nothing")))


CALLED = (
    f'sim: call lookup {{"key": "{LONG_KEY}"}}\nsim: call other {{}}\nsim: call lookup {{"key": "last"}}\nsim: result'
)


@pytest.mark.parametrize("told", ["all so far", "pieces"])
async def test_r1_arguments_come_whole_each_time_or_in_pieces(transport: str, stream: bool, told: Any) -> None:
    async with gateway(transport, manners=replace(SWIFT, argument_text=told)) as client:
        assert await loop(client, CALLED, stream=stream) == ["lookup", "other", "lookup", "last"]
        assert client.stats()["runs_opened"] == 1


async def test_r2_two_ids_of_a_call_are_one_call(transport: str, stream: bool) -> None:
    both = 'sim: call lookup {"key": "a"} & lookup {"key": "b"}\nsim: result'
    async with gateway(transport, manners=replace(SWIFT, two_ids=True)) as client:
        assert await loop(client, CALLED, stream=stream) == ["lookup", "other", "lookup", "last"]
        assert await loop(client, both, stream=stream) == ["lookup", "lookup", "a\nb"]
        assert client.stats()["runs_opened"] == 2


async def test_r3_ids_with_a_newline_stay_inside(transport: str, stream: bool) -> None:
    assert SWIFT.long_ids
    async with gateway(transport, manners=SWIFT) as client:
        assert await loop(client, CALLED, stream=stream) == ["lookup", "other", "lookup", "last"]


async def test_r6_an_announced_number_of_calls_ends_a_step(transport: str) -> None:
    """Nothing else would: the silence that ends a step takes longer here than the test may."""
    announced = replace(SWIFT, lists_calls=True)
    async with (
        asyncio.timeout(60),
        gateway(transport, manners=announced, agent_quirks={"sibling_quiet": 40, "sibling_cap": 40}) as client,
    ):
        answer = await client.chat('sim: call lookup {"key": "a"} & other {}', tools=TOOLS)
        assert len(answer.calls) == 2


@pytest.mark.parametrize("by", ["tokens", "blobs"])
async def test_r7_every_kind_of_progress_counts(transport: str, by: str) -> None:
    """The clock is looked at with each heartbeat."""
    async with gateway(transport, manners=SWIFT, progress_timeout=1, client_heartbeat=0.1) as client:
        assert (await client.chat(f"sim: ponder 3000 {by}\nsim: say hi")).text == "hi"
        assert client.stats()["runs_opened"] == 1
        stalled = await client.chat("sim: hang")
        assert stalled.error is not None and "made no progress" in stalled.error["message"]


async def test_r9_a_body_that_stays_open_keeps_nobody_waiting(transport: str, stream: bool) -> None:
    async with asyncio.timeout(30), gateway(transport, manners=replace(LIVE, lingers_ms=600_000)) as client:
        answer = await client.chat("sim: say hi", stream=stream)
        assert (answer.text, answer.finish) == ("hi", "stop")
        while client.simulator.open_runs:  # and we do not keep it either
            await asyncio.sleep(0.05)


async def test_r9_what_is_stored_after_text_is_no_end(transport: str) -> None:
    script = 'sim: say first\nsim: ponder 300 blobs\nsim: call lookup {"key": "v"}\nsim: result'
    async with gateway(transport, manners=SWIFT) as client:
        assert await loop(client, script) == ["lookup", "v"]
        assert client.stats()["runs_opened"] == 1


async def test_r9_an_end_with_a_call_open_is_a_cut(transport: str, stream: bool) -> None:
    """The client has the call. Its result is told to a new run."""
    script = 'sim: call lookup {"key": "v"}\nsim: abandon\nsim: result'
    async with gateway(transport, manners=SWIFT) as client:
        assert await loop(client, script, stream=stream) == ["lookup", "v"]
        assert client.stats()["runs_opened"] == 2


async def test_r10_a_checkpoint_that_is_too_large_is_not_kept(transport: str) -> None:
    async with gateway(transport, manners=replace(SWIFT, bloats_checkpoints=True)) as client:
        first = await client.chat("sim: say one")
        again = await client.chat([user("sim: say one"), first.message, user("sim: recall")])
        assert (again.session, again.status) == ("replayed", 200)
        assert "1 earlier user turn" in again.text
    async with gateway(transport, manners=SWIFT) as client:
        first = await client.chat("sim: say one")
        again = await client.chat([user("sim: say one"), first.message, user("sim: recall")])
        assert again.session == "continued"


@pytest.mark.parametrize("delivery", ["rule", "message"])
async def test_r11_instructions_reach_the_model_in_every_way(transport: str, delivery: str) -> None:
    system = {"role": "system", "content": "Speak like a pirate."}
    async with gateway(transport, manners=SWIFT, agent_quirks={"system": delivery}) as client:
        first = await client.chat([system, user("sim: instructions")])
        assert "Speak like a pirate." in first.text
        talk = [system, user("sim: instructions"), first.message, user("sim: instructions")]
        again = await client.chat(talk)
        assert "Speak like a pirate." in again.text, again.session
        talk[1] = user("something else\nsim: instructions")
        replayed = await client.chat(talk)
        assert "Speak like a pirate." in replayed.text
        assert (again.session, replayed.session) == ("continued", "replayed")


async def test_r12_a_continued_conversation_knows_its_first_turn(transport: str) -> None:
    async with gateway(transport, manners=SWIFT) as client:
        talk = [user("the code word is azure\nsim: say one")]
        for words in ("sim: say two", "sim: recall"):
            talk += [(await client.chat(talk)).message, user(words)]
        last = await client.chat(talk)
        assert last.session == "continued"
        assert "2 earlier user turns" in last.text and "azure" in last.text


async def test_r12_changed_instructions_are_told_again(transport: str) -> None:
    async with gateway(transport, manners=SWIFT) as client:
        old, new = ({"role": "system", "content": words} for words in ("Be brief.", "Be verbose."))
        first = await client.chat([old, user("sim: instructions")])
        second = await client.chat([new, user("sim: instructions"), first.message, user("sim: instructions")])
        assert "Be brief." in first.text
        assert "Be verbose." in second.text and "Be brief." not in second.text


async def test_r17_tools_stand_in_both_places(transport: str) -> None:
    async with gateway(transport, manners=replace(SWIFT, tools_in_both_places=True)) as client:
        assert await loop(client, CALLED) == ["lookup", "other", "lookup", "last"]


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
async def test_r20_a_checkpoint_between_a_call_and_its_result(transport: str, cut: bool) -> None:
    """It has the call and not its result. A run that is cut later goes on from it, and no call is made twice."""
    script = 'sim: call lookup {"key": "v"}\nsim: say seen\n' + ("sim: drop\n" if cut else "") + "sim: say done"
    messages = [user(script)]
    async with gateway(transport, manners=replace(SWIFT, checkpoint_after_call_ms=0)) as client:
        first = await client.chat(messages, tools=TOOLS)
        (call,) = first.calls
        second = await client.chat([*messages, first.message, result(call, "VALUE")], tools=TOOLS)
        assert (second.session, second.text, second.calls) == ("resumed", "seen\ndone", ())
        assert client.stats()["runs_opened"] == 1 + cut


@pytest.mark.seed("E03")
async def test_r25_nothing_is_told_of_the_machine_but_its_platform(transport: str) -> None:
    ask = "sim: exec request_context\nsim: result"
    async with gateway(transport, manners=SWIFT) as client:
        told = json.loads((await client.chat(ask)).text.partition("env ")[2])
        assert set(told) <= {"os_version"}
        assert re.fullmatch(r"[a-z]+", told["os_version"]), "no version of a kernel"
    async with gateway(transport, manners=SWIFT, agent_quirks={"time_zone": "Europe/Oslo"}) as client:
        told = json.loads((await client.chat(ask)).text.partition("env ")[2])
        assert told["time_zone"] == "Europe/Oslo"


@pytest.mark.seed("E07")
async def test_a4_http1_uses_the_calls_that_are_served_there() -> None:
    async with gateway("http1", manners=SWIFT) as client:
        refused = await client.http.post(f"{client.gateway.settings.agent_url}{paths.RUN}", headers=STREAM)
        assert refused.status_code == 464
        assert await loop(client, CALLED) == ["lookup", "other", "lookup", "last"]


ABSURD: Manners = replace(SWIFT, absurd_cache_reads=True)


@pytest.mark.parametrize("cache", [SWIFT, ABSURD], ids=["sane", "absurd"])
async def test_u1_u2_tokens_of_the_cache(transport: str, cache: Manners) -> None:
    """Part of the input, and left out of Anthropic's own count of it; what cannot be is not told."""
    async with gateway(transport, manners=cache) as client:
        talk = [user("sim: say one")]
        for words in ("sim: say two", "sim: say three"):
            talk += [(await client.chat(talk)).message, user(words)]
        chat = (await client.chat(talk)).usage
        assert chat is not None
        cached = chat.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        assert 0 <= cached <= chat["prompt_tokens"]
        assert (cached > 0) is (cache is SWIFT)
        body = {
            "model": "sim-auto",
            "max_tokens": 9,
            "messages": [*talk, {"role": "assistant", "content": "x"}, user("sim: say")],
        }
        told = (await client.http.post("/v1/messages", json=body)).json()["usage"]
        whole = (
            told["input_tokens"] + (told["cache_read_input_tokens"] or 0) + (told["cache_creation_input_tokens"] or 0)
        )
        assert 0 < told["input_tokens"] <= whole < 2 * chat["prompt_tokens"]


async def test_u1_each_response_tells_its_own_step(transport: str) -> None:
    """The counters of Cursor cover the whole run: they stand apart."""
    messages = [user('sim: call lookup {"key": "v"}\nsim: say done')]
    async with gateway(transport, manners=SWIFT) as client:
        first = await client.chat(messages, tools=TOOLS)
        second = await client.chat([*messages, first.message, result(first.calls[0], "V")], tools=TOOLS)
        assert first.usage is not None and second.usage is not None
        run = second.usage["caretway"]["run"]
        assert run["input_tokens"] > 1.5 * second.usage["prompt_tokens"], "two model calls"
        assert first.usage["prompt_tokens"] <= second.usage["prompt_tokens"] < run["input_tokens"]


async def test_l7_composer_is_told_to_call_and_not_to_narrate(transport: str) -> None:
    rule = "call it. Do not describe the call"
    async with gateway(transport, manners=SWIFT) as client:
        system = {"role": "system", "content": "Be kind."}
        told = await client.chat([system, user("sim: instructions")], tools=TOOLS, model="composer-2.5")
        assert rule in told.text and "Be kind." in told.text
        assert rule not in (await client.chat("sim: instructions", model="composer-2.5")).text, (
            "there is nothing to call"
        )
        assert rule not in (await client.chat("sim: instructions", tools=TOOLS, model="gpt-5.4")).text
