"""How the SDK's process is started: permissions, addresses, and an environment that has nothing of the user's."""

import json
from pathlib import Path
from typing import Any

import pytest

from caretway.backends.sdk.node import BRIDGE, GUARD, PARTS, SdkInstall, egress, node_command
from caretway.processes.child import Command

INSTALL = SdkInstall(Path("/v/bin/node"), Path("/v/node_modules"))
ROOT = Path("/home/ann/data/sdk")
CURSORS = ["cursor.sh", "cursor.com"]


def command(**more: Any) -> Command:
    return node_command(INSTALL, ROOT, egress(["https://api2.cursor.sh"], stand_in=False), **more)


def test_it_may_read_its_package_and_nothing_else() -> None:
    argv = command().argv
    assert argv[0] == "/v/bin/node" and argv[-1] == str(BRIDGE)
    assert "--permission" in argv and argv.index("--permission") < argv.index(f"--import={GUARD.as_uri()}")
    read = {word.partition("=")[2] for word in argv if word.startswith("--allow-fs-read=")}
    looked_at = {"/caretway-absent/*", "/node_modules/@cursor/*", "/.git"}  # where there is nothing of the user's
    assert read == {"/v/node_modules/*", str(GUARD), str(BRIDGE), *map(str, PARTS)} | looked_at
    allowed = {word.partition("=")[0] for word in argv if word.startswith("--allow")}
    assert allowed == {"--allow-fs-read"}  # no writing, no addons, no processes, no threads


def test_the_environment_is_made_of_nothing() -> None:
    environment = command().environment
    absent = "/caretway-absent/here"
    assert json.loads(environment["CARETWAY_EGRESS"]) == {
        "own": ["api2.cursor.sh:443"],
        "domains": CURSORS,
        "absent": absent,
    }
    assert {name: value for name, value in environment.items() if name != "CARETWAY_EGRESS"} == {
        "CARETWAY_SDK": "file:///v/node_modules/%40cursor/sdk/dist/esm/index.js",
        "MALLOC_ARENA_MAX": "1",
        **dict.fromkeys(("HOME", "PATH", "TMPDIR", "CURSOR_DATA_DIR"), absent),
    }


def test_a_stand_in_and_its_authority() -> None:
    environment = command(backend_url="https://sim:9", ca_file="/ca.pem").environment
    assert environment["CURSOR_BACKEND_URL"] == environment["CURSOR_WEBSITE_URL"] == "https://sim:9"
    assert environment["NODE_EXTRA_CA_CERTS"] == "/ca.pem"


@pytest.mark.parametrize(
    ("urls", "stand_in", "own", "domains"),
    [
        (["https://api2.cursor.sh"], False, ["api2.cursor.sh:443"], CURSORS),
        (["http://127.0.0.1:4000"], True, ["127.0.0.1:4000"], []),
        (["http://[::1]:4000", "http://[::1]:4000/"], True, ["::1:4000"], []),
        (["http://Sim.Example"], True, ["sim.example:80"], []),
        (["https://sim.example./a", "https://login.example"], True, ["login.example:443", "sim.example:443"], []),
    ],
)
def test_what_may_be_connected_to(urls: list[str], stand_in: bool, own: list[str], domains: list[str]) -> None:
    assert egress(urls, stand_in=stand_in) == {"own": own, "domains": domains}
