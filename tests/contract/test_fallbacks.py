"""An alias that names a chain of models: which one answers, when the next is asked, who is told; on real sockets."""

import json
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caretway.usage.key_file import KeyFile, added
from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE
from contract.gateways import Client, gateway_to, result, tool

CHAIN = ("composer-2.5", "gpt-5.4", "auto")
HELLO = "sim: say hello"


@asynccontextmanager
async def cursor(refused: dict[str, str], **settings: Any) -> AsyncIterator[Client]:
    """An account that is not served some models; `fast` is the chain."""
    simulator = Simulator(manners=replace(LIVE_AT_ONCE, refused_models=tuple(refused.items())))
    try:
        port = await simulator.listen("127.0.0.1", 0)
        async with gateway_to(simulator, port, **{"model_aliases": {"fast": CHAIN}} | settings) as client:
            yield client
    finally:
        await simulator.aclose()


def served(client: Client) -> list[str]:
    """The models that ran; a refused one is not among them."""
    return [label.partition("[")[0] for _, label in client.simulator.asked if label]


LEADS_ON = [
    ("usage_limit", True),
    ("quota", False),
    ("policy", True),
    ("plan", False),
    ("bad_model", True),
    ("gone", False),
]


@pytest.mark.parametrize(("fault", "stream"), LEADS_ON)
async def test_the_next_model_answers_and_everybody_is_told(
    fault: str, stream: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with cursor({"composer-2.5": fault}, data_dir=tmp_path) as client:
            answer = await client.chat(HELLO, model="fast", stream=stream)
            assert (answer.status, answer.text) == (200, "hello")
    told = answer.headers.get_list("x-caretway-model")
    assert [model.partition("@")[0] for model in told] == ["gpt-5.4"], "one header, with the model that answers"
    why = answer.headers["x-caretway-model-reason"]
    assert "model_aliases: fast is composer-2.5, then gpt-5.4, then auto; composer-2.5 was refused (" in why
    assert "alias or the request names another" in answer.headers["x-caretway-session-reason"]
    if stream:
        assert {chunk["model"] for chunk in answer.chunks} == {"gpt-5.4"}
    lines = [record.getMessage() for record in caplog.records]
    assert any("composer-2.5 was refused (" in line for line in lines)
    assert any("gpt-5.4" in line and "after next model: " in line for line in lines), "the line of the answer"
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        assert list(db.execute("SELECT asked, model, error FROM responses")) == [("fast", "gpt-5.4", "")]
        runs = list(db.execute("SELECT model, error != '' FROM runs ORDER BY rowid"))
        assert runs == [("composer-2.5", 1), ("gpt-5.4", 0)]


async def test_the_whole_chain_and_its_end() -> None:
    async with cursor({"composer-2.5": "usage_limit", "gpt-5.4": "plan"}) as client:
        answer = await client.chat(HELLO, model="fast")
        assert (answer.text, answer.headers["x-caretway-model"]) == ("hello", "default")
        assert "gpt-5.4 was refused (plan_or_team_refused)" in answer.headers["x-caretway-model-reason"]
    async with cursor({"composer-2.5": "usage_limit", "gpt-5.4": "plan", "default": "policy"}) as client:
        answer = await client.chat(HELLO, model="fast")
        assert answer.error is not None
        assert (answer.status, answer.error["code"]) == (403, "model_blocked"), "the last refusal"
        assert answer.headers["x-caretway-model"] == "default"


@pytest.mark.parametrize("fault", ["rate_limit", "unauthenticated", "deprecated", "region", "denied", "bare", "late"])
async def test_other_refusals_are_told_as_they_are(fault: str) -> None:
    async with cursor({"composer-2.5": fault}) as client:
        answer = await client.chat(HELLO, model="fast")
        assert answer.error is not None
        assert not served(client)
        assert answer.headers["x-caretway-model"].startswith("composer-2.5")


async def test_a_refusal_without_a_reason_counts_when_the_usage_is_spent() -> None:
    pools = {"fast": "gpt-5.4|auto"}
    for percent, status in (("1", 403), ("100", 200)):
        async with cursor({"gpt-5.4": "bare"}, access_token=f"spent={percent}", model_aliases=pools) as client:
            answer = await client.chat(HELLO, model="fast")
            assert answer.status == status, percent
    assert (answer.text, answer.headers["x-caretway-model"]) == ("hello", "default")
    assert "gpt-5.4 was refused (quota)" in answer.headers["x-caretway-model-reason"]


async def test_nothing_follows_the_first_word() -> None:
    async with cursor({}) as client:
        answer = await client.chat("sim: say half\nsim: fail usage_limit after", model="fast", stream=True)
        assert (answer.status, answer.text) == (200, "half")
        assert len(client.simulator.asked) == 1


async def test_a_turn_goes_on_with_the_model_that_has_it() -> None:
    """Its tool results come under the name of the alias again."""
    async with cursor({"composer-2.5": "usage_limit"}) as client:
        said: list[dict[str, Any]] = [{"role": "user", "content": 'sim: call look {"at": "x"}\nsim: say done'}]
        first = await client.chat(said, model="fast", tools=[tool("look", "at")])
        assert len(first.calls) == 1
        opened = client.stats()["runs_opened"]
        said += [first.message, result(first.calls[0], "seen")]
        second = await client.chat(said, model="fast", tools=[tool("look", "at")])
        assert (second.text, second.session) == ("done", "resumed")
        assert second.headers["x-caretway-model"].startswith("gpt-5.4")
        assert "was refused before" in second.headers["x-caretway-model-reason"]
        assert client.stats()["runs_opened"] == opened, "the same run"


# ---- `fallbacks` of the Messages API


def message(text: str, *fallbacks: str, **more: Any) -> dict[str, Any]:
    others = [{"model": name} for name in fallbacks]
    told = {"model": "composer-2.5", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    return told | {"fallbacks": others} | more


async def test_the_models_of_a_request_are_asked_in_order(tmp_path: Path) -> None:
    async with cursor({"composer-2.5": "plan", "gpt-5.4": "usage_limit"}, data_dir=tmp_path) as client:
        answer = await client.http.post("/v1/messages", json=message(HELLO, "gpt-5.4", "auto"))
        assert (answer.status_code, answer.json()["content"][0]["text"]) == (200, "hello")
        assert answer.headers["x-caretway-model"] == "default"
        assert "gpt-5.4 was refused (" in answer.headers["x-caretway-model-reason"]
        assert "x-caretway-ignored" not in answer.headers
        chain = await client.http.post("/v1/messages", json=message(HELLO, "fast"))
        assert chain.headers["x-caretway-model"] == "default", "an alias may stand there, too"
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        rows = list(db.execute("SELECT asked, model, error FROM responses"))
        assert rows == [("composer-2.5", "default", "")] * 2


async def test_no_model_of_a_request_follows_the_first_word() -> None:
    async with cursor({}) as client:
        text = "sim: say half\nsim: fail usage_limit after"
        answer = await client.http.post("/v1/messages", json=message(text, "gpt-5.4", stream=True))
        assert "half" in answer.text
        assert "event: error" in answer.text
        assert len(client.simulator.asked) == 1


async def test_a_request_leads_no_key_to_a_model_that_it_may_not_use(tmp_path: Path) -> None:
    headers = key_for(tmp_path, models=("composer-2.5",))
    async with cursor({"composer-2.5": "usage_limit"}, data_dir=tmp_path) as client:
        answer = await client.http.post("/v1/messages", json=message(HELLO, "gpt-5.4", "fast"), headers=headers)
        assert answer.status_code == 402 or answer.json()["error"]["type"] == "rate_limit_error"
        assert served(client) == []


@pytest.mark.parametrize("given", ["other", ["gpt-5.4"], [{}], [{"model": 3}], [{"model": "auto"}] * 9])
async def test_a_list_that_is_none(given: object) -> None:
    async with cursor({}) as client:
        answer = await client.http.post("/v1/messages", json=message(HELLO, fallbacks=given))
        assert (answer.status_code, "fallbacks" in answer.json()["error"]["message"]) == (400, True)


async def test_what_is_ignored_of_a_list() -> None:
    async with cursor({}) as client:
        entry = {"model": "auto", "max_tokens": 5, "thinking": None, "speed": "fast"}
        answer = await client.http.post("/v1/messages", json=message(HELLO, fallbacks=[entry]))
        assert answer.headers["x-caretway-ignored"] == "fallbacks.max_tokens, fallbacks.speed"
        answer = await client.http.post("/v1/messages", json=message(HELLO, fallbacks="default"))
        assert answer.headers["x-caretway-ignored"] == "fallbacks"


def key_for(data: Path, **limits: Any) -> dict[str, str]:
    KeyFile(data).change(lambda keys: added(keys, "cw-a-key-for-this-test", "anna", 1.0, **limits))
    return {"authorization": "Bearer cw-a-key-for-this-test"}


async def test_a_key_is_not_led_to_a_model_that_it_may_not_use(tmp_path: Path) -> None:
    headers = key_for(tmp_path, models=("composer-2.5", "default"))
    async with cursor({"composer-2.5": "usage_limit"}, data_dir=tmp_path) as client:
        answer = await client.chat(HELLO, model="fast", headers=headers)
        assert (answer.text, answer.headers["x-caretway-model"]) == ("hello", "default"), "past gpt-5.4"
        assert served(client) == ["default"]


async def test_a_budget_of_ours_ends_the_chain(tmp_path: Path) -> None:
    headers = key_for(tmp_path, budgets=("runs=1/day",))
    async with cursor({"composer-2.5": "usage_limit"}, data_dir=tmp_path) as client:
        answer = await client.chat(HELLO, model="fast", headers=headers)
        assert answer.error is not None
        assert (answer.status, "budget" in answer.error["message"]) == (402, True)
        assert (len(client.simulator.asked), served(client)) == (1, []), "no second run was allowed"


async def test_names_that_are_not_listed_are_passed_over() -> None:
    async with cursor({}, model_aliases={"fast": "no-such-model|gpt-5.4"}) as client:
        answer = await client.chat(HELLO, model="fast@effort=high")
        assert answer.headers["x-caretway-model"].startswith("gpt-5.4@"), json.dumps(dict(answer.headers))
        assert "reasoning=high" in answer.headers["x-caretway-model"]
