"""`caretway doctor` in the states that people are in: which sentence it says, and its exit code. Real processes.

docs/troubleshooting.md has the same table; a test compares them.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from caretway import __version__
from caretway.cli.doctor import check_port
from caretway.cli.running import FOLDER
from caretway.dashboard.health import check_space

from .test_commands import ADDRESS, caretway, read_until

PAGE: Final = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
NOWHERE: Final = "http://127.0.0.1:1"


@dataclass(frozen=True)
class State:
    name: str
    """As docs/troubleshooting.md calls it."""
    finding: str
    says: str
    exit_code: int = 1
    flags: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)


SIM: Final = ("--backend", "simulator")
AGENT: Final = ("--backend", "agent", "--agent-url", "SIMULATOR")
KEY: Final = {"CURSOR_API_KEY": "any"}
STATES: Final = (
    State("no account", "account", "not signed in: answers are simulated"),
    State("the simulator was asked for", "account", "answers are simulated, as asked for", 0, SIM),
    State("no credentials for the chosen backend", "account", "not signed in", flags=AGENT),
    State("a key that works", "the address", "answers, with ", 0, AGENT, KEY),
    State(
        "a wrong key",
        "Cursor",
        "Cursor does not accept the API key",
        flags=AGENT,
        environ={"CURSOR_API_KEY": "bad-key"},
    ),
    State(
        "cursor-agent is signed out",
        "account",
        "not signed in to cursor-agent",
        flags=("--backend", "cli", "--agent-bin", "STAND-IN"),
        environ={"CURSOR_CONFIG_DIR": "SIGNED-OUT"},
    ),
    State("no cursor-agent program", "account", "not signed in to cursor-agent", flags=("--backend", "cli")),
    State(
        "a dead proxy",
        "Cursor",
        "cannot connect to the proxy",
        flags=("--backend", "agent", "--agent-url", "http://cursor.test"),
        environ=KEY | {"HTTP_PROXY": NOWHERE},
    ),
    State(
        "Cursor cannot be reached",
        "Cursor",
        "cannot connect to ",
        flags=("--backend", "agent", "--agent-url", NOWHERE),
        environ=KEY,
    ),
    State("the port is taken by another program", "port", "is taken by ", flags=(*SIM, "--port", "TAKEN")),
    State(
        "the data directory is open to others",
        "data directory",
        "is open to other users",
        flags=(*SIM, "--data-dir", "OPEN"),
    ),
    State("the same, with --fix", "data directory", "it is private now", 0, (*SIM, "--data-dir", "OPEN", "--fix")),
    State(
        "an old gateway is running", "gateway", "is of another version than this one", flags=(*SIM, "--data-dir", "OLD")
    ),
    State(
        "the simulator still runs after a login",
        "gateway",
        "its answers are simulated, and `agent` could be used now",
        flags=(*AGENT, "--data-dir", "SIMULATING"),
        environ=KEY,
    ),
    State(
        "a client's base URL is wrong",
        "client",
        "Anthropic's clients add /v1 themselves",
        flags=SIM,
        environ={"ANTHROPIC_BASE_URL": "http://127.0.0.1:32124/v1"},
    ),
)
IN_WORDS: Final = {
    "the disk is full": "conversations and usage cannot be kept",
    "another user's gateway has the port": "is taken by another user's gateway",
}
"""States that a test does not put this machine into."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the words in capitals stand for."""
    root = tmp_path_factory.mktemp("states")
    stand_in = root / "cursor-agent"
    stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m caretway_sim.cursor_agent "$@"\n')
    stand_in.chmod(0o755)
    signed_out = root / "signed-out"
    signed_out.mkdir()
    (signed_out / "signed-out").touch()
    home = root / "home"
    home.mkdir()
    with (
        caretway("simulate", "--port", "0", home=home) as simulator,
        caretway(
            "serve", "--port", "0", "--backend", "simulator", "--data-dir", str(root / "sim"), home=home
        ) as serving,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        cursor, gateway = read_until(simulator, ADDRESS), read_until(serving, ADDRESS)
        old = root / "old" / FOLDER
        old.mkdir(parents=True, mode=0o700)
        old.parent.chmod(0o700)
        note = {"url": gateway, "pid": os.getpid(), "version": "0.0.1", "backend": "simulator", "passthrough": False}
        (old / "note.json").write_text(json.dumps(note | {"key": "", "started": time.time()}))
        yield {
            "SIMULATOR": cursor,
            "GATEWAY": gateway,
            "STAND-IN": str(stand_in),
            "SIGNED-OUT": str(signed_out),
            "TAKEN": str(taken.getsockname()[1]),
            "OLD": str(old.parent),
            "SIMULATING": str(root / "sim"),
        }


def doctor(state: State, places: dict[str, str], home: Path) -> tuple[int, list[dict[str, Any]], str]:
    open_dir = home / "open"
    open_dir.mkdir()
    open_dir.chmod(0o755)
    words = places | {"OPEN": str(open_dir)}
    flags = [words.get(flag, flag) for flag in state.flags]
    environ = {name: words.get(value, value) for name, value in state.environ.items()}
    port = [] if "--port" in flags else ["--port", "0"]
    if state.finding == "client":
        port = []
    done = subprocess.run(
        [sys.executable, "-m", "caretway", "doctor", "--json", *flags, *port],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)} | environ,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name.replace(" ", "_"))
def test_doctor_says_what_is_wrong(state: State, places: dict[str, str], tmp_path: Path) -> None:
    code, findings, _ = doctor(state, places, tmp_path)
    found = [one for one in findings if one["name"] == state.finding]
    assert any(state.says in one["detail"] for one in found), findings
    assert code == state.exit_code, [one for one in findings if not one["ok"]]
    wrong = [one for one in findings if not one["ok"]]
    assert [one for one in wrong if not one["hint"]] == [], "each says what to type next"
    if state.exit_code:
        assert any(state.says in one["detail"] for one in wrong)


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    (found,) = check_space(tmp_path / "not" / "there", low=2**80)
    assert not found.ok and IN_WORDS["the disk is full"] in found.detail and found.hint
    assert check_space(tmp_path, low=0) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose socket it is")
def test_a_gateway_of_another_user_is_told(places: dict[str, str], tmp_path: Path) -> None:
    port = int(places["GATEWAY"].rpartition(":")[2])
    found = check_port(tmp_path, "127.0.0.1", port, trusted=frozenset({os.getuid() + 1}))
    assert not found.ok and IN_WORDS["another user's gateway has the port"] in found.detail and found.hint
    assert check_port(tmp_path, "127.0.0.1", port).ok


def test_the_page_has_the_same_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    said = [(state.name, state.says, state.exit_code) for state in STATES]
    said += [(name, says, 1) for name, says in IN_WORDS.items()]
    rows = [f'| {name} | "{says}{"..." if says.endswith(" ") else ""}" | {code} |' for name, says, code in said]
    assert [row for row in rows if row not in page] == []


def test_status_tells_the_truth_about_a_simulator(places: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "caretway", "status", "--data-dir", places["SIMULATING"]]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert done.returncode == 1
    assert "signed in  no" in done.stdout and "answers are simulated" in done.stdout
    key = environ | {"CURSOR_API_KEY": "any", "CARETWAY_AGENT_URL": places["SIMULATOR"], "CARETWAY_BACKEND": "agent"}
    signed_in = subprocess.run(command, capture_output=True, text=True, timeout=60, env=key, check=False)
    assert signed_in.returncode == 0 and "signed in  yes" in signed_in.stdout
    assert "gateway: its answers are simulated, and `agent` could be used now" in signed_in.stderr
    assert __version__ in signed_in.stderr
