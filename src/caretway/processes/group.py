"""Starts a program in a session and process group of its own (vfork, explicit environment), signals the whole group,
and reaps the leader last, so that its process id is not reused. Blocking; standard library only.

`subprocess.Popen` is a vfork on Linux and costs the same however large this process is; uvloop's own subprocesses fork,
which copies its page tables. `os.posix_spawn` cannot change the directory; bench/README.md has the figures.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

_POLL_S = 0.02


def start(
    argv: Sequence[str],
    *,
    cwd: str | None,
    environment: Mapping[str, str],
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
) -> "Group":
    """The program gets this environment and only the three standard descriptors. Raises OSError or ValueError."""
    leader = subprocess.Popen(  # noqa: S603 - what is run is the caller's choice; no shell
        argv,
        cwd=cwd,
        env=dict(environment),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    return Group(leader)


class Group:
    """A running program, the leader of its group. Made by `start`."""

    def __init__(self, leader: "subprocess.Popen[bytes]") -> None:
        self.leader = leader
        self.pid = leader.pid
        self._reaped = False

    def signal(self, number: int) -> None:
        """Signal the whole group; does nothing once the leader is reaped."""
        if self._reaped:
            return
        signal_group(self.pid, number)

    def wait(self) -> None:
        """Block until the leader has ended."""
        if not hasattr(os, "waitid"):
            self.leader.wait()  # macOS before Python 3.13
            return
        with contextlib.suppress(ChildProcessError):  # already reaped
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def ends_within(self, seconds: float) -> bool:
        """Whether the leader ends in this time."""
        until = time.monotonic() + seconds
        while not self._has_ended():
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        return True

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):
            return self.leader.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    def reap(self) -> int:
        """Kill the rest of the group. Returns the leader's exit code, negative for a signal. May be called again."""
        self.signal(signal.SIGKILL)
        code = self.leader.wait()
        self._reaped = True
        return code

    def end(self, grace: float) -> int:
        """SIGTERM to the group, SIGKILL if the leader has not ended after `grace` seconds. Returns its exit code."""
        self.signal(signal.SIGTERM)
        self.ends_within(grace)
        return self.reap()


def signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; or, on macOS, only zombies are left
        os.killpg(group, number)
