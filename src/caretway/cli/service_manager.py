"""The service manager of this machine (systemd for the user, or launchd) and its commands. Only this module runs them;
if a command fails, its own output is shown.
"""

from __future__ import annotations

import getpass
import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..config import Settings
from .process import CommandFailed

# ---- definition

# The facts that a service definition needs, and its sandboxing: the home directory is read-only unless programs run
# there (cursor-agent, MCP servers, local tools). Pure.

NAME: Final = "caretway"
LABEL: Final = "dev.caretway.gateway"
"""The service's name for launchd."""
WRONG_SETTING: Final = 2
"""The exit code of a start that no retry can fix."""


@dataclass(frozen=True, slots=True)
class ServiceDefinition:
    command: Sequence[str]
    data_dir: Path
    stop_s: float
    """The time limit for stopping."""
    programs: str = ""
    """Describes the programs that run with the user's files; empty if none do."""
    config_dir: Path | None = None
    """The directory of the settings file, which the dashboard replaces as a whole."""
    log_file: Path | None = None
    """None if the service manager keeps the log."""


def programs_at_home(*, backend: str, local_tools: str, mcp: bool, keyring: bool) -> str:
    """Why the home directory must be writable; empty if it need not be."""
    reasons = [
        ("cursor-agent works in your home directory", backend == "cli"),
        ("the SDK's own process keeps files there", backend == "sdk"),
        ("local tools may write", local_tools == "all"),
        ("MCP servers run with your files", mcp),
        ("the keyring is asked over your desktop's bus", keyring),
    ]
    return "; ".join(reason for reason, holds in reasons if holds)


# ---- launchd

# The property list for launchd (macOS): starts at login, restarts after a crash, logs to a file that the gateway
# rotates. Pure.


def plist_path(home: Path) -> Path:
    return home / "Library" / "LaunchAgents" / f"{LABEL}.plist"


def plist_bytes(service: ServiceDefinition) -> bytes:
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(service.command),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 5,
            "ExitTimeOut": int(service.stop_s),
            "ProcessType": "Background",
            "Umask": 0o077,
            "EnvironmentVariables": {"PYTHONUNBUFFERED": "1"},
        },
        sort_keys=False,
    )


# ---- systemd

# The unit file for systemd's user manager: readiness by sd_notify, restart after a crash but not after a wrong setting,
# hardening, quoting of words. Pure.

UNIT: Final = f"{NAME}.service"

_ALWAYS: Final = (
    "NoNewPrivileges=yes",
    "ProtectSystem=full",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
    "UMask=0077",
)
_ALONE: Final = (
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "RestrictNamespaces=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
)
"""Hardening for a gateway that starts no other programs."""


def unit_path(environ: Mapping[str, str], home: Path) -> Path:
    named = Path(environ.get("XDG_CONFIG_HOME", ""))
    return (named if named.is_absolute() else home / ".config") / "systemd" / "user" / UNIT


def unit_text(service: ServiceDefinition) -> str:
    if service.programs:
        closed = [f"# The home directory is writable: {service.programs}.", *_ALWAYS]
    else:
        strict = {line.partition("=")[0]: line for line in (*_ALWAYS, *_ALONE)}
        writable = [service.data_dir, *([service.config_dir] if service.config_dir is not None else [])]
        closed = [*strict.values(), f"ReadWritePaths={' '.join(quoted(str(place)) for place in writable)}"]
    return "\n".join(
        [
            "# Written by `caretway service install`, anew each time. Put changes in a drop-in:",
            f"#   systemctl --user edit {NAME}",
            "[Unit]",
            "Description=Caretway, a gateway to your Cursor subscription",
            "Documentation=https://github.com/caretway/caretway",
            "StartLimitIntervalSec=60",
            "StartLimitBurst=5",
            "",
            "[Service]",
            "Type=notify",
            "NotifyAccess=main",
            f"ExecStart={' '.join(map(quoted, service.command))}",
            "Restart=on-failure",
            "RestartSec=1",
            f"RestartPreventExitStatus={WRONG_SETTING}",
            f"TimeoutStopSec={service.stop_s:g}",
            "Environment=PYTHONUNBUFFERED=1",
            *closed,
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def quoted(word: str) -> str:
    """Quotes one word of a command line or a list of paths, so that specifiers and variables are not expanded."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if plain and all(character.isalnum() or character in "/._-=:,@+%" for character in plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# ---- service manager


_PATIENCE_S: Final = 90.0
_ANSWERING: Final = ("initializing", "starting", "running", "degraded", "maintenance", "stopping")
ELSEWHERE: Final = "run `caretway serve` under your own supervisor (docs/deploy.md)"


class Manager:
    path: Path
    commands: Mapping[str, Sequence[Sequence[str]]]
    """Action -> its commands, in order. One that begins with `-` may fail."""

    def do(self, action: str) -> None:
        """`install` starts the service now and at every login, and restarts a running one."""
        for words in self.commands[action]:
            if words[0] == "-":
                _run(words[1:])
            else:
                _must(words)

    def text(self, service: ServiceDefinition) -> str:
        raise NotImplementedError

    def problem(self) -> str:
        """Why the manager cannot be used here; empty if it can."""
        raise NotImplementedError

    def state(self) -> tuple[str, int]:
        """`active` or the manager's own word, and the process id or 0."""
        raise NotImplementedError

    def log_command(self, settings: Settings, lines: int, *, follow: bool) -> list[str]:
        raise NotImplementedError

    def after_install(self) -> list[str]:
        return ["It runs now, and from your next login on.", "  caretway service status    caretway service logs"]


def manager_here(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Manager:
    if platform == "darwin":
        return Launchd(home)
    if platform == "linux":
        return Systemd(environ, home)
    raise CommandFailed(f"there is no service manager for {platform} here", ELSEWHERE)


_SYSTEMCTL: Final = ("systemctl", "--user")


class Systemd(Manager):
    commands = {  # noqa: RUF012 - never changed
        "install": (
            (*_SYSTEMCTL, "daemon-reload"),
            (*_SYSTEMCTL, "enable", UNIT),
            (*_SYSTEMCTL, "restart", UNIT),
        ),
        "uninstall": ((*_SYSTEMCTL, "disable", "--now", UNIT),),
        "reload": ((*_SYSTEMCTL, "daemon-reload"),),
        **{action: ((*_SYSTEMCTL, action, UNIT),) for action in ("start", "stop", "restart")},
    }

    def __init__(self, environ: Mapping[str, str], home: Path) -> None:
        self.path = unit_path(environ, home)

    def text(self, service: ServiceDefinition) -> str:
        return unit_text(service)

    def problem(self) -> str:
        if shutil.which("systemctl") is None:
            return "this machine has no systemd"
        state = _run([*_SYSTEMCTL, "is-system-running"]).stdout.strip()
        return "" if state in _ANSWERING else "systemd's user manager does not run here"

    def state(self) -> tuple[str, int]:
        words = [*_SYSTEMCTL, "show", "--property", "ActiveState,MainPID", UNIT]
        properties = dict(line.partition("=")[::2] for line in _must(words).splitlines())
        return properties.get("ActiveState", "unknown"), int(properties.get("MainPID", "0"))

    def log_command(self, settings: Settings, lines: int, *, follow: bool) -> list[str]:
        return ["journalctl", "--user", "--unit", NAME, "--lines", str(lines), *(["--follow"] if follow else [])]

    def after_install(self) -> list[str]:
        return [*super().after_install(), f"To run it without a login:   loginctl enable-linger {getpass.getuser()}"]


class Launchd(Manager):
    def __init__(self, home: Path) -> None:
        self.path = plist_path(home)
        domain = f"gui/{os.getuid()}"
        self._service = service = f"{domain}/{LABEL}"
        bootout = ("launchctl", "bootout", service)
        bootstrap = ("launchctl", "bootstrap", domain, str(self.path))
        self.commands = {
            "install": (("-", *bootout), bootstrap),  # bootout fails if none is loaded
            "uninstall": (("-", *bootout),),
            "reload": (),  # launchd reads the file when it is loaded
            "start": (
                ("-", *bootstrap),
                ("launchctl", "kickstart", service),
            ),  # bootstrap fails if it is loaded already
            "stop": (bootout,),
            "restart": (("launchctl", "kickstart", "-k", service),),
        }

    def text(self, service: ServiceDefinition) -> str:
        return plist_bytes(service).decode()

    def problem(self) -> str:
        return "this machine has no launchctl" if shutil.which("launchctl") is None else ""

    def state(self) -> tuple[str, int]:
        done = _run(["launchctl", "print", self._service])
        if done.returncode:
            return "inactive", 0
        found = re.search(r"^\s*pid = (\d+)", done.stdout, re.MULTILINE)
        return ("active", int(found[1])) if found else ("inactive", 0)

    def log_command(self, settings: Settings, lines: int, *, follow: bool) -> list[str]:
        return tail_command(settings.log_file or settings.data_dir / "log" / "caretway.log", lines, follow=follow)


def tail_command(file: Path, lines: int, *, follow: bool) -> list[str]:
    return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(file)]


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
