"""The unit file for systemd's user manager: readiness by sd_notify, restart after a crash and not after a wrong
setting, hardening, and how a word is quoted in it. Pure.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .definition import NAME, WRONG_SETTING, ServiceDefinition

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
"""For a gateway that starts no programs of others."""


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
            "# Written by `caretway service install`, which writes it anew. Changes belong into a drop-in:",
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
    """One word of a command line or of a list of paths: specifiers and variables are not expanded."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if plain and all(character.isalnum() or character in "/._-=:,@+%" for character in plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
