"""Hosts and identity: the symptoms of a wrong host, a downgraded connection and a refused version, each by a switch of
the simulator; what the gateway does about them, and what the user reads."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caretway.accounts.account import Account
from caretway.upstream import sign_ins
from caretway_sim.manners import CLASSIC, LIVE, Manners
from contract.gateways import Answer, gateway, gateway_to, result, simulated, tool

PINNED = [replace(LIVE, pinned_team="ends"), replace(LIVE, pinned_team="words")]


@pytest.fixture(params=PINNED, ids=lambda manners: manners.pinned_team)
def pinned(request: pytest.FixtureRequest) -> Manners:
    manners: Manners = request.param
    return manners


def told(answer: Answer, status: int, code: str) -> str:
    assert answer.error is not None, answer
    assert (answer.status, answer.error["code"]) == (status, code), answer.error
    message: str = answer.error["message"]
    return message


# ---- the host of a team


async def test_a3_the_teams_host_is_asked_for_once_and_remembered(
    pinned: Manners, transport: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with gateway(transport, manners=pinned) as client:
        first = await client.chat("sim: say one", stream=stream)
        assert first.text == "one", first.error
        stats = client.stats()
        assert (stats["misdirected"], stats["server_configs"], stats["runs_opened"]) == (1, 1, 1)
        talk = [{"role": "user", "content": "sim: say one"}, first.message, {"role": "user", "content": "sim: say two"}]
        second = await client.chat(talk, stream=stream)
        assert (second.text, second.session) == ("two", "continued")
        stats = client.stats()
        assert (stats["misdirected"], stats["server_configs"], stats["runs_opened"]) == (1, 1, 2)
        metrics = (await client.http.get("/metrics")).text
        assert 'caretway_recoveries_total{rung="other host",cause="host"} 1' in metrics
        assert "/agentn, which is tried" in caplog.text, "the log says where runs go now"
        assert "--run-url" not in caplog.text, "what to type is said when nothing helped"


async def test_a3_many_runs_at_once_share_the_answer(pinned: Manners, transport: str) -> None:
    async with gateway(transport, manners=pinned) as client:
        answers = await asyncio.gather(*(client.chat(f"sim: say {number}") for number in range(8)))
        assert [answer.text for answer in answers] == [str(number) for number in range(8)]
        assert client.stats()["server_configs"] == 1


async def test_a3_tools_work_there(pinned: Manners, transport: str) -> None:
    tools = [tool("lookup", "key")]
    async with gateway(transport, manners=pinned) as client:
        talk: list[dict[str, Any]] = [{"role": "user", "content": 'sim: call lookup {"key": "k"}\nsim: say done'}]
        asked = await client.chat(talk, tools=tools)
        assert len(asked.calls) == 1
        answer = await client.chat([*talk, asked.message, result(asked.calls[0], "V")], tools=tools)
        assert (answer.text, answer.session) == ("done", "resumed")
        assert client.stats()["misdirected"] == 1


async def test_a3_another_account_is_asked_for_anew(pinned: Manners, tmp_path: Path) -> None:
    async with gateway(manners=pinned, data_dir=tmp_path, access_token=None) as client:
        kept = sign_ins(client.gateway.settings)
        for number, key in enumerate(["key-1", "key-2"], 1):
            async with kept.locked():
                kept.keep(client.gateway.settings.agent_url, Account(api_key=key))
            assert (await client.chat("sim: say hi")).text == "hi"
            assert (await client.chat("sim: say hi")).text == "hi"
            assert client.stats()["server_configs"] == number


async def test_a3_a_host_in_the_settings_is_used_from_the_start_and_never_left(pinned: Manners, transport: str) -> None:
    async with simulated(pinned) as (simulator, port):
        async with gateway_to(simulator, port, transport, run_url=f"http://127.0.0.1:{port}/agentn") as client:
            assert (await client.chat("sim: say there")).text == "there"
            assert client.stats()["misdirected"] == 0
        async with gateway_to(simulator, port, transport, run_url=f"http://localhost:{port}") as client:
            answer = await client.chat("sim: say there")
            assert answer.error is not None and "--run-url" in answer.error["message"]
            assert client.stats()["server_configs"] == 0


@pytest.mark.seed("E01")
async def test_a3_three_hosts(transport: str) -> None:
    """The API and the runs on servers of their own; the short form is not needed."""
    async with simulated() as (api, api_port), simulated() as (runs, runs_port):
        urls = {"api_url": f"http://127.0.0.1:{api_port}", "run_url": f"http://127.0.0.1:{runs_port}"}
        async with gateway_to(runs, runs_port, transport, access_token=None, api_key="key", **urls) as client:
            assert (await client.chat("sim: say there")).text == "there"
        assert (api.stats.runs_opened, runs.stats.runs_opened) == (0, 1)
        assert (api.stats.token_exchanges, runs.stats.token_exchanges) == (1, 0)


@pytest.mark.parametrize("script", ["eof", "team_region"])
async def test_a3_when_cursor_names_no_other_host_it_is_asked_once(script: str, transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        for _ in range(3):
            answer = await client.chat(f"sim: fail {script}")
            assert answer.error is not None and "--run-url" in answer.error["message"]
        assert client.stats()["server_configs"] == 1


async def test_a3_a_host_that_has_served_the_account_is_not_left_for_an_empty_stream(transport: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        assert (await client.chat("sim: say hi")).text == "hi"
        told(await client.chat("sim: fail eof"), 503, "empty_stream")
        assert client.stats()["server_configs"] == 0
        told(await client.chat("sim: fail team_region"), 403, "team_region_refused")
        assert client.stats()["server_configs"] == 1


async def test_a3_a_named_host_that_does_not_help_is_left_again(transport: str) -> None:
    """The host that Cursor names ends streams as well: one more attempt, and the error says what to type."""
    async with gateway(transport, manners=replace(LIVE, pinned_team="ends")) as client:
        message = told(await client.chat("sim: fail eof"), 503, "empty_stream")
        assert "--run-url" in message and "agentnUrl" in message
        assert (await client.chat("sim: say again")).error is not None, "back at the API, which is not asked again soon"
        assert client.stats()["server_configs"] == 1


# ---- 464


async def test_a4_464_means_http1(stream: bool) -> None:
    async with gateway("auto", manners=replace(LIVE, run_is_464=True)) as client:
        answer = await client.chat("sim: say downgraded", stream=stream)
        assert answer.text == "downgraded", answer.error
        assert client.stats()["runs_opened"] == 1
        assert (await client.gateway.backend.status()).detail == "over http1"


async def test_a4_464_with_http2_by_setting_says_what_to_type() -> None:
    async with gateway("h2", manners=replace(LIVE, run_is_464=True)) as client:
        answer = await client.chat("sim: say downgraded")
        assert answer.error is not None and "--agent-transport http1" in answer.error["message"]


# ---- who we say that we are


REFUSALS = [
    ("bare", 403, "refused_without_reason"),
    ("outdated", 502, "upstream_deprecated"),
    ("update_words", 502, "upstream_deprecated"),
]


@pytest.mark.parametrize(("refusal", "status", "code"), REFUSALS)
@pytest.mark.parametrize("everything", [False, True], ids=["runs", "everything"])
async def test_a1_a_refused_version_names_the_setting(
    refusal: Any, status: int, code: str, everything: bool, transport: str
) -> None:
    judging = replace(LIVE, known_versions_only=True, version_refusal=refusal, judges_calls=everything)
    async with gateway(transport, manners=judging) as client:
        message = told(await client.chat("sim: say hi"), status, code)
        assert "--agent-client-version" in message
        if everything:
            assert "--agent-client-version" in (await client.gateway.backend.status()).detail
    async with gateway(transport, manners=judging, agent_client_version="sdk-python-1.1.0") as client:
        assert (await client.chat("sim: say hi")).text == "hi"


@pytest.mark.parametrize("refusal", ["bare", "outdated", "update_words"])
async def test_a1_doctor_names_the_setting(refusal: Any, tmp_path: Path) -> None:
    judging = replace(CLASSIC, known_versions_only=True, version_refusal=refusal, judges_calls=True)
    async with simulated(judging) as (_, port):
        code, findings = await doctor(port, tmp_path)
        assert code == 1
        assert "--agent-client-version" in findings["Cursor"]["hint"]
        assert "our own name" in findings["identity"]["detail"]
        code, findings = await doctor(port, tmp_path, "--agent-client-version", "cli-2026.07.09")
        assert code == 0 and findings["the address"]["ok"]
        assert findings["identity"]["detail"] == "sdk, version cli-2026.07.09 (flag --agent-client-version)"


async def doctor(port: int, home: Path, *more: str) -> tuple[int, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "caretway", "doctor", "--json", "--port", "0", "--agent-url"),
        *(f"http://127.0.0.1:{port}", *more),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "CURSOR_API_KEY": "any", "CARETWAY_BACKEND": "agent"},
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, {finding["name"]: finding for finding in json.loads(output)}
