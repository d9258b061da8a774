"""What the runs of a turn are charged: before, after, and when they are not opened. On a count in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC
from typing import Any

import pytest
from msgspec.structs import replace

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    RunUsage,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.processes.tasks import spawn
from caretway.usage.budget import EVER, NOTHING_SPENT, BudgetScope, Spent, parse_budgets
from caretway.usage.charges import Budgets, CountedBackend, KeyBudgets, RunLimitStage, TurnCharge
from caretway.usage.sqlite_store import SqliteSpent

REQUEST = TurnRequest("m", (Message(Role.USER, (Text("x" * 400),)),))
"""A hundred tokens, by estimate."""


class Heard:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, sentence: str) -> None:
        self.events.append(event)


@pytest.fixture
async def store() -> AsyncIterator[SqliteSpent]:
    opened = SqliteSpent(None)
    yield opened
    await opened.aclose()


def budgets(store: SqliteSpent, *texts: str, **more: Any) -> Budgets:
    general = parse_budgets(texts, BudgetScope.EVERYBODY)
    return Budgets(store, general, clock=lambda: 1e9, zone=UTC, **more)


def charge(books: Budgets, key: str = "k", conversation: str = "c") -> TurnCharge:
    found = books.charge(key, conversation)
    assert found is not None
    return found


async def test_where_nothing_is_limited_nothing_is_counted(store: SqliteSpent) -> None:
    assert budgets(store).charge("k", "c") is None


async def test_a_named_key_is_counted_without_a_budget(store: SqliteSpent) -> None:
    books = budgets(store, find_key=lambda name: KeyBudgets("k1", name, counted=True))
    turn = charge(books)
    await turn.open_run(REQUEST)
    turn.response_ended("m", Usage(7, 3))
    assert await store.spent("key:k1", EVER) == Spent(1, 10, 10)
    assert await store.spent("everybody", EVER) == NOTHING_SPENT


async def test_an_estimate_is_reserved_and_settled(store: SqliteSpent) -> None:
    turn = charge(budgets(store, "tokens=1000", price=lambda _model, run: (run.input_tokens or 0) / 100))
    await turn.open_run(REQUEST)
    assert await store.spent("everybody", EVER) == Spent(1, 100, 100, 1.0)
    turn.response_ended("m", Usage(150, 10))  # paused: no total yet
    assert await store.spent("everybody", EVER) == Spent(1, 160, 160, 1.5)
    turn.response_ended("m", Usage(200, 20, run=RunUsage(350, 30, cache_read_tokens=150)))
    assert await store.spent("everybody", EVER) == Spent(1, 380, 230, 3.5)


async def test_what_cursor_says_of_cents_counts_before_a_price(store: SqliteSpent) -> None:
    turn = charge(budgets(store, "cents=10", price=lambda _model, _run: 99.0))
    turn.response_ended("m", Usage(1, 1, run=RunUsage(1, 1, cents=2.25)))
    assert (await store.spent("everybody", EVER)).cents == 2.25


async def test_a_run_that_was_cut_stays_as_it_was_estimated(store: SqliteSpent) -> None:
    turn = charge(budgets(store, "tokens=1000"))
    await turn.open_run(REQUEST)
    turn.response_ended("m", None)
    assert await store.spent("everybody", EVER) == Spent(1, 100, 100)


async def test_a_turn_of_several_runs(store: SqliteSpent) -> None:
    """A bridge on a backend that cannot park opens one for each step, and tells their sum."""
    turn = charge(budgets(store, "runs=3", "tokens=10k"))
    for _ in range(3):
        await turn.open_run(REQUEST)
    with pytest.raises(GatewayError, match="3 of 3 runs"):
        await turn.open_run(REQUEST)
    turn.response_ended("m", Usage(5, 5, run=RunUsage(30, 12)))
    assert await store.spent("everybody", EVER) == Spent(3, 42, 42)


class Failing:
    """A backend whose runs cannot be opened."""

    name, standing, abilities = "failing", "simulated", None

    async def start(self, request: TurnRequest, snapshot: object = None) -> None:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, "no")


async def test_a_run_that_is_not_opened_is_given_back(store: SqliteSpent) -> None:
    backend: Any = CountedBackend(Failing())  # type: ignore[arg-type]  # only what is used
    books = budgets(store, "runs=1")
    for _ in range(3):
        with pytest.raises(GatewayError, match="no"):
            await backend.start(replace(REQUEST, charge=charge(books)))
    assert await store.spent("everybody", EVER) == NOTHING_SPENT


async def test_a_client_that_hangs_up_while_it_is_counted_is_given_its_run_back(store: SqliteSpent) -> None:
    turn = charge(budgets(store, "runs=5"))
    asking = spawn(turn.open_run(REQUEST), "ask")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(20):
        while await store.spent("everybody", EVER) != NOTHING_SPENT:  # given back when it was counted
            await asyncio.sleep(0)


async def test_low_and_used_up_are_told_once(store: SqliteSpent) -> None:
    heard = Heard()
    for _ in range(2):  # the second is a restart
        books = budgets(store, "runs=5/day", tell=heard)
        for _ in range(6):
            with suppress(GatewayError):
                await charge(books).open_run(REQUEST)
        for _ in range(20):
            await store.first("anything", 1.0)  # what was asked before is answered before
    assert heard.events == ["budget_low", "budget_spent"]


async def test_a_billing_cycle_is_remembered(store: SqliteSpent) -> None:
    books = budgets(store, "runs=5/month")
    books.billed(None, 5.0)
    books.billed(9.0, 5.0)
    assert books.cycle is None
    books.billed(5.0, 9.0)
    again = budgets(store, "runs=5/month")
    await again.ready()
    assert again.cycle == books.cycle


# ---- a run's own limit


async def test_a_run_ends_at_its_own_limit_and_earlier_responses_count(store: SqliteSpent) -> None:
    turn = charge(budgets(store, "run.tokens=1000"))
    await turn.open_run(REQUEST)
    first = turn.stage(REQUEST)
    assert first is not None
    assert first.feed(TextDelta("y" * 400)) == [TextDelta("y" * 400)], "100 read, 100 written"
    turn.response_ended("m", Usage(400, 100))
    second = turn.stage(REQUEST)
    assert second is not None
    said = TextDelta("z" * 400)
    assert second.feed(said) == [said, TurnEnded(StopReason.LENGTH)], "500 before, 400 read again, 100 written"


async def test_a_backend_that_reports_no_input_is_charged_the_estimate_again(store: SqliteSpent) -> None:
    turn = charge(budgets(store, "run.tokens=1000"))
    await turn.open_run(REQUEST)
    turn.response_ended("m", Usage(None, 750))
    second = turn.stage(REQUEST)
    assert second is not None
    said = TextDelta("z" * 600)
    assert second.feed(said) == [said, TurnEnded(StopReason.LENGTH)], "750 before, 100 estimated, 150 written"


def test_a_response_with_calls_is_not_ended() -> None:
    stage = RunLimitStage(lambda _read, _written: True)
    for event in (TurnStarted(5), ToolCallStarted("1", "f"), ToolCallDelta("1", "{}"), ToolCallReady("1", "f", "{}")):
        assert stage.feed(event) == [event]
    assert stage.feed(TextDelta("more")) == [TextDelta("more")]
