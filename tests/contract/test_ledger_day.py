"""A scripted day: many responses in three dialects, with four keys, replays, errors, parallel, and a `kill -9` in the
middle. What the ledger says afterwards is what the simulator counted and what the script sent.
"""

import asyncio
import itertools
import json
import os
import re
import signal
import sqlite3
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from caretway_sim.accounts import Accounts
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.shared import Shared
from contract.gateways import simulated
from contract.speakers import Chat, Heard, Messages, Responses, Speaker

KEYS = ("opencode", "ci", "anna", "night-shift")
AGENTS = {
    "opencode/1.18.33 ai-sdk/provider-utils/4.0.23": "opencode",
    "claude-cli/2.1.197 (external, cli)": "claude-code",
    "codex_exec/0.166.0 (Debian)": "codex",
    "OpenAI/Python 3.49.0": "openai-python",
    "curl/8.5.0": "curl",
}
MODELS = ("sim-auto", "sim-think", "composer-2.5")
SPEAKERS: tuple[Speaker, ...] = (Chat(), Messages(), Responses())
TOKEN = "the owner"
AT_ONCE = 12
WHOLE_DAY = 2000
BEHIND_S = 1.0
"""What a crash may lose."""


@dataclass
class Sent:
    """What the script knows of one request."""

    key: str
    client: str
    conversation: int
    status: int
    ended_at: float


@dataclass
class Day:
    places: Path
    url: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    cut: int = 0
    killed_at: float = 0.0

    # ---- one request

    async def ask(self, http: httpx.AsyncClient, who: "Talk", body: dict[str, Any]) -> Heard | None:
        """None: the gateway died under it."""
        name = f"talk-{who.number}-{next(who.steps)}"
        headers = self._headers(who, name)
        try:
            response = await http.post(f"{self.url}{who.speaker.path}", json=body, headers=headers)
        except httpx.TransportError:
            return None
        self.sent[name] = Sent(who.key, AGENTS[who.agent], who.number, response.status_code, time.time())
        return who.speaker.read(response)

    async def hang_up(self, http: httpx.AsyncClient, who: "Talk", body: dict[str, Any]) -> None:
        name = f"talk-{who.number}-{next(who.steps)}"
        async with http.stream(
            "POST", f"{self.url}{who.speaker.path}", json=body | {"stream": True}, headers=self._headers(who, name)
        ) as response:
            async for _ in response.aiter_raw():
                break
        self.sent[name] = Sent(who.key, AGENTS[who.agent], who.number, 200, time.time())
        self.cut += 1

    def _headers(self, who: "Talk", name: str) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.keys[who.key]}",
            "user-agent": who.agent,
            "x-request-id": name,
            "anthropic-version": "2023-06-01",
        }


class Talk:
    """One conversation of the script."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.key = KEYS[number % len(KEYS)]
        self.agent = list(AGENTS)[number % len(AGENTS)]
        self.speaker = SPEAKERS[number % len(SPEAKERS)]
        self.model = MODELS[number // 2 % len(MODELS)]
        self.steps = itertools.count()

    def body(self, prompt: str, tools: bool = False) -> dict[str, Any]:
        opened = f"{prompt}\nconversation {self.number}"
        return self.speaker.body(opened, ["lookup"] if tools else [], stream=self.number % 2 == 0) | {
            "model": self.model
        }

    def goes_on(self, body: dict[str, Any], answer: str, prompt: str) -> dict[str, Any]:
        said = "input" if "input" in body else "messages"
        more = [{"role": "assistant", "content": answer}, {"role": "user", "content": prompt}]
        return body | {said: [*body[said], *more]}

    async def work(self, day: Day, http: httpx.AsyncClient) -> None:
        """Tools: one run for three responses, then the conversation goes on."""
        call = 'sim: call lookup {"key": "%d"}'
        body = self.body(f"{call % 1}\n{call % 2}\nsim: say done", tools=True)
        for _ in range(4):
            heard = await day.ask(http, self, body)
            if heard is None or heard.error:
                return
            if not heard.calls:
                await day.ask(http, self, self.goes_on(body, heard.text, "sim: say more"))
                return
            body = self.speaker.follow_up(body, heard, {one.id: "a result" for one in heard.calls})

    async def chat(self, day: Day, http: httpx.AsyncClient) -> None:
        body = self.body("sim: say one two three")
        for word in ("four", "five", "six"):
            heard = await day.ask(http, self, body)
            if heard is None:
                return
            body = self.goes_on(body, heard.text, f"sim: say {word}")
        await day.ask(http, self, body)

    async def retold(self, day: Day, http: httpx.AsyncClient) -> None:
        """The history changes, so it is replayed."""
        body = self.body("sim: think hm\nsim: say one")
        if await day.ask(http, self, body) is not None:
            await day.ask(http, self, self.goes_on(body, "something else", "sim: say two"))

    async def fails(self, day: Day, http: httpx.AsyncClient) -> None:
        await day.ask(http, self, self.body("sim: say half\nsim: fail internal"))
        await day.ask(http, self, self.body("x") | {"messages": [], "input": 3})

    async def leaves(self, day: Day, http: httpx.AsyncClient) -> None:
        try:
            await day.hang_up(http, self, self.body("sim: say half\nsim: hang"))
        except httpx.TransportError:
            return

    async def play(self, day: Day, http: httpx.AsyncClient) -> None:
        plays = (self.work, self.chat, self.retold, self.work, self.chat, self.fails, self.work, self.leaves, self.chat)
        await plays[self.number // 5 % len(plays)](day, http)


@asynccontextmanager
async def served(day: Day, port: int) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "caretway", "serve", "--port", "0", "--backend", "agent"),
        *("--agent-url", f"http://127.0.0.1:{port}", "--data-dir", str(day.places / "data")),
        *("--disconnect-grace", "0.2", "--log-level", "warning"),
        stdout=PIPE,
        stderr=DEVNULL,
        env=_environment(day),
    )
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
                day.url = found[0].decode()
                break
        reading = asyncio.ensure_future(process.stdout.read())
        yield process
        await reading
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _environment(day: Day) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(day.places), "CARETWAY_ACCESS_TOKEN": TOKEN, "TZ": "UTC"}


async def command(day: Day, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "caretway", *words, "--data-dir", str(day.places / "data")),
        stdout=PIPE,
        stderr=PIPE,
        env=_environment(day),
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors
    return out.decode()


async def usage(day: Day, by: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(await command(day, "usage", "all", "--by", by, "--json", "--no-quota"))
    return told


async def play(day: Day, numbers: Iterator[int], until: int, kill: Process | None = None) -> None:
    """Conversations, some at a time, until so many requests were answered; then the process is killed in the middle."""
    limits = httpx.Limits(max_connections=AT_ONCE)
    async with httpx.AsyncClient(timeout=60, trust_env=False, verify=False, limits=limits) as http:

        async def player() -> None:
            while len(day.sent) < until and not day.killed_at * (kill is not None):
                await Talk(next(numbers)).play(day, http)

        async def killer() -> None:
            while kill is not None and len(day.sent) < until:
                await asyncio.sleep(0.01)
            if kill is not None:
                day.killed_at = time.time()
                kill.send_signal(signal.SIGKILL)

        await asyncio.gather(killer(), *(player() for _ in range(AT_ONCE)))


@pytest.mark.parametrize("responses", [pytest.param(160, id="an hour"), pytest.param(WHOLE_DAY, marks=pytest.mark.all)])
async def test_a_day(tmp_path: Path, responses: int) -> None:
    day = Day(tmp_path)
    numbers = itertools.count()
    for name in KEYS:
        day.keys[name] = (await command(day, "key", "new", "--name", name)).split()[-1]
    async with simulated(LIVE_AT_ONCE) as (simulator, port):
        async with served(day, port) as first:
            await play(day, numbers, responses // 2, kill=first)
            await first.wait()
        async with served(day, port) as second:
            await play(day, numbers, responses)
            await asyncio.sleep(0.5)  # those who hung up have their grace
            second.send_signal(signal.SIGTERM)
            assert await second.wait() == 0
        owner = Accounts(Shared()).person(TOKEN).name
        billed = simulator.billed.of(owner, int(time.time() * 1000) + 1000)
    by = {group: await usage(day, group) for group in ("model", "conversation", "key", "client")}
    with closing(sqlite3.connect(day.places / "data" / "ledger.sqlite")) as db:
        db.row_factory = sqlite3.Row
        runs = [dict(row) for row in db.execute("SELECT * FROM runs")]
        rows = {row["request_id"]: dict(row) for row in db.execute("SELECT * FROM responses")}
    print(
        f"{len(day.sent)} answered, {len(rows)} rows, {len(runs)} runs, {len(billed)} billed, {day.cut} hung up, "
        f"{sum(not run['reported'] for run in runs)} unreported"
    )

    # Runs that ended: exactly what the simulator reported, less the last second before the crash.
    kept = Counter((run["upstream"], run["model"], *_tokens(run)) for run in runs if run["reported"])
    told = Counter((one.conversation, _base(one.model), one.read, one.cached, one.written) for one in billed)
    assert kept - told == Counter(), "nothing is made up"
    missing = told - kept
    late = {one.conversation for one in billed if day.killed_at - BEHIND_S <= one.at_ms / 1000 <= day.killed_at + 0.1}
    assert {upstream for upstream, *_ in missing} <= late, missing
    lost = [key[2:] for key in missing.elements()]
    total = by["model"]["total"]
    assert total["input"] + total["cache_write"] == sum(one.read for one in billed) - sum(one[0] for one in lost)
    assert total["cache_read"] == sum(one.cached for one in billed) - sum(one[1] for one in lost)
    assert total["output"] == sum(one.written for one in billed) - sum(one[2] for one in lost)

    # By model and by conversation.
    for model in MODELS:
        (row,) = (row for row in by["model"]["rows"] if row["model"] == model)
        assert row["output"] == sum(key[-1] * times for key, times in kept.items() if key[1] == model)
    for row in by["conversation"]["rows"]:
        theirs = {run["upstream"] for run in runs if run["conversation"] == row["conversation"]}
        assert row["output"] == sum(key[-1] * times for key, times in kept.items() if key[0] in theirs)
    talks: dict[int, set[str]] = {}
    for name, one in day.sent.items():
        if name in rows and rows[name]["session"] != "refused":
            talks.setdefault(one.conversation, set()).add(rows[name]["conversation"])
    several = [number for number, ids in talks.items() if len(ids) > 1 and number not in _with_two_openings(day)]
    assert several == [], "a conversation has one id"

    # What the script sent, by key and by client.
    absent = [name for name in day.sent if name not in rows]
    assert all(day.killed_at - BEHIND_S <= day.sent[name].ended_at <= day.killed_at + 0.1 for name in absent), absent
    for group in ("key", "client"):
        sent = Counter(getattr(one, group) for name, one in day.sent.items() if name not in absent)
        known = {row[group]: row["responses"] + row["refused"] for row in by[group]["rows"]}
        assert known == sent
    # Cut runs stand as unreported, never guessed.
    unreported = [run for run in runs if not run["reported"]]
    assert total["unreported"] == len(unreported) and total["runs"] == len(runs)
    assert all(run["input"] is None and run["output"] is None for run in unreported)
    hung_up = sum(run["outcome"] == "hung_up" for run in unreported)
    assert day.cut - AT_ONCE <= hung_up <= day.cut, "but those whose gateway died before their grace was over"
    assert total["refused"] == sum(row["session"] == "refused" for row in rows.values())
    assert total["refused"] > 0 or responses < WHOLE_DAY, "in an hour, all of them can be among what the crash has lost"
    assert by["model"]["replays"][0]["responses"] > 0


def _tokens(run: dict[str, Any]) -> tuple[int, int, int]:
    read, output = run["cache_read"] or 0, run["output"] or 0
    return (run["input"] or 0) - read, read, output


def _base(model: str) -> str:
    """The simulator bills a variant: `composer-2.5[fast=false]`."""
    return model.partition("[")[0]


def _with_two_openings(day: Day) -> set[int]:
    """Talks that open twice (the failing ones) are two conversations."""
    return {sent.conversation for sent in day.sent.values() if sent.conversation // 5 % 9 == 5}
