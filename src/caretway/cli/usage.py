"""`caretway usage`: usage and cost by hour, day, model, key, client, conversation, reason or kind, as a table, JSON or
CSV, with the quota, a chart, and reasons of replays. `--forget` empties the ledger.

It reads the ledger's file, so no gateway needs to run. Cursor is asked only for the quota and its list of events.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from ..config import ConfigError, Settings
from ..core.errors import GatewayError
from .flags import REACHING_CURSOR, add_setting_flags, settings_from
from .process import CommandFailed, log_to_stderr, say
from .process import run as run_loop
from .terminal import Style, levels_for, style_for, terminal_width

if TYPE_CHECKING:
    from ..core.account_usage import UsageEvents
    from ..usage.prices import PriceList
    from ..usage.queries import By, EventCost, LedgerQueries, Span

NAME: Final = "usage"
SUMMARY: Final = "show what was used, what it cost and what is left"
DESCRIPTION: Final = (
    "Show what the gateway's clients have used, from its ledger, and what is left of\n"
    "the plan. Tokens are those that Cursor counted; a run that it did not report\n"
    "stands as unreported, and nothing is guessed."
)
EXAMPLES: Final = """\
examples:
  caretway usage                        today, by model
  caretway usage week --by day
  caretway usage month --by key
  caretway usage --since 2026-11-01 --by conversation
  caretway usage month --json | jq .total
  caretway usage --forget               forget everything in the ledger
"""
GROUPS: Final = ("hour", "day", "model", "key", "client", "conversation", "reason", "kind")
SHOWN_ROWS: Final = 20
"""The maximum number of groups in a table; JSON and CSV have all groups."""
HOURS_UP_TO_S: Final = 50 * 3600.0
"""Longer spans are shown by day."""
MAX_SLOTS: Final = 62
_PERIODS: Final = ("today", "week", "month", "all")
NAMED_UNPRICED: Final = 3
"""The number of models without a price that are named."""
_SINCE: Final = re.compile(r"(\d{1,4})([hdw])")
_HOURS: Final = {"h": 1, "d": 24, "w": 168}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "caretway usage [today|week|month|all] [flags]"
    parser.add_argument("period", nargs="?", choices=_PERIODS, default=None, help="Which time [default: today].")
    parser.add_argument("--by", choices=GROUPS, default="model", help="What to group by [default: model].")
    parser.add_argument("--since", metavar="WHEN", help="From a day (2026-11-01) or so long ago (36h, 7d, 2w) on.")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="Print JSON.")
    output.add_argument("--csv", action="store_true", help="Print the groups as CSV.")
    parser.add_argument("--no-quota", action="store_true", help="Do not ask Cursor what is left.")
    parser.add_argument("--forget", action="store_true", help="Delete all rows of the ledger.")
    add_setting_flags(parser, (*REACHING_CURSOR, "prices"))


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    log_to_stderr("warning")
    path = ledger_path(settings)
    if arguments.forget:
        return _forget(path)
    since, title = span_of(arguments.period, arguments.since, datetime.now())
    prices = price_list(settings)
    from ..usage.queries import LedgerQueries, Span, event_cost
    from ..usage.writing import reading_ledger

    asks = not (arguments.csv or arguments.no_quota)
    quota, events = run_loop(_quota(settings, since)) if asks else (None, None)
    with _readable(path), reading_ledger(settings.data_dir) as db:
        span = Span(since, time.time() + 1)
        listed = event_cost(db, span, events) if events is not None else None
        report = UsageReport(LedgerQueries(db, prices.find), span, arguments.by, prices, quota, listed)
        if arguments.json:
            sys.stdout.writelines(report.as_json())
        elif arguments.csv:
            sys.stdout.writelines(report.as_csv())
        else:
            terminal = sys.stdout.isatty()
            width = terminal_width() if terminal else 80
            levels = levels_for(sys.stdout) if terminal else ""
            say(report.as_lines(title, style_for(sys.stdout), width, levels))
    return 0


def ledger_path(settings: Settings) -> Path:
    from ..usage.writing import FILE_NAME

    return settings.data_dir / FILE_NAME


def price_list(settings: Settings) -> PriceList:
    from ..usage.prices import PriceList, read_prices

    try:
        return PriceList(read_prices(settings.prices or {}))
    except ValueError as wrong:
        raise ConfigError("prices", settings.origin("prices"), str(wrong)) from wrong


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Converts database errors to CommandFailed: any query may find a damaged page."""
    try:
        yield
    except sqlite3.Error as failure:
        raise CommandFailed(f"{path} cannot be read: {failure}") from failure


def _forget(path: Path) -> int:
    from ..usage.writing import forget

    try:
        responses, runs = forget(path) if path.exists() else (0, 0)
    except sqlite3.Error as failure:
        raise CommandFailed(f"{path} cannot be emptied: {failure}") from failure
    say([f"Forgot {responses} responses and {runs} runs."])
    return 0


async def _quota(settings: Settings, since: float) -> tuple[dict[str, Any], UsageEvents | None]:
    """The quota and the cost of single runs since then, if Cursor reports them."""
    from ..core.account_usage import unknown_account
    from ..upstream import open_backend, passes
    from .quota import ask_events, ask_quota

    if passes(settings):
        return unknown_account("every client has an account of its own.", time.time()), None
    try:
        async with open_backend(settings) as backend:
            quota = {"backend": backend.name, **await ask_quota(backend)}
            if not quota["known"]:
                return quota, None
            seat = quota["team"]
            return quota, await ask_events(backend, since, seat["id"] if seat else None)
    except GatewayError as failure:
        return unknown_account(str(failure), time.time()), None


def span_of(period: str | None, since: str | None, now: datetime) -> tuple[float, str]:
    """(unix seconds, description). Days are those of `now`'s time zone, by default the machine's, including changes of
    daylight saving time."""
    if since is not None:
        if period is not None:
            raise CommandFailed("--since and a period exclude each other", "leave one of them out", exit_code=2)
        return _since(since, now)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "week":
            return (midnight - timedelta(days=6)).timestamp(), "the last seven days"
        case "month":
            return midnight.replace(day=1).timestamp(), f"{now:%B %Y}"
        case "all":
            return 0.0, "all that is kept"
        case _:
            return midnight.timestamp(), f"today, {now:%Y-%m-%d}"


def _since(text: str, now: datetime) -> tuple[float, str]:
    if found := _SINCE.fullmatch(text.strip()):
        return now.timestamp() - int(found[1]) * _HOURS[found[2]] * 3600, f"since {text.strip()} ago"
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError:
        raise CommandFailed(
            f"--since {text!r} is no time", "use a day (2026-11-01) or 36h, 7d, 2w", exit_code=2
        ) from None
    if day.tzinfo is None:
        day = day.replace(tzinfo=now.tzinfo)
    return day.timestamp(), f"since {text.strip()}"


class UsageReport(Struct, frozen=True):
    book: LedgerQueries
    span: Span
    by: Any
    prices: PriceList
    quota: dict[str, Any] | None
    listed: EventCost | None = None

    def as_lines(self, title: str, style: Style, width: int, levels: str) -> list[str]:
        """The report for a terminal. `levels`: the chart characters; empty for no charts."""
        from ..usage.prices import age_days
        from ..usage.queries import Totals
        from . import usage_view as view
        from .quota import quota_lines, quota_title

        lines: list[str] = []
        if self.quota is not None:
            lines += [style.bold(quota_title(self.quota)), *quota_lines(self.quota, style), ""]
        lines.append(style.bold(f"Usage: {title}, by {self.by}"))
        rows = list(self.book.totals(self.span, self.by, SHOWN_ROWS + 1))
        if not rows:
            return [*lines, "  nothing was used"]
        total = reduce(Totals.plus, rows, Totals())
        if len(rows) > SHOWN_ROWS:
            (total,) = self.book.totals(self.span, "all")
        lines += view.table(rows[:SHOWN_ROWS], total, self.by, style, width, bars=bool(levels))
        if len(rows) > SHOWN_ROWS:
            lines.append(style.dim(f"the {SHOWN_ROWS} largest; --json and --csv have all"))
        if levels:
            lines += self._over_time(style, width, levels)
        unpriced = self.book.unpriced(self.span, NAMED_UNPRICED) if total.unpriced else []
        cost = view.cost_lines(total, age_days(time.time()), unpriced, own=bool(self.prices.own))
        cost += view.event_lines(self.listed) if self.listed is not None else []
        lines += view.paragraph("Cost", cost, style, width)
        lines += view.paragraph("Errors", view.failure_lines(total), style, width)
        lines += view.paragraph("Saved by sessions", list(filter(None, [view.saved_line(total)])), style, width)
        if replays := self.book.replays(self.span):
            lines += ["", style.bold("Why the history was sent again"), *view.replay_lines(replays, style)]
        return lines

    def _over_time(self, style: Style, width: int, levels: str) -> list[str]:
        from ..usage.queries import Totals, slots
        from . import usage_view as view

        by: By = "hour" if self.span.until - self.span.since <= HOURS_UP_TO_S else "day"
        found = {row.group: row for row in self.book.totals(self.span, by)}
        names = slots(self.span, by, MAX_SLOTS) or list(found)[-MAX_SLOTS:]
        return view.over_time([found.get(name, Totals(name)) for name in names], by, style, width, levels)

    def as_json(self) -> Iterator[str]:
        """Yields the JSON in pieces, because there may be many groups."""
        from ..usage.prices import AS_OF, SOURCE, age_days
        from ..usage.queries import Totals, figures

        head = {
            "since": self.span.since,
            "until": self.span.until,
            "by": self.by,
            "quota": self.quota,
            "events": None if self.listed is None else asdict(self.listed),
            "prices": {
                "source": SOURCE,
                "as_of": AS_OF.isoformat(),
                "age_days": age_days(time.time()),
                "own": sorted(self.prices.own),
            },
            "replays": [structs.asdict(one) for one in self.book.replays(self.span)],
        }
        yield json.dumps(head, indent=2)[:-2] + ',\n  "rows": ['
        separator, total = "\n    ", Totals()
        for row in self.book.totals(self.span, self.by):
            yield separator + json.dumps({self.by: row.group, **figures(row)}, ensure_ascii=False)
            separator, total = ",\n    ", total.plus(row)
        yield f'\n  ],\n  "total": {json.dumps(figures(total))}\n}}\n'

    def as_csv(self) -> Iterator[str]:
        from ..usage.queries import as_csv

        return as_csv(self.by, self.book.totals(self.span, self.by))
