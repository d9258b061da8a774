"""`caretway status`: the backend that would be used, the account, its credentials and their expiry; the exit code says
whether the user is signed in. `--cluster` shows the gateways of a cluster (`cluster_status.py`).
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from .. import __version__
from ..config import SETTINGS, Settings, hosts
from ..dashboard.local_checks import Finding
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import log_to_stderr, remark, say, shown_width
from .process import run as run_loop
from .quota import ask_quota, quota_rows
from .running import RunningGateway, answers, is_another_process, noted_gateways
from .serve import EACH_ITS_OWN, STANDINGS
from .terminal import Style, pairs, style_for

if TYPE_CHECKING:
    from ..accounts.account import Account

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
OF_CLUSTER: Final = ("cluster_name", "cluster_key_file", "cluster_ca")
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
class Report:
    backend: str
    standing: str
    signed_in: bool | None
    detail: str
    url: str | None
    """The API's address, for backends that connect to it themselves."""
    account: str | None = None
    """The signed-in account, if known. Like the next two fields, unset for backends with their own sign-in."""
    credential: str | None = None
    """The kind and source of the credentials."""
    expires: str | None = None
    """When the access token expires, in UTC. None if unknown, as for an API key."""
    renewal: str | None = None
    """Why the token is not renewed before it expires, and what to type. None if it is renewed."""
    passthrough: bool = False
    """Every client sends its own Cursor API key."""
    gateways: list[dict[str, Any]] = field(default_factory=list)
    """The running gateways with the findings of `doctor`."""
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
    of_cluster = [setting for setting in SETTINGS if setting.name in OF_CLUSTER]
    add_setting_flags(parser, (*REACHING_CURSOR, *of_cluster))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments, {"cluster": arguments.cluster} if arguments.cluster else {})
    if arguments.cluster is not None:
        from .cluster_status import show

        return show(settings, as_json=arguments.json)
    log_to_stderr("warning")
    report = run_loop(_ask(settings))
    running = check_gateways(settings.data_dir, report.backend)
    report = replace(report, gateways=[structs.asdict(one) for one in running])
    if arguments.json:
        say([json.dumps(asdict(report), indent=2)])
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
        report = Report(backend.name, backend.standing, status.signed_in, status.detail, None, quota=quota)
        if backend.name not in WITH_OUR_CREDENTIALS:
            return report
        facts = account_facts(settings, backend.name)
        return replace(
            report,
            url=hosts(settings).api if backend.name == "agent" else None,
            account=facts.account,
            credential=facts.credential,
            expires=facts.expires,
            renewal=facts.renewal,
        )


@dataclass(frozen=True, slots=True)
class AccountFacts:
    account: str | None
    credential: str | None
    expires: str | None
    renewal: str | None = None
    """Why the sign-in is not renewed, and what to type."""
    over: bool = False
    """The sign-in is not renewed, and its token has expired."""


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
    until = report.expires or (NO_EXPIRY if report.credential else None)
    more = (
        ("account", report.account),
        ("with", report.credential),
        ("until", until),
        ("renewal", report.renewal),
        ("url", report.url),
    )
    rows += [(label, value) for label, value in more if value]
    if report.quota is not None:
        rows += quota_rows(report.quota)
    return pairs(rows, style, indent="", screen=screen)


# ---- doctor gateways

# Findings of `doctor` and `status` about running gateways: an old version, another backend than the current settings
# choose, simulated answers despite a sign-in; and whether a live account has ever answered.

_SIMULATOR: Final = "simulator"


def check_gateways(data_dir: Path, backend: str) -> list[Finding]:
    """`backend`: the backend that `caretway serve` would use now; empty if it would not start."""
    asked = [(note, answers(note.url)) for note in noted_gateways(data_dir)]
    return [judged(note, backend, alive=alive) for note, alive in asked if alive or not is_another_process(note)]


def judged(note: RunningGateway, backend: str, *, alive: bool, version: str = __version__) -> Finding:
    """The finding about a running gateway. Pure."""
    what = f"{note.url}, backend {note.backend}, version {note.version}, process {note.pid}"
    again = f"Stop it (kill {note.pid}, or Ctrl-C where it runs), then start it again: caretway serve"
    if not alive and note.url.startswith("http:"):
        return Finding("gateway", False, f"does not answer: {what}", again)
    if note.launched:
        return Finding("gateway", True, f"runs until the client that it was started for ends: {what}")
    if note.version != version:
        return Finding("gateway", False, f"is of another version than this one ({version}): {what}", again)
    if note.backend == _SIMULATOR and backend not in ("", _SIMULATOR):
        text = f"its answers are simulated, and `{backend}` could be used now: {what}"
        return Finding("gateway", False, text, again)
    if backend and note.backend != backend:
        return Finding("gateway", True, f"uses another backend than these settings choose (`{backend}`): {what}")
    simulated = "its answers are simulated: " if note.backend == _SIMULATOR else "runs: "
    return Finding("gateway", True, simulated + what)


def check_history(data_dir: Path) -> Finding:
    """Whether a Cursor account has ever answered here, which proves more than any check."""
    answered = last_answer(data_dir)
    if answered is None:
        return Finding("history", True, "no account of Cursor has answered here yet")
    backend, model, at = answered
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    return Finding("history", True, f"last answer of Cursor: {when}, {backend}, {model}")


def last_answer(data_dir: Path) -> tuple[str, str, float] | None:
    """(backend, model, time) of the last answer that was not simulated; None without such an answer or a ledger."""
    from ..storage.database import read_database
    from ..usage.queries import last_answer as answered
    from ..usage.writing import FILE_NAME, LEDGER

    try:
        book = read_database(data_dir / FILE_NAME, LEDGER)
        if book is None:
            return None
        with closing(book):
            return answered(book)
    except sqlite3.Error:
        return None
