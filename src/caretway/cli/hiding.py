"""Hides this process's environment from the commands of local tools by making the process not dumpable. Linux only.

A command inherits no secrets, but could read them in /proc/$PPID/environ. Other processes of the same user cannot read
that file of a process that is not dumpable, nor trace it, and it leaves no core dump. Root still sees everything.
"""

import ctypes
import sys
from typing import Final

_SET_DUMPABLE: Final = 4


def hide_from_children() -> bool:
    """Returns whether the process is hidden."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False  # libc has no prctl
