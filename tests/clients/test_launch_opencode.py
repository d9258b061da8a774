"""`caretway launch` and `caretway setup` with a real client, opencode, in a fresh home: one command to a tool call."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from caretway.cli.running import noted_gateways
from clients.test_acp_agents import OPENCODE
from contract.test_running import serving

pytestmark = [
    pytest.mark.all,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not OPENCODE.exists(), reason="opencode is not installed; ./scripts/clients --quick does it"),
]
PROMPT = """Please follow these lines.
sim: call bash {"command": "cat nonce.txt"}
sim: say FINAL
sim: result
That is all.
"""
MINE = '{\n  // mine\n  "model": "other/x",\n  "share": "disabled"\n}\n'


def run(home: Path, *words: str, stdin: str = "") -> str:
    """What it printed; it must end well."""
    environment = {
        "PATH": f"{OPENCODE.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "CARETWAY_DATA_DIR": str(home / "data"),
        "HTTPS_PROXY": "http://127.0.0.1:9",  # nothing leaves this machine
        "NO_COLOR": "1",
        "TERM": "dumb",
        "CI": "1",
    }
    work = home / "work"
    work.mkdir(exist_ok=True)
    (work / "nonce.txt").write_text("NONCE-4711\n")
    done = subprocess.run(
        words, cwd=work, env=environment, input=stdin, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_command_to_a_tool_call(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "opencode" / "opencode.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text(MINE)
    assert "FINAL\nNONCE-4711" in run(tmp_path, "caretway", "launch", "opencode", "--", "run", stdin=PROMPT)
    assert "caretway" not in file.read_text()
    assert noted_gateways(tmp_path / "data") == []


def test_set_up_used_and_undone(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "opencode" / "opencode.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text(MINE)
    with serving(tmp_path):
        run(tmp_path, "caretway", "setup", "opencode", "--yes")
        assert '  // mine\n  "model": "other/x",\n' in file.read_text()
        assert "FINAL\nNONCE-4711" in run(tmp_path, "opencode", "--model", "caretway/sim-auto", "run", stdin=PROMPT)
        run(tmp_path, "caretway", "setup", "opencode", "--undo", "--yes")
    assert "caretway" not in file.read_text() and "// mine" in file.read_text()
