"""What a service needs to know, and how tightly it is closed in: home read-only unless programs run there
(cursor-agent, MCP servers, local tools), and why. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "caretway"
LABEL: Final = "dev.caretway.gateway"
"""The service's name for launchd."""
WRONG_SETTING: Final = 2
"""Exit code of a start that cannot work, however often it is tried."""


@dataclass(frozen=True, slots=True)
class ServiceDefinition:
    command: Sequence[str]
    data_dir: Path
    stop_s: float
    """How long stopping may take."""
    programs: str = ""
    """Which programs run with the user's files, in words; nobody: empty."""
    config_dir: Path | None = None
    """Where the settings file is, or would be: the dashboard changes it, and replaces it as a whole."""
    log_file: Path | None = None
    """None: the service manager keeps the log."""


def programs_at_home(*, backend: str, local_tools: str, mcp: bool, keyring: bool) -> str:
    """Why the home directory must be writable, or nothing."""
    reasons = [
        ("cursor-agent works in your home directory", backend == "cli"),
        ("the SDK's own process keeps files there", backend == "sdk"),
        ("local tools may write", local_tools == "all"),
        ("MCP servers run with your files", mcp),
        ("the keyring is asked over your desktop's bus", keyring),
    ]
    return "; ".join(reason for reason, holds in reasons if holds)
