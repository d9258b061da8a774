"""Keeping this process's environment from the commands it runs.

A command does not inherit secrets, and could still read them in /proc/$PPID/environ. A process that is not dumpable has
no such files for others of the same user; nor can it be traced, and it leaves no core. Linux only; root sees everything.
"""

import ctypes
import sys
from typing import Final

_SET_DUMPABLE: Final = 4


def hide_from_children() -> bool:
    """True when it was done."""
    if sys.platform != "linux":
        return False
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False  # a libc without it
