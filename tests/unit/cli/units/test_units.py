"""Unit files for systemd and launchd: what is closed, what is quoted."""

import plistlib
from dataclasses import replace
from pathlib import Path

import pytest

from caretway.cli import service_manager
from caretway.cli.service_manager import ServiceDefinition, programs_at_home

ALONE = ServiceDefinition(["/opt/py/bin/python", "-m", "caretway", "serve"], Path("/home/a b/.local/caretway"), 25.0)


def lines(service: ServiceDefinition) -> list[str]:
    return service_manager.unit_text(service).splitlines()


def test_alone_it_may_write_to_its_own_directory_only() -> None:
    unit = lines(ALONE)
    assert "ExecStart=/opt/py/bin/python -m caretway serve" in unit
    assert [line for line in unit if line.startswith(("ProtectSystem", "ProtectHome", "ReadWritePaths", "Type"))] == [
        "Type=notify",
        "ProtectSystem=strict",
        "ProtectHome=read-only",
        'ReadWritePaths="/home/a b/.local/caretway"',
    ]
    assert "RestartPreventExitStatus=2" in unit
    assert "TimeoutStopSec=25" in unit


def test_the_dashboard_may_write_the_settings_file() -> None:
    unit = lines(replace(ALONE, config_dir=Path("/home/a b/.config/caretway")))
    assert 'ReadWritePaths="/home/a b/.local/caretway" "/home/a b/.config/caretway"' in unit


def test_programs_of_others_keep_the_home_directory() -> None:
    unit = lines(replace(ALONE, programs=programs_at_home(backend="cli", local_tools="all", mcp=True, keyring=False)))
    assert "ProtectSystem=full" in unit
    assert not [line for line in unit if line.startswith(("ProtectHome", "ReadWritePaths", "SystemCallFilter"))]
    (why,) = [line for line in unit if "writable" in line]
    assert all(word in why for word in ("cursor-agent", "local tools", "MCP"))


def test_nothing_needs_the_home_directory_on_agent() -> None:
    assert programs_at_home(backend="agent", local_tools="read-only", mcp=False, keyring=False) == ""


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("/usr/bin/x", "/usr/bin/x"),
        ("100%", "100%%"),
        ("$HOME", '"$$HOME"'),
        ('a "b"\\', '"a \\"b\\"\\\\"'),
        ("", '""'),
        ("two\nlines", '"two\\nlines"'),
    ],
)
def test_words_mean_themselves(word: str, expected: str) -> None:
    assert service_manager.quoted(word) == expected


def test_where_the_unit_is() -> None:
    home = Path("/home/anna")
    assert service_manager.unit_path({}, home) == home / ".config/systemd/user/caretway.service"
    assert service_manager.unit_path({"XDG_CONFIG_HOME": "/cfg"}, home) == Path("/cfg/systemd/user/caretway.service")


def test_launchd_starts_it_again_after_a_crash_only() -> None:
    printed = plistlib.loads(service_manager.plist_bytes(ALONE))
    assert printed["ProgramArguments"] == list(ALONE.command)
    assert printed["KeepAlive"] == {"SuccessfulExit": False}
    assert service_manager.plist_path(Path("/Users/anna")).name == "dev.caretway.gateway.plist"
