"""Totals by group: what is counted, what is not known, what it cost, what sessions saved."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from caretway.core.caller import Caller
from caretway.core.events import RunUsage, Usage
from caretway.core.records import RequestOrigin, TurnRecord
from caretway.storage.database import read_database
from caretway.usage.prices import PriceList
from caretway.usage.queries import By, LedgerQueries, Replayed, Span, ToolUse, Totals
from caretway.usage.writing import LEDGER

from .told import EVER, LAPTOP, NOW, REFUSED, asked, kept, response, run


def test_what_a_total_counts(tmp_path: Path) -> None:
    path = kept(
        tmp_path,
        response(),
        response(error="quota", outcome="quota", usage=None),
        REFUSED,
        run(1),
        run(2, usage=None, outcome="hung_up"),
        run(3, usage=RunUsage(5, 1, complete=False)),
    )
    assert asked(path) == [
        Totals(
            "",
            responses=2,
            failed=1,
            refused=1,
            runs=3,
            unreported=1,
            at_least=1,
            input=30,
            cache_read=60,
            cache_write=15,
            output=11,
            reasoning=4,
            unpriced=2,
        )
    ]
    assert asked(path)[0].tokens == 116


def test_kinds(tmp_path: Path) -> None:
    """A refused request has none; a run has that of the request that opened it."""
    spawned = RequestOrigin(LAPTOP, kind="subagent")
    path = kept(tmp_path, response(kind="turn"), response(kind="subagent"), REFUSED, run(1), run(2, origin=spawned))
    found = {row.group: (row.responses, row.runs, row.refused) for row in asked(path, "kind")}
    assert found == {"turn": (1, 0, 0), "subagent": (1, 1, 0), "": (0, 1, 1)}


def test_a_ledger_of_an_earlier_version_has_no_kinds(tmp_path: Path) -> None:
    path = kept(tmp_path, response(kind="turn"), run(1))
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE responses DROP COLUMN kind")
        db.execute("ALTER TABLE runs DROP COLUMN kind")
        db.execute("PRAGMA user_version = 2")
    assert [(row.group, row.runs) for row in asked(path, "kind")] == [("", 1)]


def test_nothing_is_one_row_of_zeros(tmp_path: Path) -> None:
    path = kept(tmp_path, run(1))
    assert asked(path, span=Span(0, 1)) == []


def test_more_cached_than_there_is_counts_no_input(tmp_path: Path) -> None:
    path = kept(tmp_path, run(1, usage=RunUsage(100, 1, 4_000_000)))
    assert (asked(path)[0].input, asked(path)[0].cache_read) == (0, 4_000_000)


PHONE = RequestOrigin(Caller("phone", "curl"), "req", "anthropic_messages", "asked")


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("all", [("", 2)]),
        ("model", [("big", 1), ("model", 1)]),
        ("key", [("phone", 1), ("laptop", 1)]),
        ("client", [("curl", 1), ("opencode", 1)]),
        ("conversation", [("c2", 1), ("c1", 1)]),
        ("reason", [("replayed: the tools changed", 1), ("fresh: first message", 1)]),
        ("day", [("2026-11-17", 1), ("2026-11-18", 1)]),
        ("hour", [("2026-11-17 07:00", 1), ("2026-11-18 07:00", 1)]),
    ],
)
def test_groups_the_largest_first_and_days_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: By, groups: list[tuple[str, int]]
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    big = run(
        2,
        origin=PHONE,
        model="big",
        conversation="c2",
        session="replayed",
        reason="the tools changed",
        usage=RunUsage(9000, 1),
        ended_at=NOW + 86_400,
    )
    path = kept(tmp_path, run(1), big)
    assert [(totals.group, totals.runs) for totals in asked(path, by)] == groups
    assert len(asked(path, by, limit=1)) == 1


def test_money_is_what_cursor_told_or_else_the_list_says_or_else_unknown(tmp_path: Path) -> None:
    million = RunUsage(3_000_000, 1_000_000, 1_000_000, 1_000_000)
    path = kept(
        tmp_path,
        run(1, variant="priced", usage=million),
        run(2, variant="priced", usage=RunUsage(1, 1, cents=7.5)),
        run(3, variant="unheard-of", usage=million),
        run(4, variant="priced", usage=None),
    )
    (totals,) = asked(path)
    assert (totals.told_cents, totals.unpriced) == (7.5, 1)
    assert totals.listed_cents == pytest.approx(1210.0)
    assert totals.cents == pytest.approx(1217.5)
    free = kept(tmp_path / "other", run(3, variant="unheard-of"))
    assert asked(free)[0].cents is None, "not zero"


def test_what_sessions_saved(tmp_path: Path) -> None:
    """A step that goes on was not told again what was there before; one that is replayed was."""
    steps = [response(), response(session="resumed", held=110), response(session="continued", held=90)]
    path = kept(tmp_path, *steps, response(session="replayed"), response(conversation="c2"))
    assert {totals.group: totals.saved for totals in asked(path, "conversation")} == {"c1": 200, "c2": 0}


def test_why_conversations_were_replayed(tmp_path: Path) -> None:
    often = response(session="replayed", reason="the tools changed", usage=Usage(200, 5, 40))
    path = kept(tmp_path, often, often, response(session="replayed", reason="the model changed"), response())
    connection = read_database(path, LEDGER)
    assert connection is not None
    with connection:
        found = LedgerQueries(connection, PriceList({}).find).replays(EVER)
    connection.close()
    assert found == [Replayed("the tools changed", 2, 320), Replayed("the model changed", 1, 100)]


def test_which_tools_were_called_and_how_long_they_were_waited_for(tmp_path: Path) -> None:
    def step(at: float, *names: str, **more: object) -> TurnRecord:
        called = tuple((str(number), name) for number, name in enumerate(names))
        return response(started_at=NOW + at, total_ms=1000.0, called=called, calls=len(called), **more)

    path = kept(
        tmp_path,
        step(0, "bash", "bash", "read"),
        step(5, "bash"),  # four seconds after the end of the first
        step(16),  # ten after the end of the second
        step(20, "read", conversation="another"),  # its results have not come
    )
    db = read_database(path, LEDGER)
    assert db is not None
    with closing(db):
        found = LedgerQueries(db, PriceList({}).find).tools(EVER, 5)
    assert found == [ToolUse("bash", 3, 2, 14.0, 10.0), ToolUse("read", 2, 1, 4.0, 4.0)]
