"""Budgets on a gateway that runs, over real sockets: exact runs, what clients are told, what survives a restart."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from caretway.config import ConfigError, Settings
from caretway.gateway import Gateway
from caretway.processes.tasks import spawn
from caretway.usage.key_file import KeyFile, added
from caretway_sim.manners import LIVE
from contract.gateways import CHAT, Client, gateway, gateway_to, simulated

HELLO = "sim: say hello"
KEY = "cw-the-key-of-opencode-here"
OTHER = "cw-the-key-of-somebody-else"
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def named(data: Path, key: str = KEY, name: str = "opencode", **more: Any) -> dict[str, str]:
    """A key with a name, and the header that sends it."""
    KeyFile(data).change(lambda keys: added(keys, key, name, 1.0, **more))
    return {"authorization": f"Bearer {key}"}


async def flood(client: Client, count: int, headers: dict[str, str]) -> Counter[int]:
    answers = await asyncio.gather(*(client.chat(HELLO, headers=headers, stream=at % 2 == 0) for at in range(count)))
    return Counter(answer.status for answer in answers)


async def test_200_at_once_against_a_budget_for_50_runs_and_after_a_restart(tmp_path: Path) -> None:
    headers = named(tmp_path, budgets=("runs=50/day",))
    limits: dict[str, Any] = {"data_dir": tmp_path, "max_concurrent_per_key": 500}
    async with simulated() as (simulator, port):
        async with gateway_to(simulator, port, **limits) as client:
            assert await flood(client, 200, headers) == {200: 50, 402: 150}
            assert client.stats()["runs_opened"] == 50
        async with gateway_to(simulator, port, **limits) as client:
            assert await flood(client, 5, headers) == {402: 5}
            assert client.stats()["runs_opened"] == 50


async def test_two_gateways_that_share_a_data_directory_share_the_budget(tmp_path: Path) -> None:
    headers = named(tmp_path, budgets=("runs=20",))
    async with simulated() as (simulator, port):
        one, two = (gateway_to(simulator, port, data_dir=tmp_path) for _ in range(2))
        async with one as first, two as second:
            answers = await asyncio.gather(flood(first, 40, headers), flood(second, 40, headers))
            assert answers[0] + answers[1] == {200: 20, 402: 60}
            assert first.stats()["runs_opened"] == 20


@pytest.mark.parametrize("away", ["refuse", "allow"])
async def test_a_damaged_file_is_replaced_once_and_one_that_cannot_be_opened_is_not_counted_anew(
    away: str, tmp_path: Path
) -> None:
    headers = named(tmp_path, budgets=("runs=1/day",))
    limits: dict[str, Any] = {"data_dir": tmp_path, "cluster_budgets": away}
    file = tmp_path / "budgets.sqlite"
    file.write_bytes(b"rubbish" * 1000)
    found: list[int] = []
    async with simulated() as (simulator, port):
        for _ in range(2):
            async with gateway_to(simulator, port, **limits) as client:
                found += [(await client.chat(HELLO, headers=headers)).status for _ in range(2)]
        assert found == [200, 402, 402, 402]
        real = file.rename(tmp_path / "elsewhere.sqlite")
        file.symlink_to(real)
        async with gateway_to(simulator, port, **limits) as client:
            statuses = [(await client.chat(HELLO, headers=headers)).status for _ in range(2)]
            assert statuses == {"refuse": [429, 429], "allow": [200, 402]}[away]
            file.unlink()
            real.rename(file)
            assert (await client.chat(HELLO, headers=headers)).status == 402


# ---- what clients are told


async def test_a_refusal_in_the_words_of_each_api(tmp_path: Path) -> None:
    headers = named(tmp_path, budgets=("runs=1/day",))
    ask = [{"role": "user", "content": HELLO}]
    async with gateway(data_dir=tmp_path) as client:
        assert (await client.chat(HELLO, headers=headers)).text == "hello"
        chat = await client.http.post(CHAT, json={"model": "sim-auto", "messages": ask}, headers=headers)
        responses = await client.http.post("/v1/responses", json={"model": "sim-auto", "input": HELLO}, headers=headers)
        messages = await client.http.post(
            "/v1/messages",
            json={"model": "sim-auto", "max_tokens": 9, "messages": ask, "stream": True},
            headers=headers,
        )
        for answer in (chat, responses, messages):
            assert (answer.status_code, answer.headers["x-should-retry"]) == (402, "false")
            told = answer.json()["error"]["message"]
            assert told.startswith("The gateway's budget for the key opencode is used up: 1 of 1 run today. It resets")
            assert "key.runs=1/day" in told
        for answer in (chat, responses):
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
            assert error["reason"] == "budget_exceeded"
        error = messages.json()["error"]
        assert (error["type"], error["details"]["error_code"]) == ("billing_error", "insufficient_quota")
        assert error["details"]["reason"] == "budget_exceeded"
        assert client.stats()["runs_opened"] == 1


async def test_a_warning_from_80_percent_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    headers = named(tmp_path, budgets=("runs=5/month",))
    async with gateway(data_dir=tmp_path) as client:
        seen = [(await client.chat(HELLO, headers=headers)).headers.get("x-caretway-budget") for _ in range(6)]
    assert seen[:3] == [None] * 3
    assert seen[3:] == [
        "for the key opencode: 4 of 5 runs this month (80 %)",
        "for the key opencode: 5 of 5 runs this month (100 %)",
        None,
    ]
    assert caplog.text.count("budget for the key opencode is low: 4 of 5") == 1
    assert caplog.text.count("Requests are refused") == 1


# ---- whose budget it is


async def test_scopes(tmp_path: Path) -> None:
    first = named(tmp_path)
    second = named(tmp_path, OTHER, "other", budgets=("runs=9",))
    async with gateway(data_dir=tmp_path, budgets=["runs=4/day", "key.runs=3"]) as client:
        assert await flood(client, 5, first) == {200: 3, 402: 2}
        assert await flood(client, 5, second) == {200: 1, 402: 4}


async def test_a_conversation_has_a_budget_of_its_own() -> None:
    async with gateway(budgets=["conversation.runs=2"]) as client:
        history: list[dict[str, Any]] = []
        for expected in (200, 200, 402):
            history.append({"role": "user", "content": "sim: say yes"})
            answer = await client.chat(history)
            assert answer.status == expected
            history.append(answer.message)
        assert answer.error is not None
        assert "for this conversation is used up" in answer.error["message"]
        assert (await client.chat("sim: say another one")).status == 200


# ---- runs that wait, are lost or are not opened


async def test_results_for_a_parked_run_are_taken_when_the_budget_is_spent() -> None:
    async with gateway(budgets=["runs=2"]) as client:
        ask: list[dict[str, Any]] = [{"role": "user", "content": "sim: call look {}\nsim: result"}]
        paused = await client.chat(ask, tools=TOOLS)
        assert paused.finish == "tool_calls"
        assert (await client.chat(HELLO)).status == 200
        assert (await client.chat(HELLO)).status == 402, "the budget is spent"
        ask += [paused.message, {"role": "tool", "tool_call_id": paused.calls[0]["id"], "content": "seen"}]
        resumed = await client.chat(ask, tools=TOOLS)
        assert (resumed.status, resumed.session) == (200, "resumed")
        assert "seen" in resumed.text
        fresh = await client.chat(ask, tools=TOOLS, headers={"x-caretway-session": "fresh"})
        assert fresh.status == 402, "the same results would need another run"
        assert client.stats()["runs_opened"] == 2


async def test_a_request_that_opens_no_run_costs_none(tmp_path: Path) -> None:
    async with gateway(data_dir=tmp_path, budgets=["runs=1"], workspace=tmp_path) as client:
        outside = {"x-caretway-workspace": "/nowhere/at/all"}
        assert (await client.chat(HELLO, headers=outside)).status == 403
        assert (await client.chat(HELLO)).status == 200
        assert (await client.chat(HELLO)).status == 402
        assert client.stats()["runs_opened"] == 1


# ---- tokens


async def test_tokens_are_settled_by_what_cursor_counted(tmp_path: Path) -> None:
    """The simulator counts 14 tokens a run, of which an estimate knows four."""
    async with gateway(data_dir=tmp_path, budgets=["tokens=30/day"]) as client:
        answers = [await client.chat(HELLO) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 402, 402]
    assert [answer.usage["total_tokens"] for answer in answers if answer.usage] == [14, 14, 14]
    assert answers[-1].error is not None
    assert "is used up: 42 of 30 tokens today" in answers[-1].error["message"]
    assert "x-caretway-budget" not in answers[0].headers
    assert answers[2].headers["x-caretway-budget"] == "for everybody: 32 of 30 tokens today (106 %)"


async def test_a_run_that_passes_its_own_budget_ends_with_its_text() -> None:
    async with gateway(budgets=["run.tokens=2k"]) as client:
        whole = await client.chat(HELLO)
        assert (whole.text, whole.finish) == ("hello", "stop")
        for stream in (True, False):
            cut = await client.chat("sim: stream 4000 20", stream=stream)
            assert (cut.status, cut.finish, cut.error) == (200, "length", None)
            assert 0 < len(cut.text) < 20_000
            assert cut.done
        await _until(lambda: client.gateway.tenants.live == 0)


async def _until(true: Any) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


# ---- before it starts, and after a crash


@contextmanager
def started(*command: str, home: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A command that listens, as a process of its own; and where."""
    environment = os.environ | {"HOME": str(home), "CURSOR_API_KEY": "simulated"}
    words = [sys.executable, "-m", "caretway", *command, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = (re.search(r"http://[\d.]+:\d+", line) for line in iter(process.stdout.readline, ""))
            yield next(match.group() for match in found if match), process
        finally:
            process.kill()


async def test_no_run_too_many_after_kill_9_in_the_middle(tmp_path: Path) -> None:
    """What was reserved and not opened is lost; what was opened is counted, whatever happens to the process."""
    headers = named(tmp_path, budgets=("runs=50/day",))
    body = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: pause 300\nsim: say hello"}]}

    async def ask(http: httpx.AsyncClient, url: str) -> int:
        try:
            return (await http.post(url + CHAT, json=body, headers=headers, timeout=60)).status_code
        except httpx.HTTPError:
            return 0

    with started("simulate", home=tmp_path) as (simulator, _):
        serve = ("serve", "--backend", "agent", "--agent-url", simulator, "--data-dir", str(tmp_path))
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as http:

            async def opened() -> int:
                return int((await http.get(simulator + "/_sim/stats")).json()["runs_opened"])

            with started(*serve, home=tmp_path) as (url, process):
                asked = [spawn(ask(http, url), "ask") for _ in range(30)]
                async with asyncio.timeout(60):
                    while await opened() < 10:
                        await asyncio.sleep(0.02)
                process.send_signal(signal.SIGKILL)
                await asyncio.gather(*asked)
                before = await opened()
            assert 10 <= before <= 30
            with started(*serve, home=tmp_path) as (url, _):
                statuses = Counter(await asyncio.gather(*(ask(http, url) for _ in range(60))))
            assert set(statuses) == {200, 402}
            assert 50 - 30 <= statuses[200] <= 50 - before
            assert before + statuses[200] == await opened() <= 50


async def test_a_budget_that_is_none_is_told_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='"runs=many" is no budget; expected budgets such as runs=50/day'):
        await Gateway(Settings(port=0, backend="simulator", data_dir=tmp_path, budgets=("runs=many",))).__aenter__()


# ---- hooks, cents and months


async def test_a_webhook_hears_of_a_budget_once(tmp_path: Path) -> None:
    heard: asyncio.Queue[tuple[bytes, dict[str, Any]]] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        assert length is not None
        body = await reader.readexactly(int(length[1]))
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        heard.put_nowait((head, msgspec.json.decode(body)))

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    headers = named(tmp_path, budgets=("runs=5/day",))
    async with server, gateway(data_dir=tmp_path, hook=f"http://127.0.0.1:{port}/told?by=caretway") as client:
        for _ in range(8):
            await client.chat(HELLO, headers=headers)
        async with asyncio.timeout(60):
            (head, low), (_, spent) = await heard.get(), await heard.get()
        assert head.startswith(b"POST /told?by=caretway HTTP/1.1\r\n")
        assert (low["event"], spent["event"]) == ("budget_low", "budget_spent")
        assert "for the key opencode is low: 4 of 5 runs today" in low["message"]
        assert KEY not in str(low) + str(spent) + str(head)
    assert heard.empty()


async def test_cents_are_counted_by_the_users_own_prices() -> None:
    """14 tokens a run: 12 of input at 1 cent each, 2 of output at 4 cents."""
    own = {"sim-auto": {"input": 10_000, "output": 40_000}}
    async with gateway(budgets=["cents=30"], prices=own) as client:
        answers = [await client.chat(HELLO) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 402, 402]
    assert answers[-1].error is not None
    assert "is used up: $0.40 of $0.30." in answers[-1].error["message"]


async def test_a_month_follows_the_billing_cycle_when_it_is_known(tmp_path: Path) -> None:
    known: dict[str, Any] = {"manners": LIVE, "access_token": "plan=ultra spent=4"}
    async with gateway(data_dir=tmp_path, budgets=["runs=1/month"], **known) as client:
        assert (await client.chat(HELLO)).status == 200
        budgets = client.gateway._services.budgets
        async with asyncio.timeout(60):
            while budgets.cycle is None:  # asked for beside the request
                await asyncio.sleep(0.01)
        refused = await client.chat(HELLO)
        assert refused.error is not None
        resets = datetime.fromtimestamp(budgets.cycle.ends_at).strftime("%Y-%m-%d at %H:%M")
        assert f"this month. It resets on {resets}." in refused.error["message"]
