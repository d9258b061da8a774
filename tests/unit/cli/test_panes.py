"""What the commands show, kept as files: on a terminal of 60, 80 and 140 columns, in a pipe, and with NO_COLOR.

`CARETWAY_TEST_RENEW=1` writes the files in tests/data/panes anew; look at them before you commit them.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from caretway import __version__
from caretway.cli.main import parser
from caretway.cli.parsing import subcommands

PANES: Final = Path(__file__).parents[2] / "data" / "panes"
WIDTHS: Final = (60, 80, 140)
SCREENS: Final = 2 * 40

COMMANDS: Final = {
    "help": ("help", "ask"),
    "status": ("status", "--backend", "simulator"),
    "doctor": ("doctor", "--backend", "simulator", "--port", "0"),
    "models": ("models", "--backend", "simulator"),
    "config": ("config", "--changed", "--port", "8080", "--thinking", "hide"),
    "mistake": ("serve", "--prot", "1"),
}
MANNERS: Final = [
    *(pytest.param("terminal", width, marks=[] if width == 80 else [pytest.mark.all]) for width in WIDTHS),
    pytest.param("pipe", 80, marks=[pytest.mark.all]),
    pytest.param("no-color", 80, marks=[pytest.mark.all]),
]


@pytest.fixture
def home() -> Iterator[Path]:
    """Always of the same length, or lines would be folded elsewhere."""
    with tempfile.TemporaryDirectory(prefix="cw-", dir="/tmp") as place:
        yield Path(place)


def environment(home: Path, width: int, manner: str) -> dict[str, str]:
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TERM": "xterm", "PYTHON_COLORS": "0"}
    if manner == "no-color":
        variables["NO_COLOR"] = "1"
    return variables | ({"COLUMNS": str(width)} if manner == "pipe" else {})


def in_pipe(command: list[str], environ: dict[str, str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ, check=False)
    return done.stdout + done.stderr


def on_terminal(command: list[str], environ: dict[str, str], width: int) -> str:
    """Everything that the command writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, close_fds=True) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # Linux says so when the other side is closed
            pass
        process.wait(60)
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def plain(text: str, home: Path) -> str:
    """Without what differs from machine to machine."""
    text = text.replace("\x1b", "<ESC>").replace(str(home), "HOME").replace(__version__, "VERSION")
    text = re.sub(r"VERSION in .*?(?=\n\S|\Z)", "VERSION in ...", text, count=1, flags=re.DOTALL)
    return re.sub(r"port \d+ is free", "port N is free", text)


@pytest.mark.parametrize(("manner", "width"), MANNERS)
@pytest.mark.parametrize("name", COMMANDS)
def test_panes(name: str, manner: str, width: int, home: Path) -> None:
    command = [sys.executable, "-m", "caretway", *COMMANDS[name]]
    environ = environment(home, width, manner)
    shown = in_pipe(command, environ) if manner == "pipe" else on_terminal(command, environ, width)
    told = plain(shown, home)
    file = PANES / f"{name}.{manner}-{width}.txt"
    if os.environ.get("CARETWAY_TEST_RENEW"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(told)
    assert told == file.read_text(), "if that is meant: CARETWAY_TEST_RENEW=1 ./scripts/test --all FILE"
    if manner != "terminal":
        assert "<ESC>" not in told


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", subcommands(parser()))
def test_help_of_every_command_fits_and_is_two_screens_at_most(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = subcommands(parser())[command].format_help().splitlines()
    assert len(lines) <= SCREENS
    assert [line for line in lines if len(line) > width] == []
