"""Models as Cursor lists them and takes them: gateway against a simulator with Cursor's catalogue, on real sockets.

Tests of a row of the recorded facts carry its name.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from caretway.cli.clients.table import claude_variables
from caretway.cli.clients.values import OfferedModel, Target
from caretway.cli.models import models_for_clients
from caretway.core.errors import ErrorKind, GatewayError
from caretway_sim import Simulator
from caretway_sim.catalogue import BASES, BY_ID, slugs
from caretway_sim.manners import LIVE
from contract.gateways import CHAT, Client, gateway_to

SLUGS = {slug: (base, variant) for slug, base, variant in slugs()}


@asynccontextmanager
async def cursor(
    transport: str = "auto",
    *,
    bare: Sequence[str] = (),
    empty: Sequence[str] = (),
    flat: bool = False,
    **settings: Any,
) -> AsyncIterator[Client]:
    refused, unheard = frozenset(bare), frozenset(empty)
    manners = replace(LIVE, refused_shapes=refused, empty_shapes=unheard, hides_bases=flat)
    simulator = Simulator(manners=manners)
    try:
        port = await simulator.listen("127.0.0.1", 0)
        async with gateway_to(simulator, port, transport, **settings) as client:
            yield client
    finally:
        await simulator.aclose()


@pytest.fixture
async def client(transport: str) -> AsyncIterator[Client]:
    async with cursor(transport) as client:
        yield client


def ran(client: Client) -> str:
    """What the last run talked to: the base id, its parameters in brackets."""
    return client.simulator.asked[-1][1]


def shapes(client: Client) -> list[str]:
    return [shape for shape, _ in client.simulator.asked]


async def rows(client: Client) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in (await client.http.get("/v1/models")).json()["data"]}


async def test_m1_m2_the_list_shows_base_models_and_every_flat_id_is_known(client: Client) -> None:
    listed = await rows(client)
    shown = {key for key, row in listed.items() if "stands_for" not in row}
    assert shown == {base.id for base in BASES}
    for slug, (base, _) in SLUGS.items():
        found = await client.http.get(f"/v1/models/{slug}")
        assert (found.status_code, found.json()["id"].removesuffix("-thinking")) == (200, base.id)


TYPED = {
    "claude-opus-5": "claude-opus-5",
    "claude-opus-5-20260724": "claude-opus-5",
    "claude-opus-5.5": "claude-opus-5-5",
    "claude-opus-5-5": "claude-opus-5-5",
    "claude-sonnet-5": "claude-sonnet-5",
    "claude-sonnet-5.5": "claude-sonnet-5-5",
    "claude-fable-5.1": "claude-fable-5-1",
    "claude-haiku-4-5": "claude-4.5-haiku",
    "gpt-5.6-sol": "gpt-5.6-sol",
    "gpt-5.6-terra": "gpt-5.6-terra",
    "gpt-5.6-luna": "gpt-5.6-luna",
    "gpt-6": "gpt-6",
    "gpt-6-astra": "gpt-6-astra",
    "gpt-6-sol": "gpt-6-sol",
    "gpt-6-luna": "gpt-6-luna",
    "gpt-6.1": "gpt-6.1",
    "gpt-6.1-sol": "gpt-6.1-sol",
    "gpt-6.1-sol-high": "gpt-6.1-sol",
    "grok-4.6": "grok-4.6",
    "grok-4.7": "grok-4.7",
    "gemini-3.1-pro": "gemini-3.1-pro",
    "composer-2.5": "composer-2.5",
    "kimi-k3": "kimi-k3",
}
"""What people type in November 2026, and the model that is meant."""


async def test_names_that_people_type_answer_without_a_substitute(transport: str) -> None:
    async with cursor(transport, strict_models=True) as client:
        for name, meant in TYPED.items():
            answer = await client.chat("sim: say hello", model=name)
            assert (name, answer.text, ran(client).partition("[")[0]) == (name, "hello", meant)


async def test_every_model_of_a_launched_claude_answers(client: Client) -> None:
    """`claude-opus-5` is the example of `launch --help`; `/model opus` and the like are mapped to listed models."""
    offered = tuple(OfferedModel(name) for name in await rows(client))
    variables = claude_variables(Target("http://gateway", "local", offered, "claude-opus-5"), "local")
    named = {name: value for name, value in variables.items() if name.endswith("_MODEL")}
    assert named["ANTHROPIC_MODEL"] == "claude-opus-5"
    for name, model in named.items():
        assert (name, (await client.chat("sim: say hello", model=model)).text) == (name, "hello")


NAMED: list[dict[str, Any]] = [
    {},
    {"model_aliases": {"mine": "gpt-5.4"}, "models": ["mine", "claude-opus-5@effort=low", "unheard-of"]},
    {"models": ["gpt-5.4", "gpt-5.4-high"], "models_only": True},
]


@pytest.mark.parametrize("settings", NAMED, ids=lambda settings: " and ".join(settings) or "none")
async def test_commands_list_what_clients_are_shown(settings: dict[str, Any]) -> None:
    async with cursor(**settings) as client:
        listed = await models_for_clients(client.gateway.backend, client.gateway.settings)
        assert [model.id for model in listed] == list(await rows(client))


async def test_commands_tell_that_there_is_no_list() -> None:
    """Clients get what is known, if it is only the names of the settings; whoever types a command wants to know why."""
    async with cursor(access_token=None, api_key="bad-key", models=["mine"]) as client:
        assert list(await rows(client)) == ["mine"]
        with pytest.raises(GatewayError) as told:
            await models_for_clients(client.gateway.backend, client.gateway.settings)
    assert told.value.kind is ErrorKind.SIGNED_OUT


async def test_the_list_tells_windows_and_abilities(client: Client) -> None:
    listed = await rows(client)
    assert listed["claude-opus-4-8"]["context_window"] == 200_000
    assert listed["claude-opus-4-8"]["max_context_window"] == 1_000_000
    assert listed["gpt-5.4"]["context_window"] == 272_000
    assert listed["gpt-5.4"]["reasoning"] is True
    assert listed["gpt-5.4"]["parameters"]["reasoning"] == ["low", "medium", "high", "xhigh"]
    assert listed["composer-2.5"]["input_modalities"] == ["text"]
    assert listed["composer-2.5"]["name"] == "Composer 2.5 (simulated)"
    anthropic = await client.http.get("/v1/models/claude-opus-4-8", headers={"anthropic-version": "2023-06-01"})
    assert anthropic.json()["max_input_tokens"] == 200_000
    assert anthropic.json()["capabilities"]["thinking"]["supported"] is True


async def test_m3_m4_each_flat_id_runs_as_its_base_and_the_whole_variant(client: Client) -> None:
    """And says so: the answer has the name that was asked for, and the header the variant when it is not the usual."""
    for slug, (model, variant) in SLUGS.items():
        if variant.dead:
            continue
        answer = await client.chat("sim: say hello", model=slug)
        assert (answer.status, answer.text) == (200, "hello"), slug
        shape, exactly = client.simulator.asked[-1]
        assert shape == "base", slug
        assert exactly.partition("[")[0] == model.id, slug
        if slug not in BY_ID:
            assert exactly == variant.bracket(model.id), slug
        told = answer.headers.get("x-caretway-model", model.id).removesuffix(",max=true")
        assert told in (model.id, exactly.replace("[", "@").removesuffix("]")), (slug, told, exactly)


ELSEWHERE = [
    # asked for, what runs: a lower rung, or another version
    ("gpt-5.4-max", "gpt-5.4[context=272k,reasoning=xhigh,fast=false]"),
    ("gpt-5.4@effort=max", "gpt-5.4[context=272k,reasoning=xhigh,fast=false]"),
    ("gpt-5.1-xhigh", "gpt-5.1[reasoning=high]"),
    ("grok-4.5-max", "grok-4.5[effort=high,fast=false]"),
    ("claude-sonnet-4", "claude-4.5-sonnet[thinking=false]"),
    ("claude-opus-4-20250514", "claude-4.6-opus[thinking=false,context=200k,effort=low,fast=false]"),
    ("gpt-5", "gpt-5.1[reasoning=low]"),
    ("gpt-4o", "gpt-5.1[reasoning=low]"),
    ("gemini-2.0-flash", "gemini-2.5-flash"),
    ("claude-3-5-haiku", "claude-4.5-haiku[thinking=false]"),
]


async def test_m5_no_name_leads_elsewhere_without_being_told(stream: bool, client: Client) -> None:
    """The body and the header name what ran, and why."""
    for name, runs in ELSEWHERE:
        request = {"model": name, "messages": [{"role": "user", "content": "sim: say hi"}], "stream": stream}
        response = await client.http.post(CHAT, json=request)
        assert (name, response.status_code, ran(client)) == (name, 200, runs)
        assert f'"model":"{name}"' not in response.text
        told = response.headers["x-caretway-model"]
        assert f'"model":"{told}"' in response.text
        assert told in (runs.partition("[")[0], runs.replace("[", "@").removesuffix("]"))
        assert ("stands in for it" in response.headers["x-caretway-model-reason"]) is ("@" not in told), name


TOLD = [
    # asked for, what the body says, what the header says
    ("gpt-5.4", "gpt-5.4", None),
    ("gpt-5.4-high", "gpt-5.4-high", "gpt-5.4@context=272k,reasoning=high,fast=false"),
    ("composer-2.5", "composer-2.5", "composer-2.5@fast=false"),
    ("claude-sonnet-4-6-20260217", "claude-4.6-sonnet", "claude-4.6-sonnet"),
    ("claude-sonnet-4-1", "claude-4.5-sonnet", "claude-4.5-sonnet"),
    ("gpt-5-codex", "gpt-5.2-codex", "gpt-5.2-codex"),
    ("gpt-5.4@effort=max", *("gpt-5.4@context=272k,reasoning=xhigh,fast=false",) * 2),
    (
        "claude-opus-4-8-thinking",
        "claude-opus-4-8-thinking",
        "claude-opus-4-8@thinking=true,context=200k,effort=low,fast=false",
    ),
]


async def test_m5_the_answer_tells_which_one_answered(stream: bool, client: Client) -> None:
    for asked, body, header in TOLD:
        request = {"model": asked, "messages": [{"role": "user", "content": "sim: say hi"}], "stream": stream}
        response = await client.http.post(CHAT, json=request)
        assert (asked, response.status_code) == (asked, 200)
        assert f'"model":"{body}"' in response.text
        assert (asked, response.headers.get("x-caretway-model")) == (asked, header)
        assert ("x-caretway-model-reason" in response.headers) is (header is not None), asked


async def test_m6_max_mode_comes_from_the_variant(client: Client) -> None:
    assert (await client.chat("sim: say big", model="claude-opus-4-8@1m")).text == "big"
    assert "context=1m" in ran(client)
    assert (await client.chat("sim: say fast", model="claude-opus-4-8-high-fast")).text == "fast"


async def test_efforts_from_every_side(client: Client) -> None:
    await client.chat("sim: say x", model="claude-opus-4-8", reasoning_effort="low")
    assert ran(client) == "claude-opus-4-8[thinking=true,context=200k,effort=low,fast=false]"
    messages = [{"role": "user", "content": "sim: say x"}]
    for thinking, expected in (
        ({"type": "enabled", "budget_tokens": 16_000}, "thinking=true,context=200k,effort=medium"),
        ({"type": "disabled"}, "thinking=false,context=200k,effort=low"),
    ):
        body = {"model": "claude-opus-4-8", "max_tokens": 10, "messages": messages, "thinking": thinking}
        assert (await client.http.post("/v1/messages", json=body)).status_code == 200
        assert expected in ran(client)
    body = {"model": "gpt-5.5", "input": "sim: say x", "reasoning": {"effort": "xhigh"}}
    assert (await client.http.post("/v1/responses", json=body)).status_code == 200
    assert "reasoning=extra-high" in ran(client)


async def test_settings_choose_and_the_settings_can_be_the_whole_catalogue() -> None:
    named = ("gpt-5.4", "composer-2.5")
    async with cursor(models=named, models_only=True, model_parameters={"fast": "true"}) as client:
        assert list(await rows(client)) == ["gpt-5.4", "gpt-5.4-thinking", "composer-2.5"]
        await client.chat("sim: say x", model="composer-2.5")
        assert ran(client) == "composer-2.5[fast=true]"
        refused = await client.chat("sim: say x", model="gpt-5.5")
        assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found")


@pytest.mark.seed("I01", "N07")
@pytest.mark.parametrize("backend", ["agent", "legacy-chat"])
async def test_a_base_model_of_the_settings_is_offered_with_its_thinking_variant(backend: str) -> None:
    both = ["claude-sonnet-4.6", "claude-sonnet-4.6-thinking"]
    async with cursor(backend=backend, models=("claude-sonnet-4.6",), models_only=True) as client:
        assert list(await rows(client)) == both
        for name in (*both, f"openai/{both[1]}"):
            assert (await client.chat("sim: say hello", model=name)).text == "hello", name
        for name in ("gpt-5.4", "claude-sonnet-4.5-thinking"):
            refused = await client.chat("sim: say x", model=name)
            assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found"), name


@pytest.mark.seed("H05")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("backend", ["agent", "legacy-chat"])
async def test_there_is_no_thinking_variant_of_a_thinking_model(backend: str, strict: bool) -> None:
    async with cursor(backend=backend, strict_models=strict) as client:
        for base in ("claude-sonnet-5", "default", "unheard-of"):
            for name in (f"{base}-thinking-thinking", f"openai/{base}-thinking-thinking@effort=low"):
                refused = await client.chat("sim: say x", model=name)
                assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found"), name
                assert refused.error is not None and f"`{base}-thinking`" in refused.error["message"].replace(
                    "openai/", ""
                )
            assert (await client.http.get(f"/v1/models/{base}-thinking-thinking")).status_code == 404
        for name, once in (
            ("claude-sonnet-5-THINKING-thinking", "claude-sonnet-5-THINKING"),
            ("claude-sonnet-5-thinking_thinking", "claude-sonnet-5-thinking"),
            ("claude-sonnet-5-thinking-thinking-high", "claude-sonnet-5-thinking-high"),
            ("claude-sonnet-5-thinking-thinking:high", "claude-sonnet-5-thinking:high"),
            ("claude-sonnet-5-thinking-high-thinking", "claude-sonnet-5-thinking-high"),
            ("claude-sonnet-5-thinking-thinking-thinking", "claude-sonnet-5-thinking"),
        ):
            refused = await client.chat("sim: say x", model=name)
            assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found"), name
            assert refused.error is not None and refused.error["message"].endswith(f"Use `{once}`."), name
        assert not client.simulator.asked
        assert not [name for name in await rows(client) if name.count("thinking") > 1]


@pytest.mark.seed("I04")
async def test_strict_means_it() -> None:
    async with cursor(strict_models=True) as client:
        for name in ("gpt-99-imaginary", "gpt-5-codex", "gpt-5.4@effort=max", "gpt-4o"):
            refused = await client.chat("sim: say x", model=name)
            assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found"), name
        assert not client.simulator.asked
        assert (await client.chat("sim: say x", model="gpt-5.4-high")).text == "x"


async def test_m4_the_other_shape_is_tried_once_and_remembered(transport: str) -> None:
    async with cursor(transport, bare=["base"]) as client:
        for _ in range(2):
            assert (await client.chat("sim: say hello", model="gpt-5.4-high")).text == "hello"
        assert (await client.chat("sim: say hello", model="gpt-5.2-low")).text == "hello"
        # The first request finds out; the second knows, and so does the account's next model.
        assert shapes(client) == ["base", "details", "details", "details"]


async def test_m4_an_empty_turn_is_asked_again_in_the_other_shape(transport: str, stream: bool) -> None:
    async with cursor(transport, empty=["base"]) as client:
        answer = await client.chat("sim: say hello", model="gpt-5.4-high", stream=stream)
        assert (answer.text, answer.finish) == ("hello", "stop")
        assert shapes(client) == ["base", "details"]


async def test_m4_without_base_models_a_flat_id_is_never_asked_for_as_a_base_model(transport: str) -> None:
    async with cursor(transport, flat=True) as client:
        assert {"gpt-5.4-high", "default"} <= set(await rows(client))
        for model in ("gpt-5.4-high", "composer-2.5", "default"):
            assert (await client.chat("sim: say hello", model=model)).text == "hello"
        assert shapes(client) == ["details"] * 3
    async with cursor(transport, flat=True, bare=["details"]) as client:
        for _ in range(2):
            assert (await client.chat("sim: say hello", model="gpt-5.4-high")).text == "hello"
        assert shapes(client) == ["details", "both", "both"]


async def test_m4_what_nobody_answers_in_any_shape_is_an_empty_answer(transport: str) -> None:
    async with cursor(transport, agent_quirks={"model": "requested"}) as client:
        empty = await client.chat("sim: say hello", model="gpt-5.4-high")
        assert (empty.status, empty.text, shapes(client)) == (200, "", ["requested"])


@pytest.mark.parametrize("spent", [True, False])
async def test_u5_the_usage_is_asked_for_before_a_bare_refusal_is_taken_for_a_matter_of_the_model(spent: bool) -> None:
    async with cursor(bare=["base"], access_token="spent=100" if spent else "spent=1") as client:
        answer = await client.chat("sim: say hello", model="gpt-5.4-high")
        assert client.stats()["usage_asked"] == 1
        if spent:
            assert (answer.status, answer.error and answer.error["code"]) == (402, "insufficient_quota")
            assert shapes(client) == ["base"]
        else:
            assert answer.text == "hello"


async def test_m4_every_shape_can_be_chosen(transport: str) -> None:
    for shape in ("base", "details", "both"):
        async with cursor(transport, agent_quirks={"model": shape}) as client:
            assert (await client.chat("sim: say hello", model="gpt-5.4-high")).text == "hello"
            assert shapes(client) == [shape]


async def test_m5_a_dead_model_is_refused_after_two_tries(client: Client) -> None:
    refused = await client.chat("sim: say x", model="sim-retired")
    assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found")
    assert refused.error and "conversation" not in refused.error["message"], "it is the first message"
    assert shapes(client) == ["base", "details"]


@pytest.mark.seed("I03")
async def test_an_unknown_name_goes_by_its_flat_id(client: Client) -> None:
    refused = await client.chat("sim: say x", model="gpt-99-imaginary")
    assert refused.status >= 400
    assert shapes(client) == ["details", "both"]


async def test_another_account_starts_anew() -> None:
    async with cursor(bare=["base"], auth_mode="passthrough", access_token=None) as client:
        for key in ("key-one", "key-two"):
            bearer = {"authorization": f"Bearer {key}"}
            for _ in range(2):
                assert (await client.chat("sim: say x", model="gpt-5.4", headers=bearer)).text == "x"
        assert shapes(client) == ["base", "details", "details"] * 2


async def test_tools_work_on_a_named_model_in_both_shapes() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    for bare in ([], ["base"]):
        async with cursor(bare=bare) as client:
            answer = await client.chat("sim: call look {}\nsim: say done", model="gpt-5.4-low", tools=[tool])
            assert answer.calls, answer
            messages = [
                {"role": "user", "content": "sim: call look {}\nsim: say done"},
                answer.message,
                {"role": "tool", "tool_call_id": answer.calls[0]["id"], "content": "seen"},
            ]
            done = await client.chat(messages, model="gpt-5.4-low", tools=[tool])
            assert (done.text, done.session) == ("done", "resumed")


@pytest.mark.seed("H03")
async def test_tags_in_text_are_thinking_on_this_backend_too(client: Client, stream: bool) -> None:
    answer = await client.chat("sim: say <think>hm</think>yes", model="gpt-5.4", stream=stream)
    assert (answer.text, answer.reasoning) == ("yes", "hm")
