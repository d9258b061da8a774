"""The ledger of a gateway: told in the loop, written behind, pruned; a disk that fails costs rows, never a request."""

import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from caretway.core.events import RunUsage
from caretway.storage.database import DatabaseUnusable, open_database, read_database
from caretway.usage import ledger as ledger_module
from caretway.usage.ledger import MAX_WAITING, Ledger
from caretway.usage.writing import FILE_NAME, LEDGER, MAX_NAME, MIGRATIONS, TOGETHER

from .told import NOW, REFUSED, asked, kept, response, run, tell


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = kept(tmp_path, response())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert count(path, "responses") == 1


def test_a_run_that_is_told_again_is_one_row(tmp_path: Path) -> None:
    late = run(outcome="ended", again=True)
    path = kept(tmp_path, run(usage=None, outcome="shutdown"), late, run(2), run(2, usage=None, again=True))
    (totals,) = asked(path)
    assert (totals.runs, totals.unreported, totals.output) == (2, 0, 20), "and what is known is not forgotten"


def test_requests_for_something_else_are_not_kept(tmp_path: Path) -> None:
    scanned = REFUSED.__class__("req", "GET", "/wp-admin", 404, "not_found", "", "no", NOW)
    path = kept(tmp_path, REFUSED, scanned)
    (totals,) = asked(path)
    assert (totals.refused, totals.responses, totals.failed) == (1, 0, 0)


def test_it_is_written_without_being_closed(tmp_path: Path) -> None:
    """A crash loses what waits, and that is not much: a row is written within the second."""
    path = tmp_path / FILE_NAME
    ledger = Ledger(path, max_age_s=1e12, max_bytes=2**30)
    try:
        ledger.response_ended(response())
        ticks = threading.Event()
        for _ in range(100):
            if path.exists() and (db := read_database(path, LEDGER)) is not None:
                with closing(db):
                    if db.execute("SELECT count(*) FROM responses").fetchone()[0]:
                        break
            ticks.wait(0.1)
        else:
            raise AssertionError("it was not written")
    finally:
        ledger.close()


def test_rows_that_are_too_old_go(tmp_path: Path) -> None:
    old, new = response(started_at=NOW - 100, conversation="old"), response(started_at=NOW - 10, conversation="new")
    path = kept(tmp_path, old, new, run(1, ended_at=NOW - 100), run(2, ended_at=NOW - 10), max_age_s=50)
    assert [totals.group for totals in asked(path, "conversation")] == ["c1", "new"]
    assert (count(path, "responses"), count(path, "runs")) == (1, 1)


def test_the_oldest_rows_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "PRUNE_ROWS", 100)
    rows = [response(started_at=NOW + number, request_id="x" * 500) for number in range(3000)]
    limit = 2**20
    path = tmp_path / FILE_NAME
    ledger = Ledger(path, max_age_s=1e12, max_bytes=limit, clock=lambda: NOW)
    tell(ledger, rows)
    ledger.close()
    assert 100 < count(path, "responses") < 3000
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT min(at) FROM responses").fetchone()[0] > NOW + 100
        (pages,), (free,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count"))
    assert (pages - free) * 4096 <= limit


def test_a_disk_that_fails_costs_rows_and_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "no directory"
    place.write_text("a file")
    ledger = Ledger(place / FILE_NAME, max_age_s=1e12, max_bytes=2**30)
    tell(ledger, [response()] * (MAX_WAITING + 7))
    ledger.close()
    warnings = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert len(warnings) == 2, warnings
    assert "cannot be written, usage is not kept" in warnings[0]
    assert "rows are lost" in warnings[1]
    assert ledger.trouble


def test_it_goes_on_when_the_disk_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger_module, "AGAIN_S", 0.01)
    place = tmp_path / "directory"
    place.write_text("a file")
    ledger = Ledger(place / FILE_NAME, max_age_s=1e12, max_bytes=2**30)
    ledger.response_ended(response())
    ticks = threading.Event()
    while not ledger.trouble:
        ticks.wait(0.01)
    place.unlink()
    while ledger.trouble:
        ticks.wait(0.01)
    ledger.close()
    assert count(place / FILE_NAME, "responses") == 1
    assert "the ledger is written again; 0 rows were lost" in caplog.text


def written(ledger: Ledger) -> None:
    """Wait until nothing waits."""
    ticks = threading.Event()
    while ledger._waiting:
        ticks.wait(0.01)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted_or_replaced_is_made_anew(
    tmp_path: Path, replaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE_NAME
    ledger = Ledger(path, max_age_s=1e12, max_bytes=2**30)
    ledger.response_ended(response())
    written(ledger)
    for file in tmp_path.iterdir():
        file.unlink()
    if replaced:
        kept(tmp_path, run())
    ledger.response_ended(response())
    ledger.close()
    assert (count(path, "responses"), count(path, "runs")) == (1, int(replaced))
    assert caplog.text.count("was deleted or replaced") == 1


def test_a_record_that_cannot_be_written_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = kept(tmp_path, response(), run(usage=RunUsage(2**64, 1)), response(conversation="\ud800"), run(2))
    assert (count(path, "responses"), count(path, "runs")) == (1, 1)
    assert caplog.text.count("a row of the ledger cannot be kept") == 2


def test_many_records_are_written_together_and_odd_ones_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = 3 * TOGETHER + 5
    records = [each for number in range(turns) for each in (response(), run(number))]
    records[TOGETHER] = response(conversation="\ud800")
    again = run(7, usage=RunUsage(70, 7))  # told again, in the same statement as the first time
    path = kept(tmp_path, *records[:20], again, *records[20:])
    assert (count(path, "responses"), count(path, "runs")) == (turns - 1, turns)
    assert caplog.text.count("a row of the ledger cannot be kept") == 1
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT input FROM runs WHERE run = ?", (again.run,)).fetchall() == [(70,)]


def test_names_that_clients_choose_are_short_and_harmless(tmp_path: Path) -> None:
    odd = "=1+1\x1b[31mRED\r\nnew\x07\u202e\x9b\ud800"
    path = kept(tmp_path, response(model=odd), run(model=odd), replace(REFUSED, model="x" * 100_000))
    groups = {totals.group for totals in asked(path, "model")}
    assert groups == {"=1+1?[31mRED??new????", "x" * MAX_NAME}


def test_a_broken_file_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is no database" * 100)
    path = kept(tmp_path, response())
    assert count(path, "responses") == 1
    assert (tmp_path / f"{FILE_NAME}.broken").read_bytes().startswith(b"this is no")


@pytest.mark.parametrize(
    ("statement", "words"),
    [(f"PRAGMA user_version = {len(MIGRATIONS) + 1}", "update it"), ("CREATE TABLE other (id)", "something else")],
)
def test_what_is_not_ours_stays_as_it_is(tmp_path: Path, statement: str, words: str) -> None:
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()
    before = path.read_bytes()
    with pytest.raises(DatabaseUnusable, match=words):
        open_database(path, LEDGER)
    with pytest.raises(DatabaseUnusable, match=words):
        read_database(path, LEDGER)
    kept(tmp_path, response())
    assert path.read_bytes() == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DatabaseUnusable, match="symbolic link"):
        open_database(tmp_path / FILE_NAME, LEDGER)


def test_every_earlier_version_becomes_this_one(tmp_path: Path) -> None:
    wanted = _schema(open_database(tmp_path / "new.sqlite", LEDGER))
    for version in range(1, len(MIGRATIONS)):
        path = tmp_path / f"{version}.sqlite"
        with closing(sqlite3.connect(path)) as db:
            for step in MIGRATIONS[:version]:
                for statement in step:
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {version}")
            db.commit()
        assert _schema(open_database(path, LEDGER)) == wanted
    assert len(wanted) > 4


def _schema(db: sqlite3.Connection) -> set[str]:
    with closing(db):
        return {row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def test_there_is_nothing_to_read_before_anything_was_written(tmp_path: Path) -> None:
    assert read_database(tmp_path / FILE_NAME, LEDGER) is None
    (tmp_path / FILE_NAME).touch()
    assert read_database(tmp_path / FILE_NAME, LEDGER) is None


def test_two_gateways_share_it(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    ledgers = [Ledger(path, max_age_s=1e12, max_bytes=2**30) for _ in range(2)]
    for number, ledger in enumerate(ledgers):
        tell(ledger, [run(1000 * number + each, usage=RunUsage(1, 1)) for each in range(500)])
    for ledger in ledgers:
        ledger.close()
    assert count(path, "runs") == 1000
