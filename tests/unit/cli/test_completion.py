"""Completion of commands, flags and values, asked of real shells: bash, and fish and zsh where they are installed."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from caretway.cli.completion import bash, fish, words, zsh
from caretway.cli.flags import flags_of, subcommands
from caretway.cli.main import parser

COMMANDS = list(words(parser()))
FISH, ZSH = shutil.which("fish") or "", shutil.which("zsh") or ""

ASKED = [
    (["ser"], {"serve"}, set()),
    (["serve", "--por"], {"--port"}, {"--host"}),
    (["serve", "--backend", "s"], {"sdk", "simulator"}, {"agent"}),
    (["serve", "--mcp-start"], {"--mcp-start-wait"}, set()),
    (["config", "un"], {"unset"}, {"get"}),
    (["completion", ""], {"bash", "zsh", "fish"}, set()),
]


def test_the_words_are_those_of_the_parsers() -> None:
    tree = subcommands(parser())
    assert [one.name for one in COMMANDS] == list(tree)
    for one in COMMANDS:
        assert [name for flag in one.flags for name in flag.names] == list(flags_of(tree[one.name]))
        assert one.help and all(flag.help for flag in one.flags), one.name


def _lines(command: Sequence[str], **more: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload]
    assert done.stderr == ""
    return list(done.stdout.split("\n"))


@pytest.mark.parametrize(("typed", "offered", "not_offered"), ASKED)
def test_bash(typed: list[str], offered: set[str], not_offered: set[str]) -> None:
    program = shutil.which("bash")
    assert program is not None, "scripts need it, too"
    quoted = " ".join(f"'{word}'" for word in ["caretway", *typed])
    asking = f'COMP_WORDS=({quoted}) COMP_CWORD={len(typed)}; _caretway; printf "%s\\n" "${{COMPREPLY[@]}}"'
    found = set(_lines([program, "-c", f"{bash(COMMANDS)}\n{asking}"]))
    assert offered <= found and not found & not_offered


@pytest.mark.all
@pytest.mark.parametrize(("typed", "offered", "not_offered"), ASKED if FISH else [])
def test_fish(typed: list[str], offered: set[str], not_offered: set[str], tmp_path: Path) -> None:
    file = tmp_path / "caretway.fish"
    file.write_text(fish(COMMANDS) + "\n")
    line = " ".join(["caretway", *typed])
    asked = ["--no-config", "-c", f"source {file}; complete -C '{line}'"]
    found = {one.partition("\t")[0] for one in _lines([FISH, *asked])}
    assert offered <= found and not found & not_offered


@pytest.mark.all
@pytest.mark.parametrize("shell", [FISH] if FISH else [])
def test_descriptions_keep_their_apostrophes(shell: str, tmp_path: Path) -> None:
    file = tmp_path / "caretway.fish"
    file.write_text(fish(COMMANDS) + "\n")
    printed = _lines([shell, "--no-config", "-c", f"source {file}; complete -C 'caretway set'"])
    assert "setup\twrite the gateway into a client's own files" in printed


@pytest.mark.all
@pytest.mark.parametrize(("typed", "offered", "not_offered"), ASKED if ZSH else [])
def test_zsh(typed: list[str], offered: set[str], not_offered: set[str], tmp_path: Path) -> None:
    """zsh completes on a terminal only."""
    (tmp_path / "_caretway").write_text(zsh(COMMANDS) + "\n")
    setup = f"PS1=; fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump; setopt no_beep\n"
    typing = f"{' '.join(['caretway', *typed])}\t\t\x15"
    ready, over = "print READY$((1 + 1))\n", "print END$((1 + 1))\n"
    waits = re.compile(r"READY2.*\x1b\[\?2004h", re.DOTALL), re.compile("END2")  # its line editor is there; it is over
    shown = on_terminal([ZSH, "-f", "-i"], setup, ready, waits[0], typing, over, waits[1]).rpartition("READY2")[2]
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\x00-\x1f]", "", shown)
    assert [word for word in offered if word not in text] == []
    assert [word for word in not_offered if word in text] == []


def on_terminal(command: Sequence[str], *steps: str | re.Pattern[str]) -> str:
    """Types the texts, and waits until the patterns are shown."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], list(command), {"TERM": "xterm", "HOME": "/nonexistent", "PATH": os.environ["PATH"]})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    shown = ""
    try:
        for step in steps:
            if isinstance(step, str):
                os.write(terminal, step.encode())
                continue
            while not step.search(shown):
                assert select.select([terminal], [], [], 30)[0], shown
                shown += os.read(terminal, 65536).decode(errors="replace")
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(child, 0)
    return shown
