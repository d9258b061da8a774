"""The cursor-agent program: where it is found (setting, PATH, installer's place), its arguments and environment without
our settings; a model or chat id that looks like an option is refused (argument injection).

`agent` is a generic name, so `cursor-agent` is looked for first. Prompts never travel as arguments.
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
# processes, how long status and models stay fresh, when what failed is tried again. Values only.

AGAIN_S: Final = 300.0
"""When ACP and native tools are tried again that have failed: the program may have been killed, or late."""


@dataclass(frozen=True, slots=True)
class CliLimits:
    processes: int = 4
    """Working at once; warm ones that wait count too."""
    queue: int = 32
    retry_after: float = 5.0
    line_bytes: int = 16 * 2**20
    buffer_bytes: int = 2**20
    """Unread events before the program is made to wait."""
    exit_grace: float = 2.0
    """Between the last line of a turn and the end of its process, and for a cancelled prompt to end."""
    progress: float = 90.0
    """Silence after which a turn is given up."""
    tool_progress: float = 600.0
    """The same while the program runs a tool of its own."""
    call: float = 30.0
    """For one answer other than a prompt's: a handshake, the model list."""
    idle: float = 300.0
    """How long a warm process waits for its next turn."""
    auth_check: float = 5.0
    auth_fresh: float = 60.0
    models_fresh: float = 600.0
    parked: int = 32
    """Processes that wait for the results of a client's tools, beside those that work. The one that waits longest is
    let go for a new one; its history is sent again when its results come."""
    max_sessions: int = 64
    """Sessions that one warm process holds before it is let go: they cannot be closed one by one."""


Mode = Literal["ask", "plan", "agent"]

NAMES: Final = ("cursor-agent", "agent")
INSTALL: Final = "Install it with `curl https://cursor.com/install -fsS | bash`, or set CURSOR_AGENT_BIN."
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_KEPT_BACK: Final = ("CARETWAY_", "KILO_")
"""Our own settings, secrets among them, are no business of another program."""


class Program(Struct, frozen=True):
    path: str
    environment: Mapping[str, str]

    @property
    def build(self) -> tuple[str, int]:
        """Changes when the program updates itself."""
        try:
            return self.path, os.stat(self.path).st_mtime_ns
        except OSError:
            return self.path, 0


def named_program(named: str) -> str:
    """For use in any directory: a relative path is taken from the one in which the gateway was started."""
    expanded = os.path.expanduser(named)
    return os.path.abspath(expanded) if os.path.dirname(expanded) else expanded


def find_program(named: str, environment: Mapping[str, str], *, anywhere: bool = True) -> str | None:
    """The path of the program: as it was named, else on the PATH, else (`anywhere`) where its installer puts it."""
    search = environment.get("PATH")
    if named:
        found = shutil.which(named_program(named), path=search)
        return os.path.abspath(found) if found else None  # the PATH may name directories by relative paths
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
    """Options come before the word. The mode is chosen within the session."""
    return ("--model", work.model, "--workspace", work.workspace, *(("--force",) if work.force else ()), "acp")


def _common(work: Work) -> tuple[str, ...]:
    mode = () if work.mode == "agent" else ("--mode", work.mode)
    force = ("--force",) if work.force and work.mode == "agent" else ()
    return ("--trust", *mode, *force, "--workspace", work.workspace, "--model", work.model)


def safe_chat_id(chat_id: str) -> bool:
    """An empty or odd id must never reach `--resume`, whose value is optional."""
    return _ID.fullmatch(chat_id) is not None


def checked_model(model: str) -> str:
    """A model's name is an argument: it must not look like an option."""
    if model.startswith("-") or "\0" in model:
        raise GatewayError(ErrorKind.MODEL_UNKNOWN, f"There is no model `{model}`.", "See /v1/models.", param="model")
    return model or "auto"
