"""What is left and what was used, over real sockets: `/caretway/v1/account`, `caretway status` and `caretway usage`."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caretway_sim.accounts import Accounts
from caretway_sim.manners import LIVE
from caretway_sim.shared import Shared
from contract.gateways import gateway, gateway_to, simulated

ACCOUNT = "/caretway/v1/account"


async def test_both_pools_money_and_the_reset() -> None:
    async with gateway(manners=LIVE, access_token="plan=ultra spent=46") as client:
        answers = await asyncio.gather(*(client.http.get(ACCOUNT) for _ in range(5)))
        told = answers[0].json()
        assert {answer.text for answer in answers} == {answers[0].text}
        assert [(pool["name"], pool["percent_used"]) for pool in told["pools"]] == [
            ("Cursor Models", 23.0),
            ("Other Models", 46.0),
        ]
        assert (told["spent_cents"], told["limit_cents"], told["plan"]["name"]) == (18_400.0, 40_000.0, "Ultra")
        assert 0 <= told["period"]["days_left"] <= 30
        assert client.stats()["usage_asked"] == 1, "for a minute"


async def test_a_seat() -> None:
    async with gateway(manners=LIVE, access_token="team=42 spent=10") as client:
        told = (await client.http.get(ACCOUNT)).json()
        assert told["team"] == {"id": 42, "name": "Simulated team", "role": "TEAM_ROLE_MEMBER"}
        assert told["on_demand"]["shared"]


async def test_what_cannot_be_learned_is_said() -> None:
    async with gateway(manners=replace(LIVE, period_usage="refused"), access_token="spent=1") as client:
        told = (await client.http.get(ACCOUNT)).json()
        assert told["known"] is False and told["reason"]
        assert (await client.chat("sim: say hi")).text == "hi"


def command(home: Path, *arguments: str, token: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CARETWAY_ACCESS_TOKEN": token, "TZ": "UTC"}
    done = subprocess.run(
        [sys.executable, "-m", "caretway", *arguments], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_commands_tell_the_same(tmp_path: Path) -> None:
    token = "plan=pro spent=30"
    async with simulated(LIVE) as (simulator, port):
        where: dict[str, Any] = {"agent_url": f"http://127.0.0.1:{port}", "data_dir": tmp_path / "data"}
        async with gateway_to(simulator, port, data_dir=tmp_path / "data", access_token=token) as client:
            for _ in range(3):
                assert (await client.chat("sim: say hello", headers={"user-agent": "opencode/1"})).text == "hello"
        flags = ("--backend", "agent", "--agent-url", where["agent_url"], "--data-dir", str(where["data_dir"]))
        shown, told, status = await asyncio.gather(
            *(
                asyncio.to_thread(command, tmp_path, *words, *flags, token=token)
                for words in (("usage", "--by", "client"), ("usage", "week", "--by", "client", "--json"), ("status",))
            )
        )
    assert "  Cursor Models  ###-----------------  15 % used\n" in shown
    assert "  Other Models   ######--------------  30 % used\n" in shown
    assert "quota      Cursor Models 15 % used, Other Models 30 % used" in status
    assert "resets" in shown and "resets" in status
    assert max(map(len, (shown + status).splitlines())) <= 80
    usage = json.loads(told)
    (row,) = usage["rows"]
    assert (row["client"], row["responses"], row["runs"], row["unreported"]) == ("opencode", 3, 3, 0)
    assert usage["quota"]["known"] and usage["total"]["output"] == row["output"] > 0


async def test_what_cursor_lists_is_matched_to_conversations(tmp_path: Path) -> None:
    """Two conversations of this gateway, one of them with two runs; somebody else's runs on the same account are not
    ours."""
    token, data = "plan=pro spent=30", tmp_path / "data"
    async with simulated(LIVE) as (simulator, port):
        async with gateway_to(simulator, port, data_dir=data, access_token=token) as client:
            history: list[dict[str, Any]] = [{"role": "user", "content": "sim: say one"}]
            history += [(await client.chat(history)).message, {"role": "user", "content": "sim: say two"}]
            await client.chat(history)
            await client.chat("sim: say another")
        async with gateway_to(simulator, port, data_dir=tmp_path / "other", access_token=token) as client:
            await client.chat("sim: say not ours")
        flags = ("--backend", "agent", "--agent-url", f"http://127.0.0.1:{port}", "--data-dir", str(data))
        told = json.loads(await asyncio.to_thread(command, tmp_path, "usage", "--json", *flags, token=token))
        shown = await asyncio.to_thread(command, tmp_path, "usage", *flags, token=token)
    events = told["events"]
    with closing(sqlite3.connect(data / "ledger.sqlite")) as db:
        ours = {name for (name,) in db.execute("SELECT DISTINCT upstream FROM runs")}
    owner = Accounts(Shared()).person(token).name
    billed = [row for row in simulator.billed.of(owner, 2**62) if row.conversation in ours]
    assert (len(ours), len(billed)) == (2, 3)
    assert (events["conversations"], events["missing"], events["complete"]) == (2, 0, True)
    assert events["cents"] == pytest.approx(sum(row.cents for row in billed))
    assert "by Cursor's own list of events, for 2 of 2 conversations" in " ".join(shown.split())
    assert "may lag ten minutes" in " ".join(shown.split())


async def test_a_list_of_events_that_lags(tmp_path: Path) -> None:
    token, data = "plan=pro spent=30", tmp_path / "data"
    async with simulated(replace(LIVE, usage_lag_s=600)) as (simulator, port):
        async with gateway_to(simulator, port, data_dir=data, access_token=token) as client:
            await client.chat("sim: say one")
        flags = ("--backend", "agent", "--agent-url", f"http://127.0.0.1:{port}", "--data-dir", str(data))
        told = json.loads(await asyncio.to_thread(command, tmp_path, "usage", "--json", *flags, token=token))
    assert (told["events"]["conversations"], told["events"]["missing"], told["events"]["cents"]) == (0, 1, 0)
