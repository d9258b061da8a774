"""`caretway status`: the backend that would be used, the account, its credentials and their expiry; the exit code says
whether the user is signed in. `--cluster` shows the gateways of a cluster (`cluster_status.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from ..config import Settings, hosts
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import log_to_stderr, remark, say, shown_width
from .process import run as run_loop
from .quota import ask_quota, quota_rows
from .serve import EACH_ITS_OWN, STANDINGS
from .terminal import Style, pairs, style_for

if TYPE_CHECKING:
    from ..accounts.account import Account
    from ..dashboard.health import Finding

NAME: Final = "status"
SUMMARY: Final = "show the backend, who is signed in and until when"
DESCRIPTION: Final = (
    "Show which backend `caretway serve` would use with the same settings, and\n"
    "whether it is signed in.\n"
    "With --cluster: the gateways of a cluster, and what they have used.\n"
    "Exit code: 0 signed in, or clients sign in themselves; 1 not signed in or not\n"
    "reachable; 2 a setting is wrong. With --cluster: 1 without a gateway or Redis."
)
WITH_OUR_CREDENTIALS: Final = ("agent", "sdk")
"""Backends that use the credentials in the settings or from `caretway login`."""
NO_EXPIRY: Final = "no expiry known"
_REPLACE_IT: Final = "put a new one there, or take it out and run `caretway login`"
EXAMPLES: Final = """\
examples:
  caretway status
  caretway status --backend agent
  caretway status --json | jq .signed_in
  caretway status --cluster
"""


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """The account and its credentials; nothing is set for backends with their own sign-in."""

    account: str | None = None
    """The signed-in account, if known."""
    credential: str | None = None
    """The kind and source of the credentials."""
    expires: str | None = None
    """When the access token expires, in UTC. None if unknown, as for an API key."""
    renewal: str | None = None
    """Why the token is not renewed before it expires, and what to type. None if it is renewed."""
    over: bool = False
    """The sign-in is not renewed, and its token has expired."""


@dataclass(frozen=True, slots=True)
class Report:
    backend: str
    standing: str
    signed_in: bool | None
    detail: str
    url: str | None = None
    """The API's address, for backends that connect to it themselves."""
    facts: AccountFacts = AccountFacts()
    passthrough: bool = False
    """Every client sends its own Cursor API key."""
    quota: dict[str, Any] | None = None
    """The quota in the format of `/caretway/v1/account`; None if not signed in."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument(
        "--cluster",
        nargs="?",
        const="",
        metavar="REDIS_URL",
        help="Show the gateways of a cluster instead: of this Redis, or of the one in the settings.",
    )
    add_setting_flags(parser, (*REACHING_CURSOR, "cluster_name", "cluster_key_file", "cluster_ca"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments, {"cluster": arguments.cluster} if arguments.cluster else {})
    if arguments.cluster is not None:
        from .cluster_status import show

        return show(settings, as_json=arguments.json)
    log_to_stderr("warning")
    from .doctor import check_gateways

    report = run_loop(_ask(settings))
    running = check_gateways(settings.data_dir, report.backend)
    if arguments.json:
        say([json.dumps(as_json(report, running), indent=2)])
    else:
        say(as_lines(report, style_for(sys.stdout), shown_width(sys.stdout)))
        remark(f"gateway: {one.detail}. {one.hint}" for one in running if not one.ok)
    return 0 if report.signed_in or report.passthrough else 1


async def _ask(settings: Settings) -> Report:
    from ..upstream import open_backend, passes, without_credentials

    if passes(settings):
        async with open_backend(without_credentials(settings)) as backend:
            return Report(backend.name, backend.standing, False, EACH_ITS_OWN, hosts(settings).api, passthrough=True)
    async with open_backend(settings) as backend:
        status = await backend.status()
        quota = await ask_quota(backend) if status.signed_in else None
        known = backend.name in WITH_OUR_CREDENTIALS
        facts = account_facts(settings, backend.name) if known else AccountFacts()
        url = hosts(settings).api if backend.name == "agent" else None
        return Report(backend.name, backend.standing, status.signed_in, status.detail, url, facts, quota=quota)


def as_json(report: Report, gateways: Sequence[Finding]) -> dict[str, Any]:
    """The JSON of `--json`. `gateways`: a finding of `doctor` for each running gateway."""
    facts = asdict(report.facts)
    del facts["over"]
    plain = asdict(report) | facts
    del plain["facts"]
    return plain | {"gateways": [structs.asdict(one) for one in gateways]}


def account_facts(settings: Settings, backend: str = "agent") -> AccountFacts:
    """The account, its credentials and their expiry. Call this after `backend.status`, which may renew the token."""
    from ..accounts.account import Account, term, utc_text
    from ..upstream import holder, sign_ins

    if backend == "sdk":  # it accepts only an API key
        held = holder(replace(settings, access_token=None))
        account = Account(api_key=held.api_key, who=held.who) if held.api_key else Account()
    else:
        account = holder(settings)
    if settings.access_token and backend != "sdk":
        credential: str | None = f"access token ({settings.origin('access_token')})"
    elif settings.api_key:
        credential = f"API key ({settings.origin('api_key')})"
    elif account.access_token or account.renewable:
        kind = "API key" if account.api_key and not account.refresh_token else "sign-in"
        credential = f"{kind} ({sign_ins(settings).place})"
    else:
        credential = None
    ends_at = term(account.access_token, account.received_at).ends_at if account.access_token else inf
    until = utc_text(ends_at) if isfinite(ends_at) else None
    now = time.time()
    if settings.access_token and backend != "sdk":
        renewal = f"tokens of the settings are not renewed: {_REPLACE_IT}" if until else None
    else:
        renewal = not_renewed(account, now)
    return AccountFacts(account.name or None, credential, until, renewal, renewal is not None and ends_at <= now)


def not_renewed(account: Account, now: float) -> str | None:
    from ..accounts.account import utc_text

    again = "run `caretway login`"
    if account.copied_from:
        again += f", or sign in again with the program that keeps {account.copied_from}"
    if account.dead(now):
        return f"Cursor refused it ({utc_text(account.refused_at)}): {again}"
    return f"nothing is there to renew it with: {again}" if account.access_token and not account.renewable else None


def as_lines(report: Report, style: Style, screen: int = 0) -> list[str]:
    words = {True: style.good("yes"), False: style.bad("no"), None: style.careful("unknown")}
    rows = [
        ("backend", f"{report.backend} ({STANDINGS[report.standing]})"),
        ("signed in", "not here" if report.passthrough else words[report.signed_in]),
    ]
    if report.detail:
        rows.append(("detail", report.detail))
    facts = report.facts
    until = facts.expires or (NO_EXPIRY if facts.credential else None)
    more = (
        ("account", facts.account),
        ("with", facts.credential),
        ("until", until),
        ("renewal", facts.renewal),
        ("url", report.url),
    )
    rows += [(label, value) for label, value in more if value]
    if report.quota is not None:
        rows += quota_rows(report.quota)
    return pairs(rows, style, indent="", screen=screen)
