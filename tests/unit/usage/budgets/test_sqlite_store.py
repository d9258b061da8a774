"""The count in SQLite: on a real disk, in one step, and when the disk takes nothing."""

import asyncio
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from caretway.core.errors import GatewayError
from caretway.usage.budget import EVER, BillingCycle, Measure, Spent
from caretway.usage.spent_store import FILE, Claim, ClaimOutcome, Limit
from caretway.usage.sqlite_store import SqliteSpent

ONE = Spent(1, 10, 5, 0.5)


def claim(most: float, day: str = "2026-11-17", since: str = EVER, scope: str = "key:k", amount: Spent = ONE) -> Claim:
    return Claim((scope,), day, amount, (Limit(scope, Measure.RUNS, most, since),), 1.0)


async def test_a_claim_is_counted_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    store = SqliteSpent(tmp_path / FILE)
    both = Claim(
        ("key:k", "everybody"),
        "2026-11-17",
        ONE,
        (Limit("key:k", Measure.RUNS, 5, EVER), Limit("everybody", Measure.TOKENS, 15, EVER)),
        1.0,
    )
    assert await store.reserve(both) == ClaimOutcome(True, (1.0, 10.0))
    assert await store.reserve(both) == ClaimOutcome(True, (2.0, 20.0))
    assert await store.reserve(both) == ClaimOutcome(False, (2.0, 20.0))
    assert await store.spent("key:k", EVER) == Spent(2, 20, 10, 1.0)
    await store.aclose()


async def test_of_many_at_once_exactly_as_many_as_allowed_pass(tmp_path: Path) -> None:
    stores = [SqliteSpent(tmp_path / FILE) for _ in range(3)]  # as three gateways would
    outcomes = await asyncio.gather(*(stores[at % 3].reserve(claim(40)) for at in range(120)))
    assert sum(outcome.allowed for outcome in outcomes) == 40
    for store in stores:
        await store.aclose()


async def test_a_period_is_a_sum_of_days_and_survives_a_restart(tmp_path: Path) -> None:
    store = SqliteSpent(tmp_path / FILE)
    for day in ("2026-11-16", "2026-11-17", "2026-11-17", "2026-12-01"):
        await store.reserve(claim(100, day))
    await store.aclose()
    again = SqliteSpent(tmp_path / FILE)
    sums = [(await again.spent("key:k", since)).runs for since in (EVER, "2026-11-16", "2026-11-17", "2026-12-01")]
    assert sums == [4, 4, 3, 1]
    assert not (await again.reserve(claim(3, "2026-11-17", "2026-11-17"))).allowed
    assert (await again.reserve(claim(2, "2026-12-01", "2026-12-01"))).allowed
    await again.aclose()


async def test_what_is_settled_counts_for_the_next_claim_and_is_not_lost_at_the_end(tmp_path: Path) -> None:
    store = SqliteSpent(tmp_path / FILE)
    store.settle(("key:k",), "2026-11-17", Spent(3, 7), 1.0)
    assert not (await store.reserve(claim(3))).allowed
    store.settle(("key:k",), "2026-11-17", Spent(-1, -7), 2.0)
    store.keep_cycle(BillingCycle(5.0, 6.0))
    await store.aclose()
    again = SqliteSpent(tmp_path / FILE)
    assert await again.spent("key:k", EVER) == Spent(2)
    assert await again.cycle() == BillingCycle(5.0, 6.0)
    await again.aclose()


async def test_a_mark_is_first_once(tmp_path: Path) -> None:
    one, two = SqliteSpent(tmp_path / FILE), SqliteSpent(tmp_path / FILE)
    firsts = await asyncio.gather(*((one, two)[at % 2].first("low key:k", 1.0) for at in range(6)))
    assert sum(firsts) == 1
    await one.aclose()
    await two.aclose()


async def test_its_file_is_the_owners_alone(tmp_path: Path) -> None:
    store = SqliteSpent(tmp_path / "deep" / FILE)
    await store.reserve(claim(1))
    await store.aclose()
    assert stat.S_IMODE((tmp_path / "deep" / FILE).stat().st_mode) == 0o600


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 2")
    other.close()


FILES: dict[str, Callable[[Path], object]] = {
    "of something else": _foreign,
    "of a newer version": _newer,
    "a link": lambda path: path.symlink_to(path.with_name("elsewhere")),
    "a directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("what", FILES)
async def test_a_file_that_cannot_be_opened_is_left_alone_and_claims_are_refused_until_it_is_gone(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE
    FILES[what](path)
    before = path.read_bytes() if path.is_file() else b""
    store = SqliteSpent(path)
    for _ in range(2):
        with pytest.raises(GatewayError, match="cannot look at its budgets"):
            await store.reserve(claim(2))
    store.settle(("key:k",), "2026-11-17", Spent(1), 1.0)
    assert (await store.spent("key:k", EVER)).runs == 1
    assert caplog.text.count(f"runs that have a budget are refused, {path} cannot be used") == 1
    assert (path.read_bytes() if path.is_file() else b"") == before
    path.rename(path.with_name("moved"))
    assert [(await store.reserve(claim(2))).allowed for _ in range(2)] == [True, False]
    await store.aclose()
    again = SqliteSpent(path)
    assert (await again.spent("key:k", EVER)).runs == 2
    await again.aclose()


@pytest.mark.parametrize("what", FILES)
async def test_claims_may_be_counted_in_memory_instead(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE
    FILES[what](path)
    before = path.read_bytes() if path.is_file() else b""
    store = SqliteSpent(path, refuse=False)
    outcomes = [(await store.reserve(claim(2))).allowed for _ in range(3)]
    assert outcomes == [True, True, False]
    assert caplog.text.count("counted in memory") == 1
    await store.aclose()
    assert (path.read_bytes() if path.is_file() else b"") == before


async def test_a_damaged_file_is_replaced_once_and_budgets_hold_after_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE
    path.write_bytes(b"rubbish" * 1000)
    outcomes = []
    for _ in range(3):
        store = SqliteSpent(path)
        outcomes.append((await store.reserve(claim(1))).allowed)
        await store.aclose()
    assert outcomes == [True, False, False]
    assert path.with_name(FILE + ".broken").read_bytes() == b"rubbish" * 1000
    assert caplog.text.count("is broken") == 1


async def test_a_file_that_is_damaged_while_it_is_used_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE
    store = SqliteSpent(path)
    store.settle(tuple(f"conversation:{number}" for number in range(500)), "2026-11-17", ONE, 1.0)
    await store.aclose()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    store = SqliteSpent(path)
    assert [(await store.reserve(claim(2))).allowed for _ in range(3)] == [True, True, False]
    await store.aclose()
    assert path.with_name(FILE + ".broken").exists()
    again = SqliteSpent(path)
    assert not (await again.reserve(claim(2))).allowed
    await again.aclose()
    assert caplog.text.count("is broken") == 1


@pytest.mark.parametrize("lost", [("spent",), ("spent", "marks", "cycle")])
async def test_a_file_that_lost_a_table_is_replaced_and_budgets_hold_after_restarts(
    lost: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / FILE
    store = SqliteSpent(path)
    await store.reserve(claim(1))
    await store.aclose()
    with closing(sqlite3.connect(path)) as db:
        for table in lost:
            db.execute(f"DROP TABLE {table}")
        db.commit()
    outcomes = []
    for _ in range(3):
        store = SqliteSpent(path)
        outcomes.append((await store.reserve(claim(1))).allowed)
        await store.aclose()
    assert outcomes == [True, False, False]
    assert path.with_name(FILE + ".broken").exists()


async def test_when_the_disk_takes_nothing_the_count_goes_on_and_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process holds the file's write lock: like a full disk, nothing can be written."""
    path = tmp_path / FILE
    store = SqliteSpent(path, patience_s=0.05)
    assert (await store.reserve(claim(4))).allowed
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes = [(await store.reserve(claim(4))).allowed for _ in range(5)]
    assert outcomes == [True, True, True, False, False]
    assert await store.first("mark", 1.0)
    assert not await store.first("mark", 1.0)
    assert caplog.text.count("are counted in memory") == 1
    other.execute("ROLLBACK")
    other.close()
    assert not (await store.reserve(claim(4))).allowed
    await store.aclose()
    again = SqliteSpent(path)
    assert (await again.spent("key:k", EVER)).runs == 4
    await again.aclose()
