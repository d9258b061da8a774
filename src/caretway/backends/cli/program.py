"""The cursor-agent program: finds it (setting, PATH, installer's directory), builds its arguments and an environment
without Caretway's settings, and refuses a model or chat id that looks like an option (argument injection).

`agent` is a generic name, so `cursor-agent` is searched first. Prompts are never arguments.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError

# ---- All limits of the cli backend: processes, queue, line and buffer sizes, silence timeouts, idle time of warm
# processes, age of status and models, retry interval. Values only.

AGAIN_S: Final = 300.0
"""Seconds before a failed ACP or native tools are tried again, because the failure may have been temporary."""


@dataclass(frozen=True, slots=True)
class CliLimits:
    processes: int = 4
    """Processes at once, including warm processes that wait."""
    queue: int = 32
    retry_after: float = 5.0
    line_bytes: int = 16 * 2**20
    buffer_bytes: int = 2**20
    """Bytes of unread events above which the program is paused."""
    exit_grace: float = 2.0
    """Seconds for a process to end after its last line, and for a cancelled prompt to end."""
    progress: float = 90.0
    """Seconds of silence after which a turn fails."""
    tool_progress: float = 600.0
    """The limit of silence while the program runs its own tool."""
    call: float = 30.0
    """Seconds for one answer other than a prompt's, such as a handshake or the model list."""
    idle: float = 300.0
    """Seconds that a warm process waits for its next turn."""
    auth_check: float = 5.0
    auth_fresh: float = 60.0
    models_fresh: float = 600.0
    parked: int = 32
    """Processes that wait for results of a client's tools, in addition to working processes. Above the limit the
    longest waiting process is ended; its history is sent again when its results arrive."""
    max_sessions: int = 64
    """Sessions after which a warm process is ended, because single sessions cannot be closed."""


Mode = Literal["ask", "plan", "agent"]

NAMES: Final = ("cursor-agent", "agent")
INSTALL: Final = "Install it with `curl https://cursor.com/install -fsS | bash`, or set CURSOR_AGENT_BIN."
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_KEPT_BACK: Final = ("CARETWAY_", "KILO_")
"""Prefixes of Caretway's settings, which include secrets and are not passed to the program."""


class Program(Struct, frozen=True):
    path: str
    environment: Mapping[str, str]

    @property
    def build(self) -> tuple[str, int]:
        """The identity of the installed build, which changes when the program updates itself."""
        try:
            return self.path, os.stat(self.path).st_mtime_ns
        except OSError:
            return self.path, 0


def named_program(named: str) -> str:
    """The program for use in any directory: a relative path becomes absolute, from the current directory."""
    expanded = os.path.expanduser(named)
    return os.path.abspath(expanded) if os.path.dirname(expanded) else expanded


def find_program(named: str, environment: Mapping[str, str], *, anywhere: bool = True) -> str | None:
    """The path of the named program; without a name from the PATH or, with `anywhere`, the installer's directory."""
    search = environment.get("PATH")
    if named:
        found = shutil.which(named_program(named), path=search)
        return os.path.abspath(found) if found else None  # the PATH may hold relative directories
    for name in NAMES:
        found = shutil.which(name, path=search)
        if found and (name == NAMES[0] or NAMES[0] in os.path.realpath(found)):  # `agent` may be another program
            return os.path.abspath(found)
    home = environment.get("HOME")
    if anywhere and home:
        return shutil.which(str(Path(home, ".local/bin", NAMES[0])))
    return None


def child_environment(environment: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if not name.startswith(_KEPT_BACK)}
    kept.pop("NODE_OPTIONS", None)  # the program is a Node.js binary that refuses to start with it
    if api_key:
        kept["CURSOR_API_KEY"] = api_key
    return kept


def not_found(named: str) -> GatewayError:
    where = f"`{named}`" if named else "cursor-agent"
    return GatewayError(ErrorKind.UPSTREAM_DOWN, f"{where} is not installed.", hint=INSTALL, code="cli_not_found")


class Work(Struct, frozen=True):
    """One piece of work for the program."""

    model: str
    workspace: str
    mode: Mode
    force: bool
    resume: str = ""


def print_arguments(work: Work) -> tuple[str, ...]:
    resume = ("--resume", work.resume) if work.resume else ()
    return ("-p", "--output-format", "stream-json", "--stream-partial-output", *_common(work), *resume)


def acp_arguments(work: Work) -> tuple[str, ...]:
    """The arguments for ACP. Options precede `acp`; the mode is chosen in the session."""
    return ("--model", work.model, "--workspace", work.workspace, *(("--force",) if work.force else ()), "acp")


def _common(work: Work) -> tuple[str, ...]:
    mode = () if work.mode == "agent" else ("--mode", work.mode)
    force = ("--force",) if work.force and work.mode == "agent" else ()
    return ("--trust", *mode, *force, "--workspace", work.workspace, "--model", work.model)


def safe_chat_id(chat_id: str) -> bool:
    """Whether the id is safe for `--resume`, whose value is optional."""
    return _ID.fullmatch(chat_id) is not None


def checked_model(model: str) -> str:
    """The model's name as an argument. Raises GatewayError if it looks like an option."""
    if model.startswith("-") or "\0" in model:
        raise GatewayError(ErrorKind.MODEL_UNKNOWN, f"There is no model `{model}`.", "See /v1/models.", param="model")
    return model or "auto"
