"""Which service manager this machine has (systemd's for the user, or launchd), and the commands that it takes. Only
this module starts them; their own words are shown when they fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from ..config import Settings
from .process import CommandFailed
from .units import launchd, systemd
from .units.definition import LABEL, NAME, ServiceDefinition

_PATIENCE_S: Final = 90.0
_ANSWERING: Final = ("initializing", "starting", "running", "degraded", "maintenance", "stopping")
ELSEWHERE: Final = "run `caretway serve` under your own supervisor (docs/deploy.md)"


class Manager(Protocol):
    path: Path

    def text(self, service: ServiceDefinition) -> str: ...
    def problem(self) -> str:
        """Why the manager cannot be used here; empty if it can."""
        ...

    def install(self) -> None:
        """Start it now and at every login; one that runs is started anew."""

    def uninstall(self) -> None: ...
    def reload(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def restart(self) -> None: ...
    def state(self) -> tuple[str, int]:
        """`active` or the manager's own word, and the process id or 0."""
        ...

    def log_command(self, settings: Settings, lines: int, *, follow: bool) -> list[str]: ...
    def after_install(self) -> list[str]: ...


def manager_here(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Manager:
    if platform == "darwin":
        return Launchd(home)
    if platform == "linux":
        return Systemd(environ, home)
    raise CommandFailed(f"there is no service manager for {platform} here", ELSEWHERE)


class Systemd:
    def __init__(self, environ: Mapping[str, str], home: Path) -> None:
        self.path = systemd.unit_path(environ, home)

    def text(self, service: ServiceDefinition) -> str:
        return systemd.unit_text(service)

    def problem(self) -> str:
        if shutil.which("systemctl") is None:
            return "this machine has no systemd"
        state = _run(["systemctl", "--user", "is-system-running"]).stdout.strip()
        return "" if state in _ANSWERING else "systemd's user manager does not run here"

    def install(self) -> None:
        self.reload()
        _must(["systemctl", "--user", "enable", systemd.UNIT])
        _must(["systemctl", "--user", "restart", systemd.UNIT])

    def uninstall(self) -> None:
        _must(["systemctl", "--user", "disable", "--now", systemd.UNIT])

    def reload(self) -> None:
        _must(["systemctl", "--user", "daemon-reload"])

    def start(self) -> None:
        _must(["systemctl", "--user", "start", systemd.UNIT])

    def stop(self) -> None:
        _must(["systemctl", "--user", "stop", systemd.UNIT])

    def restart(self) -> None:
        _must(["systemctl", "--user", "restart", systemd.UNIT])

    def state(self) -> tuple[str, int]:
        words = ["systemctl", "--user", "show", "--property", "ActiveState,MainPID", systemd.UNIT]
        told = dict(line.partition("=")[::2] for line in _must(words).splitlines())
        return told.get("ActiveState", "unknown"), int(told.get("MainPID", "0"))

    def log_command(self, settings: Settings, lines: int, *, follow: bool) -> list[str]:
        return ["journalctl", "--user", "--unit", NAME, "--lines", str(lines), *(["--follow"] if follow else [])]

    def after_install(self) -> list[str]:
        return [
            "It runs now, and from your next login on.",
            "  caretway service status    caretway service logs",
            f"To run it without a login:   loginctl enable-linger {_user()}",
        ]


class Launchd:
    def __init__(self, home: Path) -> None:
        self.path = launchd.plist_path(home)
        self._domain = f"gui/{os.getuid()}"

    def text(self, service: ServiceDefinition) -> str:
        return launchd.plist_bytes(service).decode()

    def problem(self) -> str:
        return "this machine has no launchctl" if shutil.which("launchctl") is None else ""

    def install(self) -> None:
        _run(["launchctl", "bootout", f"{self._domain}/{LABEL}"])  # fails where none is loaded
        _must(["launchctl", "bootstrap", self._domain, str(self.path)])

    def uninstall(self) -> None:
        _run(["launchctl", "bootout", f"{self._domain}/{LABEL}"])

    def reload(self) -> None:
        """launchd reads the file when it is loaded."""

    def start(self) -> None:
        _run(["launchctl", "bootstrap", self._domain, str(self.path)])  # fails where it is loaded already
        _must(["launchctl", "kickstart", f"{self._domain}/{LABEL}"])

    def stop(self) -> None:
        _must(["launchctl", "bootout", f"{self._domain}/{LABEL}"])

    def restart(self) -> None:
        _must(["launchctl", "kickstart", "-k", f"{self._domain}/{LABEL}"])

    def state(self) -> tuple[str, int]:
        done = _run(["launchctl", "print", f"{self._domain}/{LABEL}"])
        if done.returncode:
            return "inactive", 0
        found = re.search(r"^\s*pid = (\d+)", done.stdout, re.MULTILINE)
        return ("active", int(found[1])) if found else ("inactive", 0)

    def log_command(self, settings: Settings, lines: int, *, follow: bool) -> list[str]:
        return tail_command(settings.log_file or settings.data_dir / "log" / "caretway.log", lines, follow=follow)

    def after_install(self) -> list[str]:
        return [
            "It runs now, and from your next login on.",
            "  caretway service status    caretway service logs",
        ]


def tail_command(file: Path, lines: int, *, follow: bool) -> list[str]:
    return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(file)]


def _user() -> str:
    import getpass

    return getpass.getuser()


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - fixed words, and the path of our own file
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise CommandFailed(f"{words[0]}: {failure}") from failure


def _must(words: Sequence[str]) -> str:
    done = _run(words)
    if done.returncode:
        raise CommandFailed(f"`{' '.join(words)}` failed: {_said(done)}")
    return done.stdout


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
