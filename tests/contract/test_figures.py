"""The figures of a scripted day are the same wherever they are shown: ledger, dashboard, `caretway usage`,
`caretway top` and `/metrics`. What they should be is computed from what the simulator counted.
"""

import asyncio
import json
import re
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from caretway.usage.prices import PUBLISHED
from caretway_sim.accounts import Accounts
from caretway_sim.catalogue import writes_cache
from caretway_sim.shared import Shared
from contract.gateways import CHAT, Client, gateway, result, tool
from contract.test_accounts import run_command

KINDS = ("input", "cache_write", "cache_read", "output")
MODELS = ("sim-auto", "sim-think", "composer-2.5")
TOKEN = "test-token"


async def work(client: Client, model: str) -> None:
    """A tool loop, a second question in the same conversation, and a history that was changed."""
    calls = "\n".join(f'sim: call lookup {{"key": "{n}"}}' for n in range(3))
    talk: list[dict[str, Any]] = [{"role": "user", "content": f"{calls}\nsim: say done"}]
    more: dict[str, Any] = {"model": model, "tools": [tool("lookup", "key")]}
    answer = await client.chat(talk, **more)
    while answer.calls:
        talk += [answer.message, *(result(call, "a line of a file\n" * 40) for call in answer.calls)]
        answer = await client.chat(talk, **more)
    talk += [answer.message, {"role": "user", "content": "sim: say more"}]
    assert (await client.chat(talk, **more)).session == "continued"
    talk[1]["content"] = "something else was said"
    assert (await client.chat(talk, **more)).session == "replayed"


def shown_by_the_table(text: str, model: str) -> dict[str, str]:
    head, *rows = (line for line in text.splitlines() if line)
    heads = re.split(r" {2,}", head.strip())
    (row,) = (re.split(r" {2,}", line.strip()) for line in rows if line.startswith(f"{model} "))
    return dict(zip(heads, row, strict=False))


async def test_every_figure_of_a_day(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with gateway("h2", data_dir=data, access_token=TOKEN) as client:
        for model in MODELS:
            await work(client, model)
        owner = Accounts(Shared()).person(TOKEN).name
        billed = client.simulator.billed.of(owner, int(time.time() * 1000) + 1000)
        expected = {model: dict.fromkeys(KINDS, 0) for model in MODELS}
        for one in billed:
            model = one.model.partition("[")[0]
            fresh = "cache_write" if writes_cache(model) else "input"
            for kind, count in ((fresh, one.read), ("cache_read", one.cached), ("output", one.written)):
                expected[model][kind] += count
        stats = client.stats()
        whole = {kind: sum(of[kind] for of in expected.values()) for kind in KINDS}
        assert whole["cache_read"] == stats["tokens_in_cached"] > 0
        assert whole["input"] + whole["cache_write"] == stats["tokens_in_uncached"] > 0
        assert whole["output"] == stats["tokens_out"] > 0
        assert whole["cache_write"] > 0 and whole["input"] > 0
        read = whole["input"] + whole["cache_write"] + whole["cache_read"]

        # /metrics
        counted: dict[str, Counter[str]] = {model: Counter() for model in MODELS}
        sample = re.compile(r'^caretway_tokens_total\{kind="(\w+)",model="([^"]*)",key=""\} (\d+)$', re.MULTILINE)
        for kind, model, count in sample.findall((await client.http.get("/metrics")).text):
            counted[model][kind] += int(count)
        assert {model: dict(kinds) for model, kinds in counted.items()} == expected
        each = re.compile(r'^caretway_runs_total\{backend="agent",model="([^"]*)",.*\} (\d+)$', re.MULTILINE)
        runs = Counter(one.model.partition("[")[0] for one in billed)
        metered = Counter[str]()
        for model, count in each.findall((await client.http.get("/metrics")).text):
            metered[model] += int(count)
        assert metered == runs and runs.total() == stats["runs_opened"]

        # The ledger, once it is written.
        ledger = client.gateway._services.ledger
        assert ledger is not None
        await asyncio.to_thread(ledger.settle, 30)
        with closing(sqlite3.connect(data / "ledger.sqlite")) as db:
            (saved,) = db.execute("SELECT sum(held) FROM responses").fetchone()
            rows = db.execute(
                "SELECT model, sum(input - coalesce(cache_read, 0) - coalesce(cache_write, 0)),"
                " total(cache_write), total(cache_read), sum(output) FROM runs GROUP BY model"
            ).fetchall()
        assert {model: dict(zip(KINDS, map(int, kinds), strict=True)) for model, *kinds in rows} == expected
        assert saved > 0

        # The dashboard: its Usage tab prints these.
        found = (await client.http.get("/caretway/v1/usage?period=today&by=model")).json()
        assert {row["group"]: {kind: row[kind] for kind in KINDS} for row in found["rows"]} == expected
        total = found["total"]
        assert total["tokens"] == read + whole["output"] and total["read"] == read
        assert total["cached_share"] == whole["cache_read"] / read
        assert total["saved"] == saved and total["saved_share"] == saved / (saved + read)
        price, of = PUBLISHED["composer-2.5"], expected["composer-2.5"]
        cents = (of["input"] * price.input + of["cache_read"] * price.cache_read + of["output"] * price.output) / 1e4
        assert total["cents"] == pytest.approx(cents)
        assert {row["group"]: row["runs"] for row in found["rows"]} == runs and total["runs"] == runs.total()
        assert total["unpriced"] == runs["sim-auto"] + runs["sim-think"]
        assert sorted(found["unpriced"]) == ["[prices.sim-auto]", "[prices.sim-think]"]
        listed = (await client.http.get("/caretway/v1/conversations")).json()["data"]
        assert {kind: sum(row[kind] for row in listed) for kind in KINDS} == whole
        hours = (await client.http.get("/caretway/v1/usage?period=today&by=hour")).json()
        assert {kind: sum(row[kind] for row in hours["rows"]) for kind in KINDS} == whole
        assert {row["group"] for row in hours["rows"]} <= set(hours["slots"])
        assert sum(row["cents"] or 0 for row in hours["rows"]) == pytest.approx(cents)
        (lookup,) = (await client.http.get("/caretway/v1/usage?period=today&by=tool")).json()["rows"]
        with closing(sqlite3.connect(data / "ledger.sqlite")) as db:
            answers, failed, first = db.execute(
                "SELECT count(*), sum(error != ''), max(first_ms) FROM responses"
            ).fetchone()
            (calls,) = db.execute("SELECT sum(calls) FROM responses").fetchone()
        assert (lookup["group"], lookup["calls"], lookup["waits"]) == ("lookup", calls, calls)

        # Its overview: sixty minutes of the same rows.
        overview = (await client.http.get("/caretway/v1/overview")).json()
        minutes = overview["minutes"]
        assert {kind: sum(one[kind] for one in minutes) for kind in KINDS} == whole
        assert (sum(one["answers"] for one in minutes), sum(one["failed"] for one in minutes)) == (answers, failed)
        assert max(one["first_p95"] or 0 for one in minutes) <= first
        assert overview["today"]["total"] == total
        assert sum(row["cents"] or 0 for row in overview["today"]["clients"]) == pytest.approx(cents)

        # A conversation: the costs of its steps add up to its own.
        for row in listed:
            told = (await client.http.get(f"/caretway/v1/conversations/{row['id']}")).json()
            assert sum(step["cents"] or 0 for step in told["steps"]) == pytest.approx(row["cents"] or 0)
            assert sum(step["held"] or 0 for step in told["steps"]) == row["saved"]

        # The commands.
        where = ("--data-dir", str(data))
        done = await asyncio.to_thread(run_command, tmp_path, "", "usage", "--json", "--no-quota", *where)
        told = json.loads(done.stdout)
        assert {row["model"]: {kind: row[kind] for kind in KINDS} for row in told["rows"]} == expected
        assert {row["model"]: row["runs"] for row in told["rows"]} == runs
        assert (told["total"]["saved"], told["total"]["tokens"]) == (saved, total["tokens"])
        done = await asyncio.to_thread(run_command, tmp_path, "", "usage", "--no-quota", *where)
        assert f"{total['saved_share']:.0%} less than with `--session fresh`" in " ".join(done.stdout.split())
        assert "[prices.sim-" in done.stdout and max(map(len, done.stdout.splitlines())) <= 80
        assert re.search(r"^model +resp +runs +fresh +written +cached +output +cost$", done.stdout, re.MULTILINE)

        # A stand-in is no live account, and is not hidden.
        health = (await client.http.get("/caretway/v1/health")).json()
        assert not health["live"]["answered"]
        now = (await client.http.get("/caretway/v1/now")).json()
        assert (
            now["backend"]["standing"] == "stand-in" == (await client.http.get("/health")).json()["backend"]["standing"]
        )

        hours_told = await asyncio.to_thread(
            run_command, tmp_path, "", "usage", "--json", "--no-quota", "--by", "hour", *where
        )
        rows_told = {row["hour"]: row["tokens"] for row in json.loads(hours_told.stdout)["rows"]}
        assert rows_told == {row["group"]: row["tokens"] for row in hours["rows"]}

        # `caretway top`, in the middle of an answer: ten pieces of five tokens each.
        body = {
            "model": "sim-auto",
            "stream": True,
            "messages": [{"role": "user", "content": "sim: stream 10 20 1\nsim: hang"}],
        }
        async with client.http.stream("POST", CHAT, json=body) as answer:
            said, lines = "", answer.aiter_lines()
            while len(said) < 10 * 20:
                line = await anext(lines)
                if line.startswith("data: {"):
                    said += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            port = client.gateway.base_url.rpartition(":")[2]
            done = await asyncio.to_thread(run_command, tmp_path, "", "top", "--json", "--port", port, *where)
            top = json.loads(done.stdout)
            (turn,) = top["turns"]
            assert (top["running"], top["parked"], turn["tokens"]) == (1, 0, 10 * 5)
            assert top["overview"]["today"] == overview["today"]
