"""The last hour by minutes, and which answers are the newest."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from caretway.core.events import RunUsage
from caretway.storage.database import open_database
from caretway.usage.queries import MINUTES, FailureCount, Minute, last_hour, latest
from caretway.usage.writing import LEDGER
from unit.usage.ledger.told import NOW, REFUSED, kept, response, run

START = NOW - NOW % 60


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Twenty answers in one minute, two that failed in another, a refusal, a run; one answer that is too old."""
    answers = [
        response(request_id=f"q{ms}", started_at=START - 600, total_ms=0.0, first_event_ms=float(ms))
        for ms in range(100, 2100, 100)
    ]
    failed = [
        response(request_id=code, started_at=START + 5, total_ms=0.0, first_event_ms=None, error=code, outcome=code)
        for code in ("quota", "internal")
    ]
    usage = RunUsage(100, 10, 60, 15)
    old = response(request_id="old", started_at=START - MINUTES * 60 + 59, total_ms=0.0)
    path = kept(tmp_path, old, *answers, *failed, REFUSED, run(1, ended_at=START - 60, usage=usage))
    connection = open_database(path, LEDGER)
    yield connection
    connection.close()


def test_minute_by_minute(db: sqlite3.Connection) -> None:
    hour = last_hour(db, START + 30)
    assert [one.at for one in hour.minutes] == [START - 60 * back for back in range(MINUTES - 1, -1, -1)]
    busy = {one.at - START: one for one in hour.minutes if one != Minute(one.at)}
    assert busy == {
        -600: Minute(START - 600, answers=20, first_p50=1000.0, first_p95=1900.0),
        -60: Minute(START - 60, input=25, cache_read=60, cache_write=15, output=10),
        0: Minute(START, answers=2, failed=2, refused=1),
    }
    assert hour.failures == [FailureCount("quota", 2, "quota"), FailureCount("internal", 1, "internal")]


def test_of_an_empty_ledger(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "ledger.sqlite", LEDGER)
    hour = last_hour(connection, START)
    assert (len(hour.minutes), sum(one.answers for one in hour.minutes), hour.failures) == (MINUTES, 0, [])
    assert latest(connection, 10) == []
    connection.close()


def test_the_newest_answers_come_first(db: sqlite3.Connection) -> None:
    found = latest(db, 3)
    assert [(one["request_id"], one["error"]) for one in found] == [
        ("internal", "internal"),
        ("quota", "quota"),
        ("req_2", "quota"),
    ]
