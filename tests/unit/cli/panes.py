"""What every command shows: on a terminal, in a pipe, and with NO_COLOR.

`.venv/bin/python tests/unit/cli/panes.py --renew` writes the files in tests/data/panes anew, for a terminal of 80
columns; look at them before you commit them. `panes.py MANNER WIDTH` prints the panes of one kind as JSON.

The commands are loaded once. Each pane is a fork of that process with a home of its own, on a real terminal or pipe.
"""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from caretway import __version__
from caretway.cli.main import main

FOLDER: Final = Path(__file__).parents[2] / "data" / "panes"
STORED: Final = ("terminal", 80)
OTHERS: Final = (("terminal", 60), ("terminal", 140), ("pipe", 80), ("no-color", 80))
LIMIT_S: Final = 60.0
"""For one command on a busy machine; none of them waits for anything else."""
END: Final = b"\0end of all\0"
SIMULATED: Final = ("--backend", "simulator")
NOBODY: Final = "http://127.0.0.1:1"
"""An address where nothing listens."""


@dataclass(frozen=True, slots=True)
class Pane:
    words: tuple[str, ...]
    """No help texts: argparse lays them out differently in each version of Python."""
    first: tuple[tuple[str, ...], ...] = ()
    """Commands before it, in the same home; what they show does not matter."""
    until: str = ""
    """For a command that goes on: Ctrl-C once it has shown this."""


PANES: Final = {
    "mistake": Pane(("serve", "--prot", "1")),
    "mistake-command": Pane(("lanch", "opencode")),
    "serve": Pane(("serve", *SIMULATED, "--port", "0"), until="caretway ask"),
    "open": Pane(("open",)),
    "launch": Pane(("launch",)),
    "launch-print-opencode": Pane(("launch", "opencode", "--print", *SIMULATED)),
    "launch-print-claude": Pane(("launch", "claude", "--print", *SIMULATED)),
    "launch-print-codex": Pane(("launch", "codex", "--print", *SIMULATED, "--", "exec", "fix the tests")),
    "launch-missing": Pane(("launch", "aider", *SIMULATED)),
    "setup": Pane(("setup",), first=(("setup", "codex", "--yes", *SIMULATED),)),
    "setup-print-opencode": Pane(("setup", "opencode", "--print", *SIMULATED)),
    "setup-print-codex": Pane(("setup", "codex", "--print", *SIMULATED)),
    "setup-undo": Pane(("setup", "goose", "--undo", "--yes"), first=(("setup", "goose", "--yes", *SIMULATED),)),
    "env": Pane(("env",)),
    "ask": Pane(("ask", *SIMULATED, "Say hello.")),
    "login": Pane(("login", "--no-browser", "--agent-url", NOBODY), until="Ctrl-C stops"),
    "login-import": Pane(("login", "--import")),
    "logout": Pane(("logout",)),
    "status": Pane(("status", *SIMULATED)),
    "status-cluster": Pane(("status", "--cluster")),
    "status-cluster-away": Pane(("status", "--cluster", "redis://anna:secret@127.0.0.1:1/0")),
    "top": Pane(("top",)),
    "usage": Pane(("usage",)),
    "models": Pane(("models", *SIMULATED)),
    "mcp": Pane(("mcp", "list", "--mcp-config", "nowhere.json")),
    "mcp-none": Pane(("mcp", "tools")),
    "service": Pane(("service", "status")),
    "service-uninstall": Pane(("service", "uninstall"), first=(("setup", "codex", "--yes", *SIMULATED),)),
    "service-install": Pane(("service", "install")),
    "doctor": Pane(("doctor", *SIMULATED, "--port", "0")),
    "doctor-nobody": Pane(("doctor", "--backend", "agent", "--port", "0")),
    "prove": Pane(("prove",)),
    "key": Pane(("key", "list"), first=(("key", "new", "--name", "ci", "--budget", "runs=50/day"),)),
    "key-new": Pane(("key", "new", "--name", "opencode", "--expires", "30d")),
    "key-mistake": Pane(("key",)),
    "config": Pane(("config", "--changed", "--port", "8080", "--thinking", "hide")),
    "config-path": Pane(("config", "path")),
    "simulate": Pane(("simulate", "--port", "0"), until="--agent-url http"),
    "completion": Pane(("completion",)),
}

WHOLE: Final = {
    "launch-print-opencode": "a name in JSON is not cut",
    "launch-print-codex": "settings of Codex, each of which is one word",
}
"""Panes with lines that may be longer than the terminal, and why. Links and paths may be in all of them."""
FOLDED: Final = {"terminal-60", "terminal-140", "pipe-80"}  # JSON, and commands with `\\`
LAID_OUT: Final = {
    "serve": {"terminal-60", "terminal-140", "pipe-80", "no-color-80"},  # its banner is a frame, or a colour
    "simulate": FOLDED,
    "launch": {"terminal-60"},  # the table has a column less
    "models": {"terminal-60", "pipe-80"},  # the table has fewer columns, or all
    "ask": {"pipe-80"},  # no line about usage
    "setup-undo": {"pipe-80"},  # the whole difference
    "launch-print-claude": FOLDED,
    "launch-print-codex": FOLDED,
    "launch-print-opencode": FOLDED,
    "setup-print-opencode": FOLDED,
}
"""Panes whose words, not only their lines, depend on where they are shown."""


def environment(home: Path, manner: str, width: int) -> dict[str, str]:
    variables = {
        "PATH": str(home / "bin"),
        "HOME": str(home),
        "TERM": "xterm",
        "TZ": "UTC",
        "PYTHON_COLORS": "0",
        "CARETWAY_PORT": "1",  # nobody listens there, whatever runs on this machine
    }
    if manner == "no-color":
        variables["NO_COLOR"] = "1"
    return variables | ({"COLUMNS": str(width)} if manner == "pipe" else {})


def run_here(words: tuple[str, ...], fds: tuple[int, int], terminal: bool, environ: dict[str, str]) -> None:
    """In the fork: this process becomes the command. Does not return."""
    code = 70
    try:
        os.setsid()
        if terminal:
            fcntl.ioctl(fds[0], termios.TIOCSCTTY, 0)
        for place, source in enumerate((*fds, fds[1])):
            os.dup2(source, place)
        os.closerange(3, 64)
        os.environ.clear()
        os.environ.update(environ)
        time.tzset()
        os.chdir(environ["HOME"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdout.reconfigure(line_buffering=terminal)  # type: ignore[union-attr]
        code = main(list(words))
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def shown(pane: Pane, words: tuple[str, ...], home: Path, manner: str, width: int) -> str:
    terminal = manner != "pipe"
    if terminal:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        reads = writes = theirs
        to_it = ours
    else:
        ours, writes = os.pipe()
        reads, to_it = os.pipe()
    child = os.fork()
    if child == 0:
        run_here(words, (reads, writes), terminal, environment(home, manner, width))
    if not terminal:
        os.close(to_it)
    text = read_all(ours, writes, child, pane.until)
    for end in {ours, reads, writes}:
        os.close(end)
    return text.replace("\r\n", "\n")


def read_all(source: int, other_end: int, child: int, until: str) -> str:
    """All that the child shows. What a terminal still holds when its last program ends can be lost, so its other end
    stays open here, and a mark behind the child's last word says that all of it was read."""
    data = b""
    ends = time.monotonic() + LIMIT_S
    waiting = until
    ended = os.pidfd_open(child)
    watched = [source, ended]
    while not data.endswith(END):
        ready = select.select(watched, [], [], max(0.0, ends - time.monotonic()))[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
            raise TimeoutError(f"it did not end, and showed {data.decode()!r}")
        if source in ready:
            data += os.read(source, 65536)
        elif ended in ready:
            os.waitpid(child, 0)
            os.write(other_end, END)
            watched = [source]
        if waiting and waiting in data.decode(errors="replace"):
            os.kill(child, signal.SIGINT)
            waiting = ""
    os.close(ended)
    return data.removesuffix(END).decode()


def plain(text: str, home: Path) -> str:
    """Without what differs from machine to machine, or from run to run; nothing else becomes shorter or longer."""
    text = text.replace("\x1b", "<ESC>").replace(str(home), "HOME").replace(__version__, "VERSION")
    text = re.sub(r"VERSION in .*?(?=\n\S|\Z)", "VERSION in ...", text, count=1, flags=re.DOTALL)
    text = re.sub(r"port \d+ is free", "port N is free", text)
    text = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:NNNNN", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "YYYY-MM-DD", text)
    text = re.sub(r"in \d+ days?", "in N days", text)
    text = re.sub(r"\d+\.\d s\b", "N.N s", text)
    text = re.sub(r"(challenge=|uuid=)[\w-]+", r"\1...", text)
    return re.sub(r"cw-[\w-]{40,}", "cw-...", text)


def panes(manner: str, width: int) -> dict[str, str]:
    printed = {}
    for name, pane in PANES.items():
        # Always of the same length, or lines would be folded elsewhere.
        home = Path(tempfile.mkdtemp(prefix="cw-", dir="/tmp"))
        try:
            (home / "bin").mkdir()
            (home / "bin" / "caretway").symlink_to(Path(sys.executable).with_name("caretway"))
            for words in pane.first:
                shown(Pane(words), words, home, manner, width)
            printed[name] = plain(shown(pane, pane.words, home, manner, width), home)
        finally:
            shutil.rmtree(home)
    return printed


def load() -> None:
    """What the commands import late, once instead of in every fork."""
    import asyncio  # noqa: F401


def renew() -> None:
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, text in panes(*STORED).items():
        (FOLDER / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    load()
    if sys.argv[1:] == ["--renew"]:
        renew()
    else:
        json.dump(panes(sys.argv[1], int(sys.argv[2])), sys.stdout)
