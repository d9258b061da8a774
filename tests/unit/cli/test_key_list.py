"""`caretway key list`, as it looks at 80 columns, and what it counts."""

import time
from pathlib import Path

import pytest

from caretway.cli.key import KeyRow, as_json, as_table, read_rows
from caretway.cli.process import CommandFailed
from caretway.cli.terminal import Style
from caretway.usage.budget import BudgetScope, Level, Spent, day_of, parse_budget
from caretway.usage.key_file import NamedKey
from caretway.usage.spent_store import FILE
from caretway.usage.sqlite_store import SqliteSpent

GOLDEN = Path(__file__).parent / "golden" / "key_list.txt"
NOW = time.mktime((2026, 11, 17, 13, 0, 0, 0, 0, -1))
DAY = 86_400.0


def level(text: str, spent: float) -> Level:
    return Level(parse_budget(text, BudgetScope.KEY), spent, NOW + 3600)


ROWS = [
    KeyRow(NamedKey("k1", "anna@laptop", "", NOW - 40 * DAY), Spent(1204, 88_412_000, 9_100_000, 4127.4), NOW - 20),
    KeyRow(
        NamedKey("k2", "ci", "", NOW - DAY, NOW - 3600, models=("claude-*", "gpt-5", "gpt-5-codex")),
        Spent(3, 12_400, 12_400),
        NOW - 3 * 3600,
    ),
    KeyRow(NamedKey("k3", "new-one", "", NOW, NOW + 30 * DAY, page=True)),
    KeyRow(
        NamedKey(
            "k4", "opencode", "", NOW - DAY, workspace="/home/anna/src/a-project-with-a-name/that/is/rather/long/indeed"
        ),
        Spent(41, 1_203_111, 300_200, 310.0),
        NOW - 12 * 60,
        (
            level("runs=50/day", 41),
            level("cents=300/month", 310.0),
            level("tokens=2M", 1_203_111),
            level("run.tokens=300k", 0),
        ),
    ),
    KeyRow(NamedKey("k5", "the-longest-name-that-a-key-can-have.1234", "", NOW), Spent(999_999, 10**12), NOW - 9 * DAY),
]


def test_at_80_columns() -> None:
    lines = as_table(ROWS, NOW, Style())
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines) + "\n" == GOLDEN.read_text()


def test_colour_only_on_a_terminal() -> None:
    assert "\x1b" not in "".join(as_table(ROWS, NOW, Style()))
    plain = as_table(ROWS, NOW, Style())
    coloured = as_table(ROWS, NOW, Style(colour=True))
    assert "\x1b[31m" in "".join(coloured)
    assert len(plain) == len(coloured)


def test_json_has_everything() -> None:
    printed = as_json(ROWS)["keys"]
    assert printed[3]["budgets"][0] == {
        "budget": "key.runs=50/day",
        "limit": 50.0,
        "spent": 41,
        "resets_at": round(NOW + 3600),
    }
    assert [each["page"] for each in printed] == [False, False, True, False, False]
    assert printed[4]["name"] == "the-longest-name-that-a-key-can-have.1234"
    assert (printed[2]["last_used_at"], printed[2]["runs"], printed[2]["workspace"]) == (None, 0, None)


async def test_what_is_counted_is_read(tmp_path: Path) -> None:
    key = NamedKey("k1", "anna", "", 1.0, budgets=("key.runs=5/day", "run.tokens=9"))
    assert read_rows([key], tmp_path / FILE, NOW) == [
        KeyRow(key, levels=(level_today("runs=5/day", 0), Level(parse_budget("run.tokens=9", BudgetScope.KEY), 0.0)))
    ]
    assert not (tmp_path / FILE).exists()
    store = SqliteSpent(tmp_path / FILE)
    store.settle(("key:k1", "everybody"), day_of(NOW - DAY), Spent(2, 10), NOW - DAY)
    store.settle(("key:k1",), day_of(NOW), Spent(1, 5, 5, 0.25), NOW)
    await store.aclose()
    (row,) = read_rows([key], tmp_path / FILE, NOW)
    assert (row.total, row.used_at) == (Spent(3, 15, 5, 0.25), NOW)
    assert row.levels[0].spent == 1


def level_today(text: str, spent: float) -> Level:
    midnight = time.mktime((2026, 11, 18, 0, 0, 0, 0, 0, -1))
    return Level(parse_budget(text, BudgetScope.KEY), spent, midnight)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"rubbish" * 1000)
    with pytest.raises(CommandFailed, match="what the keys have used cannot be read"):
        read_rows([], tmp_path / FILE, NOW)


def test_a_budget_that_somebody_has_edited_is_told(tmp_path: Path) -> None:
    key = NamedKey("k1", "anna", "", 1.0, budgets=("nonsense",))
    with pytest.raises(CommandFailed, match="a budget of the key anna cannot be read"):
        read_rows([key], tmp_path / FILE, NOW)
