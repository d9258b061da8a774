"""`caretway capabilities --json` as a coding agent reads it: real processes, a gateway that runs, a client on the PATH,
and every step that it names tried or understood by the command line.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from caretway import __version__
from caretway.backend_factory import BACKENDS, STANDING_OF
from caretway.backends.cursor_cli.backend import CursorCliBackend
from caretway.backends.cursor_sdk.backend import CursorSdkBackend
from caretway.backends.legacy_chat.backend import LegacyChatBackend
from caretway.cli.main import parser
from caretway.cli.parsing import flags_of, subcommands
from caretway.clients.table import CLIENTS

from .test_commands import ADDRESS, caretway, read_until

PAGE: Final = Path(__file__).parents[2] / "docs" / "AGENTS_INSTALL.md"


def told(home: Path, *flags: str, **environ: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "caretway", "capabilities", "--json", *flags],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": str(home / "bin"), "HOME": str(home)} | environ,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def backend(found: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = [one for one in found["backends"] if one["name"] == name]
    return dict(row)


def steps(found: dict[str, Any]) -> list[str]:
    return [one["command"] for one in found["next"]]


def test_a_new_machine(tmp_path: Path) -> None:
    found = told(tmp_path)
    assert found["caretway"]["version"] == __version__ and found["caretway"]["update"]
    assert [one["name"] for one in found["backends"] if one["usable"]] == ["simulator"]
    assert backend(found, "simulator")["chosen"] and not backend(found, "agent")["chosen"]
    assert all(one["hint"] for one in found["backends"] if not one["usable"]), "each says what to type next"
    assert found["gateways"] == [] and found["settings"]["changed"] == []
    assert steps(found) == ["caretway login", "caretway serve", "caretway launch", "caretway doctor"], (
        "no systemctl on this PATH: the program itself"
    )


def test_the_tables_are_those_of_the_other_commands(tmp_path: Path) -> None:
    found = told(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in found if f"`{key}`" not in page] == []
    assert [one["name"] for one in found["backends"]] == [*BACKENDS] == [*STANDING_OF]
    assert [one["name"] for one in found["clients"]] == [client.name for client in CLIENTS]
    assert [one["name"] for one in found["commands"]] == [*subcommands(parser())]
    assert [one["name"] for one in found["commands"] if one["json"]] == [
        name for name, own in subcommands(parser()).items() if "--json" in flags_of(own)
    ]
    paths = {one["path"] for one in found["apis"]}
    assert {"/v1/chat/completions", "/v1/responses", "/v1/messages"} <= paths
    for kind in (CursorCliBackend, CursorSdkBackend, LegacyChatBackend):
        assert STANDING_OF[kind.name] == kind.standing


def test_from_nothing_to_a_client_with_a_gateway(tmp_path: Path) -> None:
    """The steps are followed one by one, and each disappears when it is done."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex").symlink_to(sys.executable)
    with caretway("simulate", "--port", "0", home=tmp_path) as simulator:
        cursor = {"CARETWAY_AGENT_URL": read_until(simulator, ADDRESS)}

        def typed(*words: str, said: str = "") -> None:
            environ = cursor | {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
            command = [sys.executable, "-m", "caretway", *words]
            subprocess.run(command, input=said, text=True, env=environ, timeout=120, check=True, capture_output=True)

        typed("login", "--api-key-stdin", said="crsr_not-to-be-told\n")
        found = told(tmp_path, **cursor)
        assert backend(found, "agent")["usable"] and "API key" in backend(found, "agent")["detail"]
        assert steps(found) == ["caretway serve", "caretway setup codex --yes", "caretway doctor"]
        where = ("--agent-url", cursor["CARETWAY_AGENT_URL"])
        with caretway("serve", "--port", "0", *where, home=tmp_path) as gateway:
            url = read_until(gateway, ADDRESS)
            typed("setup", "codex", "--yes")
            found = told(tmp_path, **cursor)
        (running,) = found["gateways"]
        assert (running["url"], running["openai_base_url"]) == (url, f"{url}/v1")
        assert (running["backend"], running["standing"], running["version"]) == ("agent", "unofficial", __version__)
        assert "key" not in running and "not-to-be-told" not in json.dumps(found)
        assert [one["name"] for one in found["clients"] if one["set_up"]] == ["codex"]
        assert steps(found) == ["caretway doctor"]
        assert told(tmp_path, CURSOR_API_KEY="crsr_not-to-be-told", **cursor)["settings"]["changed"] == [
            {"name": "api_key", "value": "set", "from": "environment CURSOR_API_KEY"},
            {"name": "agent_url", "value": cursor["CARETWAY_AGENT_URL"], "from": "environment CARETWAY_AGENT_URL"},
        ]


@pytest.mark.parametrize(
    ("flags", "environ", "name", "usable", "words"),
    [
        (("--auth-mode", "passthrough"), {}, "agent", True, "every client brings its own"),
        (("--auth-mode", "passthrough"), {}, "cli", False, "cannot use the keys of clients"),
        ((), {"CURSOR_API_KEY": "any"}, "legacy-chat", False, "deprecated"),
        ((), {"CARETWAY_ACCESS_TOKEN": "any"}, "sdk", False, "nobody is signed in"),
        (("--agent-bin", "/nowhere/cursor-agent"), {}, "cli", False, "`/nowhere/cursor-agent` is not installed"),
    ],
)
def test_why_a_backend_can_be_used_or_not(
    flags: tuple[str, ...], environ: dict[str, str], name: str, usable: bool, words: str, tmp_path: Path
) -> None:
    row = backend(told(tmp_path, *flags, **environ), name)
    assert row["usable"] is usable and words in row["detail"], row
    assert usable or row["hint"]
