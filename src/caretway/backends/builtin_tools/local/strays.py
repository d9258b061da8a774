"""Kills processes that left their command's process group (`setsid`, daemons) and would outlive it: found by a marker
variable in /proc, on Linux only, searched again in case they fork.

The mark is in the command's environment, which its descendants inherit. A process that empties its environment is not
found; SECURITY.md says so.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from typing import Final

MARK: Final = "CARETWAY_CALL"
ROUNDS: Final = 20
"""How often to search again: a process may have forked during the search."""
PAUSE_S: Final = 0.01


def end_strays(call: str) -> int:
    """Kill all processes with this mark. Returns how many there were."""
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
    """A zombie only waits for its parent and cannot be killed."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
