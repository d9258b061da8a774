"""`caretway setup`: how much of a long change a terminal shows before the question."""

import os
from pathlib import Path

import pytest

from caretway.cli.process import CommandFailed
from caretway.cli.setup import FOLDER, FileChange, Journal, SetupRecord, diff, read_text, shortened
from caretway.cli.terminal import Style

WHOLE = "caretway setup opencode --print"


@pytest.mark.parametrize(
    ("lines", "shown", "left_out"),
    [(1, 1, ""), (18, 18, ""), (19, 19, ""), (20, 19, "+... 2 more lines"), (68, 19, "+... 50 more lines")],
)
def test_a_long_row_keeps_its_beginning_and_its_end(lines: int, shown: int, left_out: str) -> None:
    row = [f"+{number}" for number in range(lines)]
    report = shortened(row, WHOLE)
    assert len(report) == shown
    assert (report[0], report[-1]) == (row[0], row[-1])
    assert [line for line in report if "more lines" in line] == ([f"{left_out}; all: {WHOLE}"] if left_out else [])


def test_short_rows_between_lines_that_stay_are_whole() -> None:
    rows = [sign + str(number) for number in range(40) for sign in (" ", "+", "-")]
    assert shortened(rows, WHOLE) == rows


def test_only_a_question_on_a_terminal_is_short(tmp_path: Path) -> None:
    change = FileChange(tmp_path / "opencode.json", None, "\n".join(f'"model-{number}": {{}},' for number in range(90)))
    asked, printed = diff([change], Style(), 80, WHOLE), diff([change], Style(), 80)
    assert len(asked) < 24 < 90 < len(printed)
    assert any(WHOLE in line for line in asked)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "settings.json")
    with pytest.raises(CommandFailed, match="not a regular file"):
        read_text(tmp_path / "settings.json")


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"[" * 5000, b"[]", b"\xff", b'{"client": "goose", "files": [1], "when": 1}']
)
def test_a_damaged_journal_is_named_and_left_alone(damaged: bytes, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.keep(SetupRecord("goose", ()))
    file = tmp_path / FOLDER / "goose.json"
    file.write_bytes(damaged)
    with pytest.raises(CommandFailed, match=r"goose\.json"):
        journal.read("goose")
    assert file.read_bytes() == damaged
