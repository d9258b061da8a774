"""Usage belongs to the response: what each answer says it read and said, held against what the simulator counted.

The simulator puts a preamble before every prompt that no client sees, so whoever counts its own characters is far off.
`/_sim/steps` tells the context of every model call, `/_sim/stats` the tokens of all runs.
"""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from caretway_sim.manners import Manners
from caretway_sim.model_input import PREAMBLE_TOKENS
from contract.cursor_cli.stand_in import cli_gateway
from contract.gateways import Client, gateway, gateway_to, simulated
from contract.speakers import SPEAKERS, Heard, Messages, Speaker, ask, events
from contract.subjects import WAYS

pytestmark = pytest.mark.both_profiles
STEPS = 28
RESULT = "A line of a file that the tool has read, of the usual length.\n" * 12


@pytest.fixture(params=SPEAKERS, ids=lambda speaker: speaker.name)
def speaker(request: pytest.FixtureRequest) -> Speaker:
    given: Speaker = request.param
    return given


@pytest.fixture
async def one(manners: Manners) -> AsyncIterator[Client]:
    """One transport is enough here: usage is made above it."""
    async with gateway("h2", manners=manners) as client:
        yield client


async def sim(client: Client, page: str) -> Any:
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        return (await http.get(f"{client.gateway.settings.agent_url}/_sim/{page}")).json()


async def metrics(client: Client) -> dict[str, int]:
    """Tokens by kind, over all models."""
    text = (await client.http.get("/metrics")).text
    found = re.findall(r'^caretway_tokens_total\{kind="(\w+)",model="[^"]*",key="[^"]*"\} (\d+)$', text, re.MULTILINE)
    counts: dict[str, int] = {}
    for kind, count in found:
        counts[kind] = counts.get(kind, 0) + int(count)
    return counts


def read(told: dict[str, Any]) -> int:
    """The whole input, whatever the API calls it."""
    if "prompt_tokens" in told:
        return int(told["prompt_tokens"])
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(int(told.get(part, 0)) for part in parts)


def said(told: dict[str, Any]) -> int:
    return int(told.get("completion_tokens", told.get("output_tokens", 0)))


def cached(told: dict[str, Any]) -> int:
    details = told.get("prompt_tokens_details") or told.get("input_tokens_details") or {}
    return int(details.get("cached_tokens", told.get("cache_read_input_tokens", 0)))


def loop_script(steps: int) -> str:
    lines = [f'sim: say Step {n}.\nsim: call lookup {{"key": "{"k" * 40}{n}"}}' for n in range(1, steps)]
    return "\n".join([*lines, "sim: say All done, every file was read."])


async def loop(client: Client, speaker: Speaker, prompt: str, *, stream: bool) -> list[Heard]:
    """Every answer of a tool loop."""
    body = speaker.body(prompt, ["lookup"], stream)
    heard: list[Heard] = []
    while not heard or heard[-1].calls:
        if heard:
            body = speaker.follow_up(body, heard[-1], {call.id: RESULT for call in heard[-1].calls})
        heard.append(await ask(speaker, client.http, body))
        assert heard[-1].status == 200 and heard[-1].complete, heard[-1].error
    return heard


async def test_every_answer_tells_the_context_of_its_own_step(one: Client, speaker: Speaker, stream: bool) -> None:
    heard = await loop(one, speaker, loop_script(STEPS), stream=stream)
    (run,) = (await sim(one, "steps"))["runs"]
    steps = run["steps"]
    assert len(heard) == len(steps) == STEPS
    for number, (answer, step) in enumerate(zip(heard, steps, strict=True), 1):
        print(
            f"step {number}: {read(answer.told)} told, {step['context']} read; {said(answer.told)} of {step['output']}"
        )
        if number > 1:
            assert abs(read(answer.told) - step["context"]) <= 0.2 * step["context"], number
            assert read(answer.told) > PREAMBLE_TOKENS
        assert abs(said(answer.told) - step["output"]) <= 0.2 * step["output"] + 2, number
        if number > 1:
            assert abs(cached(answer.told) - step["cached"]) <= 0.1 * step["context"], number
            assert answer.told["estimated"], "what is cached of one step is an estimate"
    total = heard[-1].told["caretway"]["run"]
    stats = await sim(one, "stats")
    assert cached(heard[0].told) == 0, "nobody knows what a run shares with an earlier one"
    assert (
        abs(sum(cached(answer.told) for answer in heard) - stats["tokens_in_cached"])
        <= 0.02 * stats["tokens_in_cached"]
    )
    assert total["input_tokens"] == sum(step["context"] for step in steps)
    assert total["output_tokens"] == stats["tokens_out"]
    assert total["cache_read_tokens"] == stats["tokens_in_cached"]
    assert total["steps"] == STEPS
    assert all("caretway" not in answer.told for answer in heard[:-1])


async def test_estimated_cached_tokens_are_counted_nowhere(speaker: Speaker, tmp_path: Path, manners: Manners) -> None:
    """Metrics, ledger, dashboard and budgets have what Cursor counted: nothing for a step, one total for the run."""
    limits = ("uncached=10M/day", "tokens=10M/day")
    async with gateway("h2", manners=manners, data_dir=tmp_path, budgets=limits) as client:
        heard = await loop(client, speaker, loop_script(4), stream=True)
        assert all(cached(answer.told) for answer in heard[1:])
        stats, counted = await sim(client, "stats"), await metrics(client)
        async with asyncio.timeout(30):
            while (told := (await client.http.get("/caretway/v1/usage")).json())["total"]["responses"] < len(heard):
                await asyncio.sleep(0.01)
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
            of_responses = db.execute("SELECT cache_read FROM responses").fetchall()
            of_runs = db.execute("SELECT input, cache_read, output FROM runs").fetchall()
    fresh, known, spoken = stats["tokens_in_uncached"], stats["tokens_in_cached"], stats["tokens_out"]
    assert (counted["input"], counted["cache_read"], counted["output"]) == (fresh, known, spoken)
    assert of_responses == [(None,)] * len(heard)
    assert of_runs == [(fresh + known, known, spoken)]
    assert told["total"]["cache_read"] == known
    assert [budget["spent"] for budget in told["budgets"]] == [fresh + spoken, fresh + known + spoken]


@pytest.mark.seed("B28")
async def test_one_model_call_is_told_as_cursor_counted_it(one: Client, speaker: Speaker, stream: bool) -> None:
    """A tool is offered, because without one `live` spares the preamble."""
    body = speaker.body("sim: think Hm, well.\nsim: say one two three", ["lookup"], stream) | {"model": "sim-think"}
    first = await ask(speaker, one.http, body)
    again = await ask(speaker, one.http, body)
    runs = (await sim(one, "steps"))["runs"]
    for answer, run in zip((first, again), runs, strict=True):
        (step,) = run["steps"]
        assert read(answer.told) == step["context"]
        assert said(answer.told) == step["output"]
        assert "estimated" not in answer.told
        assert answer.told["caretway"]["run"]["steps"] == 1
    if isinstance(speaker, Messages):
        assert again.told["cache_read_input_tokens"] == PREAMBLE_TOKENS
        assert first.told["cache_creation_input_tokens"] == runs[0]["steps"][0]["context"] - 1, "this model tells it"
        assert first.told["input_tokens"] == 1, "what went to the cache is not in it; 0 would be taken for missing"
    else:
        details = again.told.get("prompt_tokens_details") or again.told["input_tokens_details"]
        assert details["cached_tokens"] == PREAMBLE_TOKENS


@pytest.mark.parametrize("model", ["sim-auto", "sim-think"])
async def test_metrics_count_what_cursor_counted(client: Client, model: str) -> None:
    """Runs with and without tools, continued ones, one that an answer of ours cut short, one that nobody read."""
    for speaker in SPEAKERS:
        for prompt in (
            loop_script(4),
            "sim: say hello",
            'sim: call gone {}\nsim: exec read {"path": "x"}\nsim: result',
        ):
            body = speaker.body(prompt, ["lookup"], True) | {"model": model}
            answer = await ask(speaker, client.http, body)
            while answer.calls:
                body = speaker.follow_up(body, answer, {call.id: RESULT for call in answer.calls})
                answer = await ask(speaker, client.http, body)
            assert answer.complete
    talk: list[dict[str, Any]] = []
    for words in ("sim: say one", "sim: say two"):
        talk.append({"role": "user", "content": words})
        talk.append((await client.chat(talk, model=model)).message)
    stats, counted = await sim(client, "stats"), await metrics(client)
    assert all(run["ended"] for run in (await sim(client, "steps"))["runs"])
    assert counted["cache_read"] == stats["tokens_in_cached"] > 0
    assert counted["input"] + counted["cache_write"] == stats["tokens_in_uncached"] > 0
    assert (counted["cache_write"] > 0) == (model == "sim-think"), "not every model tells what it wrote"
    assert counted["output"] == stats["tokens_out"] > 0


async def test_a_run_that_nobody_reads_to_its_end_is_counted(one: Client) -> None:
    body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: stream 200 20 1"}]}
    async with one.http.stream("POST", "/v1/chat/completions", json=body) as response:
        async for _ in response.aiter_lines():
            break
    async with asyncio.timeout(30):
        while one.gateway.tenants.live:
            await asyncio.sleep(0.01)
    (run,) = (await sim(one, "steps"))["runs"]
    assert run["ended"]
    assert (await metrics(one))["output"] == (await sim(one, "stats"))["tokens_out"] == 200 * 5


async def test_a_demanded_call_that_never_came_is_counted(one: Client) -> None:
    """Two runs were spent on it, and the client gets an error."""
    tools = [{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]
    answer = await one.chat("sim: say no", tools=tools, tool_choice="required")
    stats, counted = await sim(one, "stats"), await metrics(one)
    assert answer.status != 200 or answer.text == "no"
    assert counted["output"] == stats["tokens_out"] > 0
    assert counted["input"] + counted["cache_read"] == stats["tokens_in_uncached"] + stats["tokens_in_cached"]


async def test_an_answer_that_is_cut_short_knows_its_context(one: Client) -> None:
    """A stop sequence ends the run before Cursor has counted it: then the last checkpoint is the best there is."""
    tools = [{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": 'sim: call lookup {"key": "k"}\nsim: call lookup {"key": "l"}\nsim: say one STOP two',
        }
    ]
    answer = await one.chat(messages, tools=tools, stop="STOP")
    while answer.calls:
        results = [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in answer.calls]
        messages += [answer.message, *results]
        answer = await one.chat(messages, tools=tools, stop="STOP")
    (run,) = (await sim(one, "steps"))["runs"]
    assert answer.usage is not None and answer.usage["estimated"]
    assert abs(answer.usage["prompt_tokens"] - run["steps"][-1]["context"]) <= 0.02 * run["steps"][-1]["context"]
    assert answer.usage["completion_tokens"] == 1


async def test_a_continued_conversation_knows_its_context_from_the_start(one: Client) -> None:
    """The first step of a run that goes on from a checkpoint, before any checkpoint of its own."""
    speaker = Messages()
    body = speaker.body("sim: say hello", ["lookup"], True)
    first = await ask(speaker, one.http, body)
    more = {"role": "user", "content": 'sim: call lookup {"key": "k"}\nsim: say done'}
    body["messages"] += [{"role": "assistant", "content": first.text}, more]
    headers = {"anthropic-version": "2023-06-01"}
    response = await one.http.post(speaker.path, json=body, headers=headers)
    assert response.headers["x-caretway-session"] == "continued"
    answer = speaker.read(response)
    _, run = (await sim(one, "steps"))["runs"]
    (step,) = run["steps"]
    (start,) = [data for name, data in events(response.text) if name == "message_start"]
    for told in (start["message"]["usage"], answer.told):
        assert abs(told["input_tokens"] - step["context"]) <= 0.02 * step["context"]
    assert start["caretway"] == {"usage": "estimated"} and answer.told["estimated"]


@pytest.mark.parametrize("preamble", [PREAMBLE_TOKENS, 30_000])
async def test_the_replay_of_a_lost_turn_knows_what_cursor_adds(
    transport: str, speaker: Speaker, preamble: int, monkeypatch: pytest.MonkeyPatch, manners: Manners
) -> None:
    """Every parked turn is lost, so every step is the first one of a new run, and no checkpoint comes before its call.
    What Cursor puts before a prompt was shown by another conversation with the model, or is assumed to be as usual."""
    monkeypatch.setattr("caretway_sim.model_input.PREAMBLE_TOKENS", preamble)
    async with gateway(transport, manners=manners, parked_timeout=0.01) as client:
        if preamble != PREAMBLE_TOKENS:
            assert (await ask(speaker, client.http, speaker.body("sim: say hello", ["lookup"], True))).complete
        before = len((await sim(client, "steps"))["runs"])
        body = speaker.body(loop_script(4), ["lookup"], True)
        heard: list[Heard] = []
        while not heard or heard[-1].calls:
            if heard:
                body = speaker.follow_up(body, heard[-1], {call.id: RESULT for call in heard[-1].calls})
            heard.append(await ask(speaker, client.http, body))
            assert heard[-1].complete, heard[-1].error
            async with asyncio.timeout(60):
                while client.simulator.open_runs:
                    await asyncio.sleep(0.01)
        runs = (await sim(client, "steps"))["runs"][before:]
    assert len(runs) == len(heard) == 4
    for answer, run in zip(heard, runs, strict=True):
        context = run["steps"][0]["context"]
        assert context > preamble
        assert abs(read(answer.told) - context) <= 0.2 * context
        assert answer.told.get("estimated", False) == bool(answer.calls)


async def test_the_bounds_of_what_the_simulator_lists(one: Client) -> None:
    await one.chat("sim: say one")
    (run,) = (await sim(one, "steps"))["runs"]
    assert run.keys() == {"conversation", "run", "model", "ended", "calls", "steps"}
    assert run["steps"][0].keys() == {"context", "cached", "output"}
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        await http.post(f"{one.gateway.settings.agent_url}/_sim/reset")
    assert (await sim(one, "steps"))["runs"] == []


# ---- backends that are told a total only, or nothing


@pytest.mark.timeout(90)
@pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never")
async def test_the_sdk_counts_every_step_as_the_agent_api_does(speaker: Speaker) -> None:
    async with simulated() as (simulator, port), gateway_to(simulator, port, backend="sdk", api_key="key") as client:
        first = await loop(client, speaker, loop_script(4), stream=True)
        second = await loop(client, speaker, loop_script(4), stream=False)
        one, other = (await sim(client, "steps"))["runs"]
        pairs = [(first[-1], one["steps"][-1]), *zip(second, other["steps"], strict=True)]
        for answer, step in pairs:
            assert abs(read(answer.told) - step["context"]) <= 0.02 * step["context"]
            assert abs(said(answer.told) - step["output"]) <= 0.2 * step["output"] + 2
        assert second[-1].told["caretway"]["run"]["input_tokens"] == sum(step["context"] for step in other["steps"])
        in_cache = sum(step["cached"] for step in other["steps"][1:])
        assert abs(sum(cached(answer.told) for answer in second) - in_cache) <= 0.1 * in_cache, "without the first step"
        stats, counted = await sim(client, "stats"), await metrics(client)
        assert counted["cache_read"] == stats["tokens_in_cached"]
        assert counted["input"] + counted["cache_write"] == stats["tokens_in_uncached"]
        assert counted["output"] == stats["tokens_out"]


async def test_cursor_agent_counts_a_run_with_its_own_tools_once(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        plain = await client.chat("sim: say one")
        worked = await client.chat('sim: exec read {"path":"a"}\nsim: exec read {"path":"b"}\nsim: say one')
    assert plain.usage is not None and worked.usage is not None
    assert "estimated" not in plain.usage and plain.usage["caretway"]["run"]["steps"] == 1
    assert abs(worked.usage["prompt_tokens"] - plain.usage["prompt_tokens"]) <= 0.02 * plain.usage["prompt_tokens"]
    assert worked.usage["estimated"] and "prompt_tokens_details" not in worked.usage
    run = worked.usage["caretway"]["run"]
    assert (run["steps"], run["input_tokens"] // worked.usage["prompt_tokens"]) == (3, 3)


async def test_tools_that_the_gateway_runs_are_model_calls_of_one_answer(tmp_path: Path, manners: Manners) -> None:
    """The input is the context of the last of them, not the sum."""
    (tmp_path / "a.txt").write_text("line\n" * 400)
    prompt = 'sim: exec read {"path": "a.txt"}\nsim: exec read {"path": "a.txt"}\nsim: say done'
    async with gateway("h2", manners=manners, workspace=tmp_path, local_tools="read-only") as client:
        answer = await client.chat(prompt)
        (run,) = (await sim(client, "steps"))["runs"]
    assert len(run["steps"]) == 3 and answer.usage is not None
    last = run["steps"][-1]["context"]
    assert abs(answer.usage["prompt_tokens"] - last) <= 0.02 * last
    assert answer.usage["caretway"]["run"]["input_tokens"] == sum(step["context"] for step in run["steps"])
    assert answer.usage["caretway"]["run"]["steps"] == 3
