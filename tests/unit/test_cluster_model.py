"""The arithmetic of bench/cluster_model.py, with numbers that can be checked in the head."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.cluster_model")


def test_three_gateways(model: Any) -> None:
    """1,200 users who ask every 12 s: 100 requests a second, 25 loops of a prompt and three steps."""
    habits = model.Habits(steps=3, seconds=12.0, speaking=0.5, deltas=10, loops_kept=10, loops_a_conversation=5)
    costs = model.Costs(
        prompt=1_000,
        step=1_000,
        last_step=2_000,
        hop=1_000,
        delta=10,
        hop_delta=10,
        redis_batch=100,
        redis_end=200,
        redis_beat=0,
        redis_row=0,
        commands_batch=2,
        commands_end=10,
        commands_beat=2,
        conversation_bytes=1_000,
        turn_bytes=200,
    )
    found = model.read(1_200, 3, costs, habits)
    assert found.requests == 100 and found.hops == 50  # two of three of 75 steps
    assert found.commands == pytest.approx(15 * 2 + 25 * 10 + 1.5 * 2, abs=0.1)
    assert found.rows == 4.5  # each of three reads three rows every two seconds
    assert found.redis_cores == pytest.approx((15 * 100 + 25 * 200) / 1e6)
    assert found.redis_bytes == 1_200 * 2 * 2_000
    answers = 25 * 3_000 + 50 * 1_000 + 100 * 10 * 10
    assert found.gateway_cores == pytest.approx((answers + 50 * (1_000 + 10 * 10)) / 1e6 / 3, rel=1e-4)
    assert found.parked == pytest.approx(1_200 * 0.5 * 3 / 4 / 3)


def test_one_gateway_has_no_hops(model: Any) -> None:
    assert model.read(1_000, 1).hops == 0


def test_a_large_directory_is_read_less_often(model: Any) -> None:
    assert [model.read(1, count).rows for count in (10, 100, 1_000)] == [50, 2_500, 25_000]


@pytest.mark.parametrize("users", [10, 1_000, 100_000])
def test_as_many_gateways_as_are_needed_and_not_one_more(model: Any, users: int) -> None:
    few = model.replicas_for(users)
    assert model.read(users, few).gateway_cores <= model.BUSY
    if few > 1:
        less = model.read(users, few - 1)
        assert less.gateway_cores > model.BUSY or less.parked_share > 1


def test_as_a_command() -> None:
    command = [sys.executable, "-m", "bench.cluster_model", "1e5"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (
        said.startswith("100,000 users, ") and "first to run out: " in said and max(map(len, said.splitlines())) < 120
    )
