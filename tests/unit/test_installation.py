"""The command that extends or updates this copy fits where it runs, and names only what an index has."""

import json
from pathlib import Path

import pytest

from caretway.installation import Installation, install_command, recorded_source, this_installation, update_command

EXTRAS = {"sdk": ("cursor-sdk<2,>=1.1",)}
CHECKOUT = Path("/home/ada/my src")

COMMANDS = [
    (
        Installation("/v/bin/python", CHECKOUT, str(CHECKOUT), extras=EXTRAS),
        "/v/bin/python -m pip install 'cursor-sdk<2,>=1.1'",
        "git -C '/home/ada/my src' pull",
    ),
    (
        Installation("/v/bin/python", CHECKOUT, str(CHECKOUT), pip=False, extras=EXTRAS),
        "uv pip install --python /v/bin/python 'cursor-sdk<2,>=1.1'",
        "git -C '/home/ada/my src' pull",
    ),
    (
        Installation("/v/bin/python", None, "/src/caretway", extras=EXTRAS),
        "/v/bin/python -m pip install 'cursor-sdk<2,>=1.1'",
        "git -C /src/caretway pull && /v/bin/python -m pip install /src/caretway",
    ),
    (
        Installation("/v/bin/python", None, "git+https://h/c.git", extras=EXTRAS),
        "/v/bin/python -m pip install 'cursor-sdk<2,>=1.1'",
        "/v/bin/python -m pip install --force-reinstall 'caretway @ git+https://h/c.git'",
    ),
    (
        Installation("/v/bin/python", None, "", extras=EXTRAS),
        "/v/bin/python -m pip install 'cursor-sdk<2,>=1.1'",
        "/v/bin/python -m pip install --upgrade caretway",
    ),
    (
        Installation("/v/bin/python", None, "", tool="pipx", extras=EXTRAS),
        "/v/bin/python -m pip install 'cursor-sdk<2,>=1.1'",
        "pipx upgrade caretway",
    ),
    (
        Installation("/v/bin/python", None, "/src/caretway", tool="pipx", extras=EXTRAS),
        "/v/bin/python -m pip install 'cursor-sdk<2,>=1.1'",
        "git -C /src/caretway pull && pipx reinstall caretway",
    ),
    (
        Installation("/v/bin/python", None, "", pip=False, tool="uv tool", extras=EXTRAS),
        "uv pip install --python /v/bin/python 'cursor-sdk<2,>=1.1'",
        "uv tool upgrade caretway",
    ),
    (
        Installation("/v/bin/python", CHECKOUT),  # PYTHONPATH=src: nothing says what an extra is
        "/v/bin/python -m pip install '/home/ada/my src[sdk]'",
        "git -C '/home/ada/my src' pull",
    ),
]


@pytest.mark.parametrize(("here", "extra", "newer"), COMMANDS)
def test_commands(here: Installation, extra: str, newer: str) -> None:
    assert install_command("sdk", here=here) == extra
    assert update_command(here) == newer


def test_an_extra_can_be_replaced() -> None:
    assert "install --force-reinstall 'cursor-sdk" in install_command("sdk", again=True, here=COMMANDS[0][0])


SOURCES = [
    (None, ""),
    ({"url": "file:///a%20b", "dir_info": {"editable": True}}, "/a b"),
    ({"url": "https://h/c.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}, "git+https://h/c.git"),
    ({"url": "file:///w/caretway.whl", "archive_info": {}}, "file:///w/caretway.whl"),
]


@pytest.mark.parametrize(("told", "source"), SOURCES)
def test_where_pip_says_it_came_from(told: dict[str, object] | None, source: str) -> None:
    assert recorded_source(json.dumps(told) if told else None) == source


def test_this_copy_knows_its_extras_and_its_checkout() -> None:
    here = this_installation()
    assert (
        set(here.extras) == {"cluster", "sdk", "mcp", "keyring", "otel", "pdf", "testing", "tls"}
        and here.checkout == Path(__file__).parents[2]
    )
