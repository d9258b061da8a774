"""`caretway usage` and the quota of `status` at 80 columns (golden files); JSON, CSV, periods, forgetting."""

import csv
import io
import json
import sqlite3
import time
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from caretway.cli import usage
from caretway.cli.figures import bar, compact, dollars
from caretway.cli.main import main
from caretway.cli.process import CommandFailed
from caretway.cli.quota import quota_lines, quota_title
from caretway.cli.status import AccountFacts, as_lines
from caretway.cli.status import Report as StatusReport
from caretway.cli.terminal import ASCII_LEVELS, Style
from caretway.cli.usage_view import cost_lines, table
from caretway.core.account_usage import (
    AccountUsage,
    OnDemand,
    PeriodUsage,
    PlanInfo,
    PlanUsage,
    TeamSeat,
    known_account,
    unknown_account,
)
from caretway.core.caller import Caller
from caretway.core.events import RunUsage, Usage
from caretway.core.records import RequestOrigin
from caretway.storage.database import read_database
from caretway.usage.prices import PriceList
from caretway.usage.queries import LedgerQueries, Totals
from caretway.usage.writing import LEDGER
from unit.usage.ledger.told import EVER, NOW, REFUSED, kept, response, run

GOLDEN = Path(__file__).parent / "golden"
PERSON = AccountUsage(
    PeriodUsage(
        NOW - 14 * 86_400,
        NOW + 16 * 86_400,
        PlanUsage(23.4, 96.0, 60.0, 18_400.0, 18_000.0, 400.0, 21_600.0, 40_000.0),
        OnDemand(False),
        cursor_models=("default", "composer-2.5"),
    ),
    PlanInfo("Ultra", 40_000.0, "$200/mo", NOW + 16 * 86_400, on_demand_allowed=False),
)
SEAT = AccountUsage(
    PeriodUsage(
        NOW - 86_400,
        NOW + 3600,
        PlanUsage(100.0, None, None, 4000.0, 4000.0, 0.0, 0.0, 4000.0),
        OnDemand(True, 5000.0, 1250.0, 3750.0),
        team=42,
    ),
    PlanInfo("Team", 4000.0, "$40/mo"),
    (TeamSeat(41, "Another"), TeamSeat(42, "Rocket department", "TEAM_ROLE_MEMBER")),
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW + 3)


def a_day(directory: Path) -> Path:
    """Three clients, replays, an error, a refusal, a run that was cut."""
    opencode = RequestOrigin(Caller("laptop", "opencode"), "", "openai_chat")
    codex = RequestOrigin(Caller("ci", "codex"), "", "openai_responses")
    claude = RequestOrigin(Caller("laptop", "claude-code"), "", "anthropic_messages")
    composer = {"model": "composer-2.5", "variant": "composer-2.5@fast=false"}
    sonnet = {"model": "claude-4.6-sonnet", "variant": "claude-4.6-sonnet@thinking=true,context=200k"}
    auto = {"model": "default", "variant": "default@optimization=balance"}
    records: list[Any] = []
    for number in range(40):
        conversation = f"conversation-{number % 7}"
        session = "resumed" if number % 3 else "fresh"
        held = response(
            session=session, conversation=conversation, usage=Usage(9000, 80), held=7600 * (number % 3 > 0), **composer
        )
        records += [
            held,
            run(number, origin=opencode, usage=RunUsage(181_000, 900, 150_000), conversation=conversation, **composer),
        ]
    for number in range(40, 52):
        figures = RunUsage(45_000, 2_000, 21_000, 12_000, 700)
        changed = {"session": "replayed", "reason": "the tools changed", "conversation": "review"}
        records += [
            response(caller=claude.caller, usage=Usage(45_000, 2_000, 21_000), **changed, **sonnet),
            run(number, origin=claude, usage=figures, ended_at=NOW + 86_400, **changed, **sonnet),
        ]
    records += [
        response(session="replayed", reason="no known conversation begins like this", caller=codex.caller, **auto),
        run(60, origin=codex, usage=RunUsage(700_000, 4_000), conversation="nightly", **auto),
        run(61, origin=codex, usage=None, outcome="hung_up", conversation="nightly", **auto),
        run(62, origin=codex, usage=RunUsage(1_000, 10, cents=12.5, complete=False), conversation="nightly", **auto),
        response(caller=codex.caller, error="quota", outcome="quota", usage=None, **auto),
        REFUSED,
    ]
    return kept(directory, *records)


def golden(name: str, lines: list[str]) -> None:
    """Compares with the file; to renew it, delete it and run the test twice."""
    assert [line for line in lines if len(line) > 80] == []
    path = GOLDEN / f"{name}.txt"
    text = "\n".join(lines) + "\n"
    if not path.exists():
        path.write_text(text)
        raise AssertionError(f"{path} was made anew: look at it")
    assert text == path.read_text()


@pytest.mark.parametrize("by", usage.GROUPS)
def test_at_80_columns(tmp_path: Path, by: str) -> None:
    db = read_database(a_day(tmp_path), LEDGER)
    assert db is not None
    with closing(db):
        report = usage.UsageReport(
            LedgerQueries(db, PriceList({}).find), EVER, by, PriceList({}), known_account(PERSON, NOW)
        )
        lines = report.as_lines("the last seven days", Style(), 80, ASCII_LEVELS)
    golden(f"usage-by-{by}", lines)


def test_status_at_80_columns() -> None:
    for name, quota in (
        ("status", known_account(PERSON, NOW)),
        ("status-seat", known_account(SEAT, NOW)),
        ("status-unknown", unknown_account("Cursor did not answer within 5 s.", NOW)),
    ):
        report = StatusReport(
            "agent",
            "unofficial",
            True,
            "over h2",
            "https://api2.cursor.sh",
            AccountFacts("ada@example.com", "sign-in (the keyring)", "2027-01-16 10:00 UTC"),
            quota=quota,
        )
        golden(name, as_lines(report, Style()))


def test_the_simulators_quota_is_not_taken_for_a_plan() -> None:
    assert quota_title({"backend": "simulator"} | known_account(PERSON, NOW)) == "Quota (simulated)"
    assert quota_title({"backend": "agent"} | known_account(PERSON, NOW)) == "Quota"


def test_the_quota_of_a_seat() -> None:
    assert quota_lines(known_account(SEAT, NOW), Style()) == [
        "  Cursor Models  ####################  100 % used",
        "  Other Models   unknown",
        "  Team $40/mo, spent $40.00 of $40.00",
        "  on demand $12.50, limit $50.00 for the team",
        "  resets on 2026-11-17, in 1 day",
        "  seat of Rocket department (member)",
    ]


def command(capsys: pytest.CaptureFixture[str], directory: Path, *arguments: str) -> str:
    assert main(["usage", *arguments, "--no-quota", "--data-dir", str(directory)]) == 0
    return capsys.readouterr().out


def test_json_and_csv_have_every_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, *(run(number, model=f"=model {number}", usage=RunUsage(number, 1)) for number in range(50)))
    figures = json.loads(command(capsys, tmp_path, "all", "--json"))
    assert len(figures["rows"]) == 50
    assert figures["rows"][0] | {"model": "=model 49", "input": 49, "output": 1, "tokens": 50} == figures["rows"][0]
    assert (figures["by"], figures["quota"], figures["total"]["runs"], figures["total"]["cents"]) == (
        "model",
        None,
        50,
        None,
    )
    assert figures["prices"]["as_of"] == "2026-09-11"
    rows = list(csv.DictReader(io.StringIO(command(capsys, tmp_path, "all", "--csv"))))
    assert len(rows) == 50
    assert rows[0]["model"] == "'=model 49", "no formula"
    assert sum(int(row["input"]) for row in rows) == figures["total"]["input"] == sum(range(50))
    shown = command(capsys, tmp_path, "all")
    assert "the 20 largest; --json and --csv have all" in shown


def test_nothing_was_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing was used" in command(capsys, tmp_path)
    assert json.loads(command(capsys, tmp_path, "--json"))["rows"] == []
    assert command(capsys, tmp_path, "--csv").startswith("model,responses,")


def test_forgetting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path, response(conversation="a-secret-conversation"), run(1), run(2))
    assert command(capsys, tmp_path, "--forget") == "Forgot 1 responses and 2 runs.\n"
    assert b"a-secret-conversation" not in path.read_bytes()
    assert command(capsys, tmp_path, "--forget") == "Forgot 0 responses and 0 runs.\n"
    assert command(capsys, tmp_path / "elsewhere", "--forget") == "Forgot 0 responses and 0 runs.\n"
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        db.execute("PRAGMA user_version = 99")
    assert main(["usage", "--no-quota", "--data-dir", str(tmp_path)]) == 1
    assert "cannot be read: it has version 99" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--json", "--csv", "--by=day"])
def test_a_file_with_a_damaged_page(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path, response(), run(1))
    path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"\xff"))
    assert main(["usage", "--no-quota", flag, "--data-dir", str(tmp_path)]) == 1
    assert "ledger.sqlite cannot be read: database disk image is malformed" in capsys.readouterr().err


def test_own_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, run(1, model="default", variant="default@optimization=cost", usage=RunUsage(1_000_000, 0)))
    (tmp_path / "own.toml").write_text("[prices.default]\ninput = 2\noutput = 4\n")
    figures = command(capsys, tmp_path, "all", "--config", str(tmp_path / "own.toml"))
    assert "$2.00" in figures and "and your own" in figures
    (tmp_path / "own.toml").write_text('[prices.default]\ninput = "much"\noutput = 4\n')
    assert main(["usage", "--data-dir", str(tmp_path), "--config", str(tmp_path / "own.toml")]) == 2
    assert "default: `input` is a number of dollars" in capsys.readouterr().err


NOON = datetime(2026, 11, 17, 12, 30, tzinfo=timezone(timedelta(hours=9)))


@pytest.mark.parametrize(
    ("period", "since", "begins"),
    [
        (None, None, "2026-11-17T00:00:00+09:00"),
        ("today", None, "2026-11-17T00:00:00+09:00"),
        ("week", None, "2026-11-11T00:00:00+09:00"),
        ("month", None, "2026-11-01T00:00:00+09:00"),
        ("all", None, "1970-01-01T00:00:00+00:00"),
        (None, "2026-10-05", "2026-10-05T00:00:00+09:00"),
        (None, "2026-10-05T06:00Z", "2026-10-05T06:00:00+00:00"),
        (None, "36h", "2026-11-16T00:30:00+09:00"),
        (None, "2w", "2026-11-03T12:30:00+09:00"),
    ],
)
def test_periods(period: str | None, since: str | None, begins: str) -> None:
    assert usage.span_of(period, since, NOON)[0] == datetime.fromisoformat(begins).timestamp()


@pytest.mark.parametrize(
    ("period", "since", "begins"),
    [
        (None, None, "2026-10-25T00:00:00+02:00"),
        ("week", None, "2026-10-19T00:00:00+02:00"),
        (None, "2026-07-01", "2026-07-01T00:00:00+02:00"),
        (None, "24h", "2026-10-24T13:30:00+02:00"),
    ],
)
def test_periods_on_the_day_on_which_clocks_change(
    period: str | None, since: str | None, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        noon = datetime(2026, 10, 25, 12, 30)  # as the command asks for it: in the machine's time zone
        assert usage.span_of(period, since, noon)[0] == datetime.fromisoformat(begins).timestamp()
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("period", "since"), [("week", "7d"), (None, "soon"), (None, "7 parsecs")])
def test_periods_that_are_none(period: str | None, since: str | None) -> None:
    with pytest.raises(CommandFailed) as refused:
        usage.span_of(period, since, NOON)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9960, "10k"), (999_499, "999k"), (999_900, "1.0M")],
)
def test_compact(count: int, text: str) -> None:
    assert compact(count) == text


def test_small_things() -> None:
    assert [bar(share, 4) for share in (0, 0.001, 0.5, 1, 7)] == ["----", "#---", "##--", "####", "####"]
    assert [dollars(cents) for cents in (0, 0.001, 0.3, 99, 123_456)] == [
        "$0.00",
        "<$0.0001",
        "$0.0030",
        "$0.99",
        "$1,234.56",
    ]
    old = cost_lines(Totals(listed_cents=1.0), 100)
    assert any("These prices are old" in line for line in old)


def test_long_names_make_room_for_the_figures() -> None:
    rows = [Totals("x" * 100, responses=5, runs=3, input=5_000_000, output=1), Totals("y", runs=1, input=1)]
    lines = table(rows, Totals(runs=4), "model", Style(), 50, bars=True)
    assert max(map(len, lines)) <= 50
    assert "~" in lines[1] and "#" not in "".join(lines)
