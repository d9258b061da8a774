"""`scripts/clients --newest` with a registry and a client that are made here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from programs import write_program

pytestmark = pytest.mark.all  # for those who change scripts/clients

ROOT = Path(__file__).parents[2]
NPM = """
import os, shutil, sys
if sys.argv[1] == "view":
    print("9.9.9")
elif sys.argv[-1].endswith(os.environ.get("BROKEN", "@none")):
    sys.exit("npm error code ETARGET\\nnpm error notarget No matching version found for parts@9.")
else:
    os.makedirs("node_modules/.bin", exist_ok=True)
    shutil.copy(os.environ["CODEX_OF_TOMORROW"], "node_modules/.bin/codex")
"""
CODEX = """
import json, os, sys, tomllib, urllib.request
settings = tomllib.load(open(os.environ["CODEX_HOME"] + "/config.toml", "rb"))
tools = [{"type": "custom", "name": "exec", "description": "Runs JavaScript."}]
words = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": sys.argv[-1]}]}
asked = [{"type": "KIND", "role": "developer", "tools": tools}, words]
while True:
    body = {"model": settings["model"], "input": asked, "stream": False}
    request = urllib.request.Request(
        settings["model_providers"]["gw"]["base_url"] + "/responses",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        items = json.load(answer)["output"]
    for item in items:
        for part in item.get("content") or ():
            print(part["text"])
    calls = [item for item in items if item["type"] == "custom_tool_call"]
    if not calls:
        break
    asked += items
    for call in calls:
        result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": open("nonce.txt").read()}
        asked.append(result)
"""


def newest(folder: Path, kind: str, **environment: str) -> tuple[int, str, str]:
    """(exit code, output, the file with the table)"""
    write_program(folder / "bin/npm", NPM)
    write_program(folder / "codex", CODEX.replace("KIND", kind))
    clean = {name: value for name, value in os.environ.items() if name != "CI"}
    about = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "CARETWAY_CLIENTS_DIR": str(folder / "clients"),
        "CODEX_OF_TOMORROW": str(folder / "codex"),
    }
    table = folder / "tested.md"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/clients.py"), "--newest", "--to", str(table), "codex-code"],
        capture_output=True,
        text=True,
        check=False,
        env=clean | about | environment,
    )
    return done.returncode, done.stdout, table.read_text()


def test_a_client_that_works(tmp_path: Path) -> None:
    code, output, table = newest(tmp_path, "additional_tools")
    row = "| Codex | 9.9.9 | `gpt-5.6-sol` | ok | ok | - | ok | 3 |"
    assert row in output.splitlines(), output
    assert row in table.splitlines()
    assert code == 0


def test_a_client_whose_tools_come_in_an_unknown_item(tmp_path: Path) -> None:
    code, output, table = newest(tmp_path, "tools_of_tomorrow")
    row = "| Codex | 9.9.9 | `gpt-5.6-sol` | ok | FAILED | - | FAILED | 3 |"
    assert row in output.splitlines(), output
    assert row in table.splitlines()
    assert "codex-code 9.9.9 tool with gpt-5.6-sol:" in output
    assert code == 1


@pytest.mark.parametrize(("environment", "expected"), [({}, 0), ({"CI": "1"}, 1)])
def test_a_newest_release_that_cannot_be_installed(tmp_path: Path, environment: dict[str, str], expected: int) -> None:
    """The pinned release is run instead, and the installer's reason is in the table; in CI that is a failure."""
    code, _, table = newest(tmp_path, "additional_tools", BROKEN="@9.9.9", **environment)
    assert "| `gpt-5.6-sol` | ok | ok | - | ok | 3 |" in table
    assert "| 9.9.9 |" not in table
    assert "* Codex: No matching version found for parts@9. Run here: " in table
    assert code == expected


def test_a_client_that_cannot_be_installed(tmp_path: Path) -> None:
    code, _, table = newest(tmp_path, "additional_tools", BROKEN="")
    assert "| `gpt-5.6-sol` | - | - | - | - | 0 |" in table
    assert "* Codex: No matching version found for parts@9. Not run here." in table
    assert code == 0
