"""The property list for launchd (macOS): started at login, restarted after a crash, its log in a file that the gateway
rotates. Pure.
"""

import plistlib
from pathlib import Path

from .definition import LABEL, ServiceDefinition


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
