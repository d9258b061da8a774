"""Processes that left their command's group (`setsid`, daemons) and would outlive it: found by a mark and ended.

The mark is a variable in the command's environment, which its descendants inherit. Linux only, where /proc shows other
processes' environments. Who empties its environment is not found; SECURITY.md says so.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from typing import Final

MARK: Final = "CARETWAY_CALL"
ROUNDS: Final = 20
"""How often is looked again: a process may have forked while it was looked for."""
PAUSE_S: Final = 0.01


def end_strays(call: str) -> int:
    """Kill whoever has this mark; the number of processes that were told to end."""
    if sys.platform != "linux":
        return 0
    ended = 0
    for _ in range(ROUNDS):
        found = list(_marked(call))
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not found:
            break
        ended += len(found)
        time.sleep(PAUSE_S)
    return ended


def _marked(call: str) -> list[int]:
    needle = f"{MARK}={call}\0".encode()
    found: list[int] = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # gone, or another user's
            with open(f"/proc/{entry.name}/environ", "rb") as file:
                environment = file.read()
            if needle in environment and not _dead(entry.name):
                found.append(int(entry.name))
    return found


def _dead(process: str) -> bool:
    """A zombie waits for its parent and cannot be killed any more."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
