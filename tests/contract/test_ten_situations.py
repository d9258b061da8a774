"""Ten situations in words, what the table in docs/reliability.md says about each, and what happens then. A reader of
the table predicts the remedies, the answer and the runs of Cursor; `-s` prints what came."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caretway_sim.manners import LIVE, LIVE_AT_ONCE, Manners
from contract.gateways import Answer, Client, gateway, result, tool

TOOLS = [tool("lookup", "key")]
STRICT = tool("odd", "key")
STRICT["function"]["parameters"]["properties"]["key"] = {"anyOf": [{"type": "string"}]}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def asked(client: Client, text: str, **more: Any) -> Answer:
    return await client.chat(text, **more)


async def after_a_call(client: Client, text: str) -> Answer:
    """The client gets a call, and its next request brings the result."""
    first = await client.chat([user(text)], tools=TOOLS)
    return await client.chat([user(text), first.message, result(first.calls[0], "ONE")], tools=TOOLS)


async def after_a_refused_conversation(client: Client, text: str) -> Answer:
    first = await client.chat("sim: say one")
    talk = [user("sim: say one"), first.message]
    await client.chat([*talk, user("sim: fail bare")])
    return await client.chat([*talk, user(text)])


@dataclass(frozen=True, slots=True)
class Case:
    words: str
    text: str
    remedies: list[str]
    answer: str
    """The text, or the code of the error."""
    runs: int
    """That the last request opened."""
    ask: Callable[..., Any] = asked
    more: dict[str, Any] = field(default_factory=dict)
    manners: Manners = LIVE_AT_ONCE
    settings: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("The connection breaks once, before the first word.", "sim: drop 1\nsim: say hello", ["other connection"],
         "hello", 2),
    Case("The connection breaks twice in the middle of the text, without a checkpoint in between.",
         "sim: say alpha\nsim: drop 2\nsim: say beta", ["other connection", "other connection"], "alpha\nbeta", 3),
    Case("The connection breaks again and again before the first word.", "sim: drop 50\nsim: say never",
         ["other connection", "other connection"], "upstream_unavailable", 3),
    Case("Cursor takes the results of the client's tools, and then sends only heartbeats.",
         'sim: call lookup {"key": "a"}\nsim: stall 1\nsim: result', ["fresh run"], "ONE", 1, after_a_call,
         settings={"progress_timeout": 0.5}),
    Case("The run ended while the client ran its tools, and the client brings the results.",
         'sim: call lookup {"key": "a"}\nsim: abandon 1\nsim: result', ["fresh run"], "ONE", 1, after_a_call),
    Case("Cursor refuses to continue a conversation, and under a new id takes its history.", "sim: say two",
         ["fresh run"], "two", 2, after_a_refused_conversation, manners=LIVE),
    Case("The plan's usage is spent for the first model of an alias.", "sim: say hello", ["next model"], "hello", 2,
         more={"model": "fast"}, manners=replace(LIVE_AT_ONCE, refused_models=(("composer-2.5", "usage_limit"),)),
         settings={"model_aliases": {"fast": ("composer-2.5", "gpt-5.4")}}),
    Case("The model's maker refuses the schema of a tool.", "sim: say hello", ["simpler schemas"], "hello", 2,
         more={"model": "glm-5.2", "tools": [STRICT]},
         manners=replace(LIVE, strict_families=frozenset({"glm"}), lingers_ms=0)),
    Case("The team's runs are served on another host, which Cursor names.", "sim: say hello", ["other host"],
         "hello", 1, manners=replace(LIVE, pinned_team="words")),
    Case("The request demands a call, and the model answers in words, twice.", "sim: say hello", ["fresh run"],
         "hello", 2, more={"tools": TOOLS, "tool_choice": "required"}),
]  # fmt: skip


@asynccontextmanager
async def counted(case: Case) -> AsyncIterator[tuple[Client, list[int]]]:
    """The client, and the number of runs before each of its requests."""
    async with gateway("h2", manners=case.manners, **case.settings) as client:
        before: list[int] = []
        post = client.http.post

        async def counting(*arguments: Any, **more: Any) -> Any:
            before.append(client.stats()["runs_opened"])
            return await post(*arguments, **more)

        client.http.post = counting  # type: ignore[method-assign]  # it counts, too
        yield client, before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
async def test_what_the_table_says_happens(case: Case) -> None:
    async with counted(case) as (client, before):
        answer = await case.ask(client, case.text, **case.more)
        runs = client.stats()["runs_opened"] - before[-1]
        told = answer.headers.get("x-caretway-recovered", "")
        came = answer.text if answer.error is None else answer.error["code"]
        print(f"\n{case.words}\n  {told or 'nothing was tried again'}\n  answer: {came}; {runs} runs")
        assert [each.partition(",")[0] for each in told.split("; ") if each] == case.remedies
        assert (came, runs) == (case.answer, case.runs)
