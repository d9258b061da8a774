"""`caretway status`: which way to Cursor would be used, who is signed in there, and until when."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import inf, isfinite
from typing import Final

from ..config import Settings
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import log_to_stderr, remark, say
from .process import run as run_loop
from .serve import STANDINGS
from .terminal import Style, pairs, style_for

NAME: Final = "status"
SUMMARY: Final = "show the backend, who is signed in and until when"
DESCRIPTION: Final = (
    "Show which backend `caretway serve` would use with the same settings, and whether it is signed in.\n"
    "Exit code: 0 signed in, 1 not signed in or not reachable, 2 a setting is wrong."
)
EXAMPLES: Final = """\
examples:
  caretway status
  caretway status --backend agent
  caretway status --json | jq .signed_in
"""


@dataclass(frozen=True, slots=True)
class Report:
    backend: str
    standing: str
    signed_in: bool
    detail: str
    url: str | None
    """Only for backends that talk to an address of their own."""
    account: str | None = None
    """Who, as far as it is known here; the agent backend only, like the next two."""
    credential: str | None = None
    """What kind of credentials, and where they come from."""
    expires: str | None = None
    """When the access token ends, in UTC; it is renewed before."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_setting_flags(parser, REACHING_CURSOR)


def run(arguments: argparse.Namespace) -> int:
    settings, remarks = settings_from(arguments)
    remark(remarks)
    log_to_stderr("warning")
    found = run_loop(_ask(settings))
    say([json.dumps(asdict(found), indent=2)] if arguments.json else as_lines(found, style_for(sys.stdout)))
    return 0 if found.signed_in else 1


async def _ask(settings: Settings) -> Report:
    from ..ways import open_backend

    async with open_backend(settings) as backend:
        status = await backend.status()
        report = Report(backend.name, backend.standing, status.signed_in, status.detail, None)
        if backend.name != "agent":
            return report
        facts = account_facts(settings)
        return replace(
            report,
            url=settings.agent_url,
            account=facts.account,
            credential=facts.credential,
            expires=facts.expires,
        )


@dataclass(frozen=True, slots=True)
class AccountFacts:
    account: str | None
    credential: str | None
    expires: str | None


def account_facts(settings: Settings) -> AccountFacts:
    """Who, with what, until when. Read after the backend was asked: it may have renewed the token."""
    from ..auth.claims import term
    from ..ways import holder, sign_ins

    account = holder(settings)
    given = next((name for name in ("access_token", "api_key") if getattr(settings, name)), None)
    if settings.auth_mode == "passthrough":
        credential: str | None = "each client's own API key"
    elif given is not None:
        credential = f"{given} ({settings.origin(given)})"
    else:
        credential = f"sign-in ({sign_ins(settings).place})" if account.access_token or account.renewable else None
    ends_at = term(account.access_token, account.received_at).ends_at if account.access_token else inf
    until = datetime.fromtimestamp(ends_at, UTC).isoformat(timespec="seconds") if isfinite(ends_at) else None
    return AccountFacts(account.name or None, credential, until)


def as_lines(found: Report, style: Style) -> list[str]:
    rows = [
        ("backend", f"{found.backend} ({STANDINGS[found.standing]})"),
        ("signed in", style.good("yes") if found.signed_in else style.bad("no")),
    ]
    if found.detail:
        rows.append(("detail", found.detail))
    more = (("account", found.account), ("with", found.credential), ("until", found.expires), ("url", found.url))
    rows += [(label, value) for label, value in more if value]
    return pairs(rows, style, indent="")
