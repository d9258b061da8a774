"""Resident memory of a process in bytes, from /proc (Linux); None on other systems, or after the process has ended."""

import os
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(process: int | str = "self") -> int | None:
    try:
        return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None
