"""The dashboard's view of health: findings from within this process, MCP servers with their tools, refused requests,
recoveries, and whether a live account has ever answered.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..core.turn import BackendStatus
from .local_checks import Finding, check_simulated
from .notes import PageNotes
from .now import GatewayFacts

if TYPE_CHECKING:
    from ..mcp.bridge import McpBridge


def account_findings(facts: GatewayFacts, status: BackendStatus, models: int) -> list[Finding]:
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
    findings: Sequence[Finding], servers: "McpBridge | None", notes: PageNotes, live: dict[str, Any]
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
