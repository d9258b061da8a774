"""Hides this process's environment from the commands that local tools run (not dumpable: no /proc/PID/environ, no
ptrace, no core dump). Linux only.

A command does not inherit secrets, but could still read them in /proc/$PPID/environ. When a process is not dumpable,
others of the same user cannot read that file or trace the process, and it leaves no core dump. Linux only; root still
sees everything.
"""

import ctypes
import sys
from typing import Final

_SET_DUMPABLE: Final = 4


def hide_from_children() -> bool:
    """True when it worked."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False  # a libc without it
