"""Findings about the health of a gateway. The first section checks this machine alone, for `caretway doctor` too; the
second is what the dashboard shows of the running gateway. Each finding says what to type next. `cli/doctor.py` has the
checks that need no running gateway.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from ..config import Settings
from ..config.data_dir import Verdict, look
from ..core.errors import KEYS_PAGE
from ..core.turn import BackendStatus

if TYPE_CHECKING:
    from ..mcp.bridge import McpBridge
    from .notes import PageNotes
    from .now import GatewayFacts

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
    from ..usage.writing import (  # imported late: `status` has findings, but none about a ledger
        FILE_NAME,
        reading_ledger,
    )

    path = settings.data_dir / FILE_NAME
    if not settings.ledger_max_age:
        return Finding("ledger", True, "usage is not kept: ledger_max_age is 0")
    if not os.path.lexists(path):
        return Finding("ledger", True, f"{path} (not created yet)")
    if shutil.disk_usage(path.parent).free < FULL_BYTES:
        return Finding("ledger", False, f"the disk of {path} is full: usage is not kept", "Free some space.")
    try:
        with reading_ledger(settings.data_dir) as ledger:
            if whole and (found := ledger.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(found)
    except sqlite3.Error as failure:
        return Finding("ledger", False, f"{path}: {failure}", f"Move it away: mv {path} {path}.old")
    if not os.access(path, os.W_OK):
        return Finding("ledger", False, f"{path} cannot be written: usage is not kept", f"Run: chmod u+w {path}")
    return Finding("ledger", True, f"{path}, {path.stat().st_size / 2**20:.1f} MiB; see `caretway usage`")


# ---- the running gateway


def account_findings(facts: "GatewayFacts", status: BackendStatus, models: int) -> list[Finding]:
    """Findings from the last known status of backend, account and model list."""
    found = [Finding("backend", True, f"{facts.backend} ({facts.standing})")]
    if facts.standing == "simulated":
        found.append(check_simulated(facts.simulator_asked))
    elif not status.reachable or status.signed_in is None:
        found.append(Finding("account", False, status.detail or "Cursor cannot be reached", "Run `caretway doctor`."))
    else:
        detail = status.detail or ("signed in" if status.signed_in else "not signed in")
        found.append(Finding("account", status.signed_in, detail, "" if status.signed_in else "Run `caretway login`."))
    found.append(Finding("models", models > 0, f"{models} are listed", "" if models else "Run `caretway doctor`."))
    return found


def mcp_findings(servers: Sequence[dict[str, object]]) -> list[Finding]:
    return [
        Finding(
            "MCP",
            False,
            f"{one['name']} is {one['state']}: {one['detail']}",
            # other findings name the command in their detail
            "" if one["sign_in"] else "See `caretway mcp`, or restart it here.",
        )
        for one in servers
        if one["state"] not in ("connected", "connecting")
    ]


def health_view(
    findings: Sequence[Finding], servers: "McpBridge | None", notes: "PageNotes", live: dict[str, Any]
) -> dict[str, Any]:
    listed = servers.described_servers() if servers is not None else []
    return {
        "findings": [asdict(one) for one in (*findings, *mcp_findings(listed))],
        "mcp": {"enabled": servers is not None, "servers": listed},
        "refused": notes.refused,
        "recoveries": list(notes.recoveries)[::-1],
        "live": live,
    }


def live_account(answered: tuple[str, str, float] | None, receipt: dict[str, Any] | None) -> dict[str, Any]:
    if answered is None:
        says = "No account of Cursor has answered here yet. Try one: caretway prove"
        return {"answered": False, "last": None, "receipt": receipt, "says": says}
    backend, model, at = answered
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    last = {"at": at, "backend": backend, "model": model}
    return {
        "answered": True,
        "last": last,
        "receipt": receipt,
        "says": f"Cursor answered last on {when}: {backend}, {model}.",
    }
