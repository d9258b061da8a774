"""What the ledger costs and stands: calls of a request, a million rows in bounded memory, a disk without space."""

import asyncio
import re
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from caretway.storage.database import open_database, transaction
from caretway.usage.writing import LEDGER
from caretway_sim.manners import CLASSIC
from contract.gateways import gateway, simulated
from contract.test_request_cost import Counter

MAX_CALLS = 60
"""That a request pays for the ledger, records included; the thread that writes is not the request's."""
ROWS = 1_000_000
MAX_QUERY_MIB = 64
"""Beyond what the command needs when the ledger is empty."""


async def calls_of_a_request(age: float) -> float:
    async with gateway(manners=CLASSIC, ledger_max_age=age) as client:
        for _ in range(5):
            await client.chat("sim: say hello")
        counter, before = Counter(), sys.getprofile()
        sys.setprofile(counter)
        try:
            for _ in range(20):
                assert (await client.chat("sim: say hello")).text == "hello"
        finally:
            sys.setprofile(before)
    return counter.calls / 20


async def test_what_a_request_pays_for_the_ledger() -> None:
    without, with_it = await calls_of_a_request(0.0), await calls_of_a_request(1e6)
    print(f"{with_it - without:.1f} calls more with a ledger ({without:.0f} without)")
    assert 0 < with_it - without <= MAX_CALLS


def filled(path: Path, rows: int) -> None:
    """Rows as a year of heavy use leaves them, made by SQLite itself."""
    now = time.time()
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    called = "'key ' || (i % 4), 'client ' || (i % 9), 'openai_chat', 'agent', 'asked', 'model ' || (i % 12)"
    with closing(open_database(path, LEDGER)) as db, transaction(db):
        db.execute(
            f"""{numbers} INSERT INTO responses (at, key, client, dialect, backend, asked, model, variant, conversation,
            run, request_id, session, reason, outcome, error, stream, calls, input, output, estimated, held, total_ms)
            SELECT {now} - i * 30, {called}, 'composer-2.5@fast=false', 'c' || (i / 20), 'r' || i, 'req' || i,
            CASE i % 5 WHEN 0 THEN 'replayed' ELSE 'resumed' END, 'because of ' || (i % 6), 'end', '', 1, 0, 1000, 10,
            0, 900, 5.0 FROM n""",
            (rows,),
        )
        db.execute(
            f"""{numbers} INSERT INTO runs (run, at, started_at, key, client, dialect, backend, asked, model, variant,
            conversation, upstream, session, reason, outcome, error, responses, reported, complete, steps, input,
            cache_read, output, cents_from) SELECT 'r' || i, {now} - i * 30, 0, {called}, 'composer-2.5@fast=false',
            'c' || (i / 20), 'u' || i, 'fresh', 'first message', 'ended', '', 1, i % 50 != 0, 1, 1,
            CASE WHEN i % 50 THEN 1000 END, CASE WHEN i % 50 THEN 600 END, CASE WHEN i % 50 THEN 10 END, '' FROM n""",
            (rows,),
        )


MEASURED = """
import resource, sys
from caretway.cli.main import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
sys.exit(code)
"""


def memory_of(directory: Path, *words: str) -> tuple[int, str]:
    """(MiB at most, what was printed)"""
    arguments = ["usage", "all", *words, "--no-quota", "--data-dir", str(directory)]
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-1]), done.stdout


@pytest.mark.parametrize("rows", [pytest.param(20_000, id="a few"), pytest.param(ROWS, marks=pytest.mark.all)])
@pytest.mark.timeout(600)
def test_many_rows_in_bounded_memory(tmp_path: Path, rows: int) -> None:
    base, _ = memory_of(tmp_path / "empty")
    filled(tmp_path / "ledger.sqlite", rows)
    for line in ("--by conversation --csv", "--by key"):
        words = line.split()
        began = time.perf_counter()
        used, told = memory_of(tmp_path, *words)
        print(f"{rows:,} rows, {line}: {used - base} MiB more, {time.perf_counter() - began:.1f} s")
        assert used - base < MAX_QUERY_MIB
        if "--csv" in words:
            assert told.count("\n") == rows // 20 + 2  # groups, and the head


def serve_with_little_space(home: Path, port: int, limit: int) -> "subprocess.Popen[str]":
    """No file may grow beyond the limit: for SQLite that is a disk without space."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [
            *(sys.executable, "-m", "caretway", "serve", "--port", "0", "--backend", "agent"),
            *("--agent-url", f"http://127.0.0.1:{port}", "--data-dir", str(home / "data"), "--log-level", "warning"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "", "HOME": str(home), "CARETWAY_ACCESS_TOKEN": "one"},
        preexec_fn=limited,
    )


async def test_a_disk_without_space_fails_no_request(tmp_path: Path) -> None:
    async with simulated() as (_, port):
        process = await asyncio.to_thread(serve_with_little_space, tmp_path, port, 72 * 1024)
        with process:
            assert process.stdout is not None
            url = ""
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", url)):
                url = await asyncio.to_thread(process.stdout.readline)
                assert url, "it ended"
            async with httpx.AsyncClient(base_url=found[0], timeout=60, trust_env=False, verify=False) as http:
                body = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: say hello"}]}
                for _ in range(4):
                    answers = await asyncio.gather(*(http.post("/v1/chat/completions", json=body) for _ in range(60)))
                    assert {answer.status_code for answer in answers} == {200}
                    await asyncio.sleep(0.6)  # the ledger writes in between
            process.terminate()
            _, errors = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0
    warned = [line for line in errors.splitlines() if "the ledger" in line]
    assert "cannot be written, usage is not kept" in warned[0], errors
    spells = 1 + sum("is written again" in line for line in warned)
    assert len(warned) <= 2 * spells, "one warning, and at the end how many rows are lost"
    with closing(sqlite3.connect(tmp_path / "data" / "ledger.sqlite")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
