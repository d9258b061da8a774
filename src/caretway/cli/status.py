"""`caretway status`: which way to Cursor would be used, and whether it is signed in."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from typing import Final

from ..config import Settings
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import log_to_stderr, remark, say
from .process import run as run_loop
from .serve import STANDINGS
from .terminal import Style, pairs, style_for

NAME: Final = "status"
SUMMARY: Final = "show the backend and whether it is signed in"
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
    from ..app import open_backend

    async with open_backend(settings) as backend:
        status = await backend.status()
        url = settings.agent_url if backend.name == "agent" else None
        return Report(backend.name, backend.standing, status.signed_in, status.detail, url)


def as_lines(found: Report, style: Style) -> list[str]:
    rows = [
        ("backend", f"{found.backend} ({STANDINGS[found.standing]})"),
        ("signed in", style.good("yes") if found.signed_in else style.bad("no")),
    ]
    if found.detail:
        rows.append(("detail", found.detail))
    if found.url:
        rows.append(("url", found.url))
    return pairs(rows, style, indent="")
