"""Runs shell commands in the workspace: chooses the shell, removes secrets from the environment, gives no terminal and
no input, applies a time limit, returns exit code and output, and ends leftover processes.

Used only with `local_tools = all`. A shell starts in the workspace but is not confined to it: it has the user's
permissions. After the command its whole process group is ended, and on Linux also processes that left the group.
"""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from ....cursor.wire.messages import pb
from ....processes.child import CannotStart, Command
from ....processes.child_group import Finished, run_to_end
from ..execs import fill
from .confine import PathRefused, Workspace, shown
from .texts import share

# ---- Kills processes that left their command's process group (`setsid`, daemons). A marker variable in /proc finds
# them, on Linux only; the search is repeated in case they fork.
#
# The marker is in the command's environment, which its descendants inherit. A process that clears its environment is
# not found; SECURITY.md says so.

MARK: Final = "CARETWAY_CALL"
ROUNDS: Final = 20
"""The maximum number of searches: a process may fork during a search."""
PAUSE_S: Final = 0.01


def end_strays(call: str) -> int:
    """Kill all processes with this marker. Returns their number."""
    if sys.platform != "linux":
        return 0
    ended = 0
    for _ in range(ROUNDS):
        pids = list(_marked(call))
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            break
        ended += len(pids)
        time.sleep(PAUSE_S)
    return ended


def _marked(call: str) -> list[int]:
    needle = f"{MARK}={call}\0".encode()
    pids: list[int] = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # gone, or another user's
            with open(f"/proc/{entry.name}/environ", "rb") as file:
                environment = file.read()
            if needle in environment and not _dead(entry.name):
                pids.append(int(entry.name))
    return pids


def _dead(process: str) -> bool:
    """Whether the process is a zombie, which cannot be killed."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")


SECRETS: Final = (
    "CURSOR_*",
    "CARETWAY_*",
    "*_API_KEY",
    "*_APIKEY",
    "*_TOKEN",
    "*_SECRET",
    "*_SECRET_KEY",
    "*_ACCESS_KEY",
    "*_PASSWORD",
    "*_PASSPHRASE",
)
"""Variables that are hidden from commands."""

QUIET: Final = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Variables that keep programs from waiting for a key press, because there is no terminal."""

SHELLS: Final = frozenset({"bash", "zsh", "sh", "dash", "ksh"})
"""Shells with the syntax that models write; other shells (fish, nu ...) have another syntax."""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not any(fnmatchcase(name.upper(), pattern) for pattern in SECRETS)
    }


def shell_program(environment: Mapping[str, str]) -> str:
    own = environment.get("SHELL", "")
    candidates = ([own] if os.path.basename(own) in SHELLS else []) + ["/bin/bash", "/usr/bin/bash"]
    return next((path for path in candidates if os.access(path, os.X_OK)), "/bin/sh")


def time_limit(args: pb.ShellArgs, most: float) -> float:
    """The time limit in seconds: the model's timeout (in milliseconds), at most the setting."""
    asked = [ms / 1000 for ms in (args.timeout, args.hard_timeout) if ms > 0]
    return min([most, *asked])


def working_directory(workspace: Workspace, path: str) -> str:
    """The absolute path of a directory. Raises PathRefused, NotADirectoryError or another OSError."""
    with workspace.locate(path) as spot:
        if spot.name is None:
            return spot.folder.path
        if spot.found is None:
            raise FileNotFoundError(f"no such directory: {path}")
        raise NotADirectoryError(f"not a directory: {path}")


Result = TypeVar("Result", pb.ShellResult, pb.ShellStream)


class Shell:
    def __init__(
        self, workspace: Workspace, environment: Mapping[str, str], timeout_s: float, output_bytes: int
    ) -> None:
        self._workspace = workspace
        self._program = shell_program(environment)
        self._environment = without_secrets(environment) | QUIET
        self._timeout_s = timeout_s
        self._output_bytes = output_bytes

    async def run(self, args: pb.ShellArgs) -> pb.ShellResult:
        try:
            _, finished = await self._finish(args)
        except PathRefused as refused:
            return _failed(pb.ShellResult(), "rejected", args, refused)
        except PermissionError as denied:
            return _failed(pb.ShellResult(), "permission_denied", args, denied)
        except (OSError, ValueError) as failure:
            return _failed(pb.ShellResult(), "spawn_error", args, failure)
        if finished.timed_out:
            timeout = pb.ShellTimeout(command=args.command, working_directory=args.working_directory)
            timeout.timeout_ms = round(time_limit(args, self._timeout_s) * 1000)
            return pb.ShellResult(timeout=timeout)
        outcome: pb.ShellSuccess | pb.ShellFailure = pb.ShellFailure() if finished.code else pb.ShellSuccess()
        outcome.command, outcome.working_directory = args.command, args.working_directory
        outcome.exit_code, outcome.signal = finished.code, finished.signal
        outcome.stdout, outcome.stderr = _texts(finished, self._output_bytes)
        outcome.execution_time = round(finished.seconds * 1000)
        if isinstance(outcome, pb.ShellFailure):
            return pb.ShellResult(failure=outcome)
        return pb.ShellResult(success=outcome)

    async def stream(self, args: pb.ShellArgs) -> list[pb.ShellStream]:
        """Run the command and return start, output and exit events in the order of a live stream."""
        try:
            cwd, finished = await self._finish(args)
        except PermissionError as denied:
            return [_failed(pb.ShellStream(), "permission_denied", args, denied)]
        except (PathRefused, OSError, ValueError) as failure:  # the stream has no event for an error
            return [_failed(pb.ShellStream(), "rejected", args, failure)]
        stdout, stderr = _texts(finished, self._output_bytes)
        if finished.timed_out:
            limit = time_limit(args, self._timeout_s)
            stderr += f"[the command was stopped: it took longer than {limit:g} seconds]\n"
        events = [pb.ShellStream(start=pb.ShellStreamStart())]
        if stdout:
            events.append(pb.ShellStream(stdout=pb.ShellStreamStdout(data=stdout)))
        if stderr:
            events.append(pb.ShellStream(stderr=pb.ShellStreamStderr(data=stderr)))
        ending = pb.ShellStreamExit(
            code=finished.code,
            cwd=shown(cwd),
            aborted=finished.timed_out,
            local_execution_time_ms=round(finished.seconds * 1000),
        )
        events.append(pb.ShellStream(exit=ending))
        return events

    async def _finish(self, args: pb.ShellArgs) -> tuple[str, Finished]:
        if "\0" in args.command:
            raise ValueError("the command contains a NUL byte")
        cwd = await asyncio.to_thread(working_directory, self._workspace, args.working_directory)
        call = secrets.token_hex(16)
        environment = self._environment | {"PWD": cwd, MARK: call}
        command = Command((self._program, "-c", args.command), cwd, environment)
        limit = time_limit(args, self._timeout_s)
        try:
            return cwd, await run_to_end(command, timeout_s=limit, output_bytes=self._output_bytes)
        except CannotStart as failure:
            raise failure.cause from failure
        finally:
            await asyncio.shield(asyncio.to_thread(end_strays, call))


def _failed(result: Result, variant: str, args: pb.ShellArgs, failure: Exception) -> Result:
    said = failure.strerror if isinstance(failure, OSError) else None
    fill(result, variant, args, said or str(failure))
    return result


def _texts(finished: Finished, limit: int) -> tuple[str, str]:
    room = share(finished.stdout.total, finished.stderr.total, limit)
    return finished.stdout.text(room[0]), finished.stderr.text(room[1])
