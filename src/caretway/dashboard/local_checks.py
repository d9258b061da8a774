"""Checks of this machine alone, for `doctor` and the dashboard: a private and writable data directory, disk space, the
ledger. Each finding says what to type next.
"""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from ..config import Settings
from ..config.data_dir import Verdict, look
from ..core.errors import KEYS_PAGE

LOW_DISK: Final = 100 * 1024 * 1024
"""Bytes that should be free for conversations, ledger and logs."""
FULL_BYTES: Final = 2**20
"""With less space than this a ledger cannot grow."""


class Finding(Struct, frozen=True):
    name: str
    ok: bool
    detail: str
    hint: str = ""
    """What to type next."""
    fixed: bool = False
    """`--fix` has repaired it."""


def local_findings(settings: Settings) -> list[Finding]:
    """The findings that the dashboard shows. Blocking."""
    return [check_data_dir(settings.data_dir), *check_space(settings.data_dir), check_ledger(settings)]


def check_simulated(asked_for: bool) -> Finding:
    if asked_for:
        return Finding("account", True, "not signed in: answers are simulated, as asked for")
    detail = "not signed in: answers are simulated"
    return Finding("account", False, detail, f"Run `caretway login`, or set CURSOR_API_KEY to a key from {KEYS_PAGE}.")


def check_data_dir(path: Path) -> Finding:
    """Checks the directory, or the nearest existing one above it."""
    there = next((place for place in (path, *path.parents) if place.exists()), path)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(
            "data directory", False, f"{there} cannot be written to", "Set CARETWAY_DATA_DIR to another one."
        )
    verdict = look(path)
    if verdict is Verdict.FOREIGN:
        hint = f"Choose another --data-dir, or make it yours: sudo chown -R {os.geteuid()} {path}"
        return Finding("data directory", False, f"{path} belongs to another user", hint)
    if verdict in (Verdict.OPEN, Verdict.WRITABLE):
        return Finding("data directory", False, f"{path} is open to other users", f"Close it: chmod 700 {path}")
    return Finding("data directory", True, str(path) if there == path else f"{path} (not created yet)")


def check_space(path: Path, low: int = LOW_DISK) -> list[Finding]:
    """Returns a finding only if space is low."""
    there = next((place for place in (path, *path.parents) if place.exists()), path)
    free = shutil.disk_usage(there).free
    if free >= low:
        return []
    detail = f"only {free // 1024 // 1024} MB are free in {there}: conversations and usage cannot be kept"
    return [Finding("disk", False, detail, "Free some space, or choose another --data-dir.")]


def check_ledger(settings: Settings, *, whole: bool = False) -> Finding:
    """Checks whether usage can be kept, without writing. `whole`: read every page of the file."""
    from ..storage.database import read_database
    from ..usage.writing import FILE_NAME, LEDGER  # imported late: `status` has findings, but none about a ledger

    path = settings.data_dir / FILE_NAME
    if not settings.ledger_max_age:
        return Finding("ledger", True, "usage is not kept: ledger_max_age is 0")
    if not os.path.lexists(path):
        return Finding("ledger", True, f"{path} (not created yet)")
    if shutil.disk_usage(path.parent).free < FULL_BYTES:
        return Finding("ledger", False, f"the disk of {path} is full: usage is not kept", "Free some space.")
    try:
        if (ledger := read_database(path, LEDGER)) is not None:
            with closing(ledger):
                if whole and (found := ledger.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                    raise sqlite3.DatabaseError(found)
    except sqlite3.Error as failure:
        return Finding("ledger", False, f"{path}: {failure}", f"Move it away: mv {path} {path}.old")
    if not os.access(path, os.W_OK):
        return Finding("ledger", False, f"{path} cannot be written: usage is not kept", f"Run: chmod u+w {path}")
    return Finding("ledger", True, f"{path}, {path.stat().st_size / 2**20:.1f} MiB; see `caretway usage`")
