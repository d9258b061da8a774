"""Single conversations in a ledger: found by a word, page by page, priced, step by step; also in a file of an older
version, and with words that mean something to SQL."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from caretway.core.caller import Caller
from caretway.core.events import RunUsage, Usage
from caretway.storage.database import open_database, transaction
from caretway.usage.conversations import ConversationQueries, Wanted, forget_conversation
from caretway.usage.prices import PriceList
from caretway.usage.writing import LEDGER, MIGRATIONS
from unit.usage.ledger.told import NOW, OWN_PRICES, kept, response, run


def queries(db: sqlite3.Connection) -> ConversationQueries:
    return ConversationQueries(db, PriceList(OWN_PRICES).find)


def several(directory: Path) -> Path:
    """Five conversations of three responses each, an hour apart."""
    told = [
        response(conversation=f"c{one}", started_at=NOW + 3600 * one + step, session=session, total_ms=0.0)
        for one in range(5)
        for step, session in enumerate(("fresh", "resumed", "resumed"))
    ]
    return kept(directory, *told)


def test_page_by_page_the_newest_first(tmp_path: Path) -> None:
    with closing(open_database(several(tmp_path), LEDGER)) as db:
        first = queries(db).listed(limit=2)
        second = queries(db).listed(Wanted(before=first.data[-1].last_at), 2)
        third = queries(db).listed(Wanted(before=second.data[-1].last_at), 2)
    names = [[one.id for one in page.data] for page in (first, second, third)]
    assert names == [["c4", "c3"], ["c2", "c1"], ["c0"]]
    assert [page.more for page in (first, second, third)] == [True, True, False]
    assert first.data[0].sessions == {"fresh": 1, "resumed": 2}


WORDS = [
    ("c3", 1),
    ("C3", 1),
    ("opencode", 5),
    ("resumed", 5),
    ("first message", 5),
    ("%", 0),
    ("_", 5),
    ("' OR 1 --", 0),
]


@pytest.mark.parametrize(("word", "count"), WORDS, ids=[word for word, _ in WORDS])
def test_found_by_a_word(word: str, count: int, tmp_path: Path) -> None:
    with closing(open_database(several(tmp_path), LEDGER)) as db:
        assert len(queries(db).listed(Wanted(word)).data) == count


def test_tokens_do_not_overlap_and_cost_what_was_told_or_listed(tmp_path: Path) -> None:
    usage = RunUsage(1_000_000, 100_000, 600_000, 100_000)
    path = kept(
        tmp_path,
        response(usage=Usage(1_000_000, 100_000, 600_000), called=(("1", "read"), ("2", "bash"))),
        run(1, usage=usage, variant="priced"),
        run(2, usage=RunUsage(10, 1, cents=7.0), variant="priced"),
        run(3, usage=None, variant="priced"),
        run(4, usage=RunUsage(10, 1), variant="nobody knows"),
    )
    with closing(open_database(path, LEDGER)) as db:
        (listed,) = queries(db).listed().data
        timeline = queries(db).timeline("c1")
    assert timeline is not None
    fresh, read, written, output = 300_000, 600_000, 100_000, 100_000
    cents = (fresh * 1.0 + read * 0.1 + written * 1.0 + output * 10.0) / 1e4
    assert (listed.input, listed.cache_read, listed.cache_write) == (fresh + 20, read, written)
    assert listed.cents == pytest.approx(cents + 7.0)
    assert [one["cents"] for one in timeline.runs] == [pytest.approx(cents), 7.0, None, None]
    assert timeline.total.cents == listed.cents
    (step,) = timeline.steps
    assert (step["tools"], step["input"], step["cache_read"]) == (["read", "bash"], 400_000, 600_000)


def test_a_file_of_the_first_version_names_no_tools(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old")) as db:
        for statement in MIGRATIONS[0]:
            db.execute(statement)
        db.execute("PRAGMA user_version = 1")
        with closing(open_database(several(tmp_path), LEDGER)) as new:
            columns = [row[1] for row in db.execute("PRAGMA table_info(responses)")]
            rows = new.execute(f"SELECT {', '.join(columns)} FROM responses").fetchall()
        db.executemany(f"INSERT INTO responses VALUES ({', '.join('?' * len(columns))})", rows)
        timeline = queries(db).timeline("c2")
        assert timeline is not None
        assert [step["tools"] for step in timeline.steps] == [[], [], []]


def test_one_is_forgotten_and_the_others_stay(tmp_path: Path) -> None:
    path = kept(tmp_path, response(), run(1), response(conversation="c2", caller=Caller("", "codex")))
    with closing(open_database(path, LEDGER)) as db:
        with transaction(db):
            assert forget_conversation(db, "c1") == (1, 1)
        assert [one.id for one in queries(db).listed().data] == ["c2"]
        assert queries(db).timeline("c1") is None


def a_loop(directory: Path) -> Path:
    """Two steps of one run around four seconds of a tool, and after a minute a question that fails."""
    more = {"conversation": "c1", "total_ms": 2000.0}
    return kept(
        directory,
        response(
            request_id="q1",
            kind="turn",
            started_at=NOW,
            outcome="paused",
            called=(("i", "bash"), ("j", "read")),
            calls=2,
            **more,
        ),
        response(request_id="q2", started_at=NOW + 6, session="resumed", usage=Usage(300, 30), **more),
        run(1, responses=2, ended_at=NOW + 8, usage=RunUsage(400, 40, cents=8.0)),
        response(request_id="q3", run="r2", started_at=NOW + 68, error="quota", outcome="quota", usage=None, **more),
        run(2, responses=1, ended_at=NOW + 70, usage=None, outcome="failed", error="quota"),
    )


def test_what_passed_between_the_steps_and_what_each_cost(tmp_path: Path) -> None:
    with closing(open_database(a_loop(tmp_path), LEDGER)) as db:
        timeline = queries(db).timeline("c1")
    assert timeline is not None
    first, second, third = timeline.steps
    assert [round(step["waited_s"], 3) for step in timeline.steps] == [0, 4, 60]
    assert [step["waited_for"] for step in timeline.steps] == [[], ["bash", "read"], []]
    assert round(second["started_at"] - NOW, 3) == 6
    assert first["cents"] + second["cents"] == pytest.approx(8.0) and first["shared"] and second["shared"]
    assert second["cents"] == pytest.approx(3 * first["cents"]), "shared by their tokens"
    assert (third["cents"], third["shared"]) == (None, False)
    assert [step["kind"] for step in timeline.steps] == ["turn", "", ""]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), ["c2", "c1"]),
        (Wanted(failed=True), ["c1"]),
        (Wanted(client="codex"), ["c2"]),
        (Wanted(client="' OR 1=1 --"), []),
        (Wanted(model="model", key="laptop"), ["c1"]),
        (Wanted(key="ci", failed=True), []),
        (Wanted(since=NOW + 100), ["c2"]),
        (Wanted("QUOTA", client="opencode"), ["c1"]),
    ],
    ids=str,
)
def test_chosen_by_client_model_key_time_and_failure(wanted: Wanted, found: list[str], tmp_path: Path) -> None:
    path = a_loop(tmp_path)
    kept(tmp_path, response(conversation="c2", started_at=NOW + 200, caller=Caller("ci", "codex"), model="other"))
    with closing(open_database(path, LEDGER)) as db:
        assert [one.id for one in queries(db).listed(wanted).data] == found
        assert queries(db).choices() == {
            "client": ["opencode", "codex"],
            "model": ["model", "other"],
            "key": ["laptop", "ci"],
        }
        row = queries(db).listed(Wanted(failed=True)).data[0]
        assert (row.outcome, row.error, row.errors, row.failed) == ("quota", "quota", {"quota": 1}, 1)
