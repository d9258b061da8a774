"""What the commands show, kept as files in tests/data/panes; `panes` makes them, and says how to renew them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from caretway.cli.main import parser
from caretway.cli.parsing import subcommands

from .panes import FOLDER, KINDS, PANES, WHOLE

WIDTHS: Final = (60, 80, 140)
SCREENS: Final = 2 * 40
PROGRAM: Final = Path(__file__).with_name("panes.py")
EVERYDAY: Final = ("terminal", 80)


@pytest.mark.parametrize(
    ("manner", "width"),
    [pytest.param(*kind, marks=[] if kind == EVERYDAY else [pytest.mark.all]) for kind in KINDS],
)
def test_panes(manner: str, width: int) -> None:
    command = [sys.executable, str(PROGRAM), manner, str(width)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    for name, told in json.loads(done.stdout).items():
        file = FOLDER / f"{name}.{manner}-{width}.txt"
        assert told == file.read_text(), f"{name}: if that is meant, run panes.py --renew"


def test_every_command_has_a_pane_and_every_file_belongs_to_one() -> None:
    shown = {pane.words[0] for pane in PANES.values()}
    assert set(subcommands(parser())) <= shown
    named = {f"{name}.{manner}-{width}.txt" for name in PANES for manner, width in KINDS}
    assert named == {file.name for file in FOLDER.iterdir()}


def test_lines_fit_and_colour_is_for_terminals() -> None:
    for file in sorted(FOLDER.iterdir()):
        name, kind, _ = file.name.split(".")
        manner, _, width = kind.rpartition("-")
        told = file.read_text()
        assert "\x1b" not in told, file
        if manner != "terminal":
            assert "<ESC>" not in told, file
        if manner != "pipe" and name not in WHOLE:
            lines = re.sub(r"<ESC>\[[\d;]*m", "", told).splitlines()
            assert [line for line in lines if len(line) > int(width) and len(line.split()) > 1] == [], file


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["", *subcommands(parser())])
def test_help_of_every_command_fits_and_is_two_screens_at_most(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = ({"": parser()} | subcommands(parser()))[command].format_help().splitlines()
    assert len(lines) <= SCREENS
    assert [line for line in lines if len(line) > width] == []
