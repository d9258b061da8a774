"""What Cursor billed replaces the estimate of the run with the same tokens, once."""

import asyncio
from collections.abc import Sequence

import pytest

from caretway.core.account_usage import BilledTurn
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import RunUsage
from caretway.core.records import RequestOrigin, RunRecord
from caretway.usage import billed
from caretway.usage.billed import BilledRuns

NOT_NOW = GatewayError(ErrorKind.UPSTREAM_DOWN, "not now")


def run(name: str, usage: RunUsage | None, upstream: str = "a") -> RunRecord:
    return RunRecord(name, RequestOrigin(), "sdk", "m", "m", "c", "fresh", "", "ended", usage, upstream=upstream)


def turn(name: str, output: int, cached: int, cents: float) -> BilledTurn:
    return BilledTurn(name, output, cached, cents, 0.0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(billed, "WAITS_S", (0.0, 0.0))


async def corrected(
    answers: Sequence[Sequence[BilledTurn] | GatewayError], *runs: RunRecord
) -> dict[str, float | None]:
    left, told, fixed = iter(answers), list[RunRecord](), list[RunRecord]()

    async def ask(agent: str) -> Sequence[BilledTurn]:
        assert agent == "a"
        answer = next(left)
        if isinstance(answer, GatewayError):
            raise answer
        return answer

    runs_billed = BilledRuns(ask, told.append, fixed.append)
    for one in runs:
        runs_billed.run_ended(one)
    assert told == list(runs)
    await asyncio.gather(*runs_billed._tasks)
    assert told[len(runs) :] == fixed
    assert all(one.again for one in fixed)
    return {one.run: one.usage.cents for one in fixed if one.usage is not None}


USED = RunUsage(100, 7, 40)


async def test_a_turn_that_comes_late_is_found() -> None:
    other = turn("x", 7, 41, 9.0)
    assert await corrected([NOT_NOW, [other, turn("y", 7, 40, 1.5)]], run("r", USED)) == {"r": 1.5}
    assert await corrected([[other], [other]], run("r", USED)) == {}


async def test_each_turn_belongs_to_one_run() -> None:
    same = [turn("x", 7, 40, 1.0), turn("y", 7, 40, 2.0)]
    assert await corrected([same, same], run("r", USED), run("s", USED)) == {"r": 1.0, "s": 2.0}
    assert await corrected([same[:1]] * 3, run("r", USED), run("s", USED)) == {"r": 1.0}


async def test_runs_that_nobody_asks_about() -> None:
    assert await corrected([], run("r", None), run("s", RunUsage(1, 1, cents=3.0)), run("t", USED, upstream="")) == {}
