"""What the commands show, kept as files in tests/data/panes; `panes` makes them, and says how to renew them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from caretway.cli.flags import subcommands
from caretway.cli.main import parser

from .panes import FOLDER, LAID_OUT, OTHERS, PANES, STORED, WHOLE

WIDTHS: Final = (60, 80, 140)
SCREENS: Final = 2 * 40
PROGRAM: Final = Path(__file__).with_name("panes.py")


def shown(manner: str, width: int) -> dict[str, str]:
    command = [sys.executable, str(PROGRAM), manner, str(width)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    panes: dict[str, str] = json.loads(done.stdout)
    return panes


def colourless(text: str) -> str:
    return re.sub(r"<ESC>\[[\d;]*m", "", text)


def assert_lines_fit(name: str, text: str, width: int) -> None:
    if name not in WHOLE:
        lines = colourless(text).splitlines()
        assert [line for line in lines if len(line) > width and len(line.split()) > 1] == [], name


def test_panes() -> None:
    for name, text in shown(*STORED).items():
        assert text == (FOLDER / f"{name}.txt").read_text(), f"{name}: if that is meant, run panes.py --renew"


@pytest.mark.all
@pytest.mark.parametrize(("manner", "width"), OTHERS)
def test_panes_elsewhere_say_the_same(manner: str, width: int) -> None:
    for name, text in shown(manner, width).items():
        if manner != "terminal":
            assert "<ESC>" not in text, name
        if manner != "pipe":
            assert_lines_fit(name, text, width)
        if f"{manner}-{width}" not in LAID_OUT.get(name, ()):
            stored = (FOLDER / f"{name}.txt").read_text()
            assert "".join(colourless(text).split()) == "".join(colourless(stored).split()), name


def test_every_command_has_a_pane_and_every_file_belongs_to_one() -> None:
    assert set(subcommands(parser())) <= {pane.words[0] for pane in PANES.values()}
    assert {f"{name}.txt" for name in PANES} == {file.name for file in FOLDER.iterdir()}


def test_stored_lines_fit() -> None:
    for name in PANES:
        text = (FOLDER / f"{name}.txt").read_text()
        assert "\x1b" not in text, name
        assert_lines_fit(name, text, STORED[1])


def test_help_of_every_command_fits_and_is_two_screens_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = parser()
    for name, command in {"": whole, **subcommands(whole)}.items():
        for width in WIDTHS:
            monkeypatch.setenv("COLUMNS", str(width))
            lines = command.format_help().splitlines()
            assert len(lines) <= SCREENS, (name, width)
            assert [line for line in lines if len(line) > width] == [], (name, width)
