"""`caretway key new | list | revoke | rename`: keys of the gateway, which clients must then send. For a named key only
the digest is stored; it may expire, have budgets, and be limited to models and a workspace. A key without a name is
printed and not stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from datetime import time as daytime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..config import Settings
from ..config.kinds import duration
from ..usage.budget import EVER, NOTHING_SPENT, BudgetScope, Level, Spent, UsageBudget, notice, parse_budgets, window
from ..usage.charges import KEY_PREFIX
from ..usage.spent_store import kept_cycle, last_uses, spent_since
from .figures import ago, compact, dollars
from .flags import add_setting_flags, settings_from
from .process import CommandFailed, log_to_stderr, remark, say
from .terminal import Style, columns, pairs, style_for, terminal_width

if TYPE_CHECKING:
    from ..cluster.keys import ClusterKeys
    from ..cluster.spent import RedisSpent
    from ..usage.key_file import KeyFile, Keys

if TYPE_CHECKING:
    from ..usage.budget import BillingCycle
    from ..usage.key_file import NamedKey
    from ..usage.spent_store import SpentStore

Found = TypeVar("Found")
_NEW_ONLY: Final = ("name", "expires", "budget", "models", "workspace", "page")

NAME: Final = "key"
SUMMARY: Final = "make, list and revoke keys that clients of the gateway send"
DESCRIPTION: Final = (
    "Keys for the gateway itself; they are not Cursor keys.\n"
    "  new --name NAME   make a key and print it once; only its hash is kept\n"
    "  new               print a key that is kept nowhere, for --api-key-file\n"
    "  list              the keys with a name, their last use and their totals\n"
    "  revoke NAME       the key is refused from the next request on\n"
    "  rename NAME NEW   the same key under another name\n"
    "A running gateway notices every change. As soon as there is a key with a name,\n"
    "clients must send one. With --cluster the keys are those of all its gateways."
)
EXAMPLES: Final = """\
examples:
  caretway key new --name opencode
  caretway key new --name ci --expires 30d --budget runs=50/day
  caretway key new --name anna --models 'claude-*' --budget cents=500/month
  (umask 077; caretway key new > gateway.key)
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "caretway key new|list|revoke|rename [NAME [NEW]] [flags]"
    parser.add_argument("action", choices=tuple(_ACTIONS), help="What to do.")
    parser.add_argument("words", nargs="*", metavar="NAME", help="Only for revoke and rename.")
    parser.add_argument("--name", help="Whom the new key is for: opencode, ci, anna ...")
    parser.add_argument("--expires", metavar="WHEN", help="After a time (30d, 12h), or after a day: 2027-01-31.")
    parser.add_argument(
        "--budget", metavar="B", action="append", default=[], help="As in runs=50/day; may be given several times."
    )
    parser.add_argument("--models", metavar="A,B", help="The models it may use; * stands for any text.")
    parser.add_argument("--workspace", metavar="DIR", help="The only directory it may work in.")
    parser.add_argument("--page", action="store_true", help="It also opens the dashboard.")
    parser.add_argument("--json", action="store_true", help="Print the list as JSON.")
    cluster = ("cluster_name", "cluster_key_file", "cluster_ca")
    add_setting_flags(parser, cluster, shown=("config", "data_dir", "cluster"))


def run(arguments: argparse.Namespace) -> int:
    from ..config.data_dir import close_data_dir
    from ..usage.key_file import KeyFile

    settings = settings_from(arguments)
    log_to_stderr("warning")
    expected = {"revoke": 1, "rename": 2}.get(arguments.action, 0)
    if len(arguments.words) != expected:
        what = {0: "no further words", 1: "the name of a key", 2: "the name of a key and its new name"}[expected]
        raise CommandFailed(f"{arguments.action} takes {what}", "see: caretway key --help", 2)
    given = [flag for flag in _NEW_ONLY if getattr(arguments, flag) not in (None, [], False)]
    for flag in given:  # an empty shell variable must not make an unlimited key
        value = getattr(arguments, flag)
        if value is not True and not all(map(words, [value] if isinstance(value, str) else value)):
            raise CommandFailed(f"--{flag} is empty", "leave it out, or say what is meant", 2)
    if given and arguments.action != "new":
        raise CommandFailed(f"--{given[0]} is for `caretway key new`", exit_code=2)
    if given and not arguments.name:
        raise CommandFailed(f"--{given[0]} is for keys with a name", "add --name NAME", 2)
    close_data_dir(settings.data_dir, settings.origin("data_dir"))
    _ACTIONS[arguments.action](
        arguments, settings, ClusterKeyFile(settings) if settings.cluster else KeyFile(settings.data_dir)
    )
    return 0


def _new(arguments: argparse.Namespace, settings: Settings, file: KeyFile | ClusterKeyFile) -> None:
    from ..server.access import new_key
    from ..usage.key_file import added

    key = new_key()
    if not arguments.name:
        say([key])
        return
    now = time.time()
    expires_at = expiry(arguments.expires, now) if arguments.expires else None
    first = not file.read()
    models, budgets, workspace = (
        words(arguments.models or ""),
        _budgets(arguments.budget),
        _workspace(arguments.workspace),
    )
    file.change(
        lambda keys: added(
            keys,
            key,
            arguments.name,
            now,
            expires_at=expires_at,
            models=models,
            budgets=tuple(map(str, budgets)),
            workspace=workspace,
            page=arguments.page,
        )
    )
    say([key])
    remark([f"this is the key of {arguments.name}; it is shown only once"])
    if first and not settings.gateway_key and not settings.api_key_file:
        remark(["from now on the gateway asks every client for a key"])


def _list(arguments: argparse.Namespace, settings: Settings, file: KeyFile | ClusterKeyFile) -> None:
    from ..usage.spent_store import FILE

    now = time.time()
    if settings.cluster:
        rows = ClusterKeyFile(settings).rows(file.read(), now)
    else:
        rows = read_rows(file.read(), settings.data_dir / FILE, now)
    if arguments.json:
        say([json.dumps(as_json(rows), indent=2)])
    elif rows:
        say(as_table(rows, now, style_for(sys.stdout), terminal_width()))
    else:
        remark(["there is no key with a name; make one with `caretway key new --name NAME`"])


def _revoke(arguments: argparse.Namespace, settings: Settings, file: KeyFile | ClusterKeyFile) -> None:
    from ..usage.key_file import FILE, revoked

    (name,) = arguments.words
    left = file.change(lambda keys: revoked(keys, name))
    remark([f"the key {name} is revoked"])
    if not left and not settings.gateway_key and not settings.api_key_file:
        what = "the keys of the cluster (docs/cluster.md)" if settings.cluster else settings.data_dir / FILE
        remark(
            [
                "it was the last one: every request is refused until there is a new one, also after a restart",
                f"to require no key: stop the gateway, delete {what}, start it again",
            ]
        )


def _rename(arguments: argparse.Namespace, settings: Settings, file: KeyFile | ClusterKeyFile) -> None:
    from ..usage.key_file import renamed

    old, new = arguments.words
    file.change(lambda keys: renamed(keys, old, new))
    remark([f"the key {old} is now called {new}"])


_ACTIONS: Final[dict[str, Callable[[argparse.Namespace, Settings, KeyFile | ClusterKeyFile], None]]] = {
    "new": _new,
    "list": _list,
    "revoke": _revoke,
    "rename": _rename,
}


def words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _budgets(texts: Sequence[str]) -> tuple[UsageBudget, ...]:
    from ..usage.budget import BudgetScope, parse_budgets

    try:
        found = parse_budgets([word for text in texts for word in words(text)], BudgetScope.KEY)
    except ValueError as problem:
        raise CommandFailed(str(problem), exit_code=2) from None
    if any(budget.scope is BudgetScope.EVERYBODY for budget in found):
        raise CommandFailed("a budget for everybody is a setting: --budgets, CARETWAY_BUDGETS", exit_code=2)
    return found


def _workspace(text: str | None) -> str:
    if not text:
        return ""
    path = Path(text).expanduser().resolve()
    if not path.is_dir():
        raise CommandFailed(f"{path} is not an existing directory", exit_code=2)
    return str(path)


def expiry(text: str, now: float) -> float:
    """Reads an expiry as unix seconds; a day counts to its end."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        try:
            after = duration().read(text)
        except ValueError:
            raise CommandFailed(f'"{text}" is no time', "use 30d, 12h or a day as in 2027-01-31", 2) from None
        assert isinstance(after, float)
        return now + after
    ends = datetime.combine(day + timedelta(days=1), daytime()).timestamp()
    if ends <= now:
        raise CommandFailed(f"{text} is in the past", exit_code=2)
    return ends


# ---- a cluster's keys


class ClusterKeyFile:
    """The named keys of a cluster in Redis, with the interface of `KeyFile`. Blocks: each call opens its own
    connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(self) -> Keys:
        async def work(cluster: ClusterKeys, _: RedisSpent) -> Keys:
            return await cluster.read() or ()

        return self._run(work)

    def change(self, work: Callable[[Keys], Keys]) -> Keys:
        return self._run(lambda cluster, _: cluster.change(work))

    def rows(self, keys: Sequence[NamedKey], now: float) -> list[KeyRow]:
        """The keys with the usage counted by all gateways."""
        return self._run(lambda _, spent: shared_rows(keys, spent, now))

    def _run(self, work: Callable[[ClusterKeys, RedisSpent], Awaitable[Found]]) -> Found:
        async def run() -> Found:
            from ..cluster.membership import open_keys

            async with AsyncExitStack() as stack:
                return await work(*open_keys(self._settings, stack))

        return asyncio.run(run())


# ---- key list

# `caretway key list`: each key with its last use, its totals and its used budgets; at 80 columns, or as JSON.

_HEAD: Final = ("key", "last used", "runs", "tokens", "cost", "expires")
_LEAST_NAME: Final = 24
_LABEL: Final = 8


@dataclass(frozen=True, slots=True)
class KeyRow:
    key: NamedKey
    total: Spent = NOTHING_SPENT
    used_at: float | None = None
    levels: tuple[Level, ...] = ()


def read_rows(keys: Sequence[NamedKey], file: Path, now: float) -> list[KeyRow]:
    """The keys with their counts."""
    try:
        uses, cycle = last_uses(file), kept_cycle(file)
        return [_row(key, file, uses, now, cycle) for key in sorted(keys, key=lambda one: one.name.lower())]
    except sqlite3.Error as problem:
        raise CommandFailed(f"what the keys have used cannot be read from {file}: {problem}") from problem


async def shared_rows(keys: Sequence[NamedKey], spent: SpentStore, now: float) -> list[KeyRow]:
    """The keys with a cluster's counts, which do not include the last use."""
    cycle, rows = await spent.cycle(), list[KeyRow]()
    for key in sorted(keys, key=lambda one: one.name.lower()):
        scope, levels = f"{KEY_PREFIX}{key.id}", list[Level]()
        for budget in _budget_cells(key):
            span = window(budget.period, now, cycle)
            counted = budget.scope is BudgetScope.KEY
            used = (await spent.spent(scope, span.since)).of(budget.measure) if counted else 0.0
            levels.append(Level(budget, used, span.resets_at if counted else None))
        rows.append(KeyRow(key, await spent.spent(scope, EVER), None, tuple(levels)))
    return rows


def _row(key: NamedKey, file: Path, uses: dict[str, float], now: float, cycle: BillingCycle | None) -> KeyRow:
    scope = f"{KEY_PREFIX}{key.id}"
    levels: list[Level] = []
    for budget in _budget_cells(key):
        if budget.scope is BudgetScope.KEY:
            span = window(budget.period, now, cycle)
            spent = spent_since(file, scope, span.since).of(budget.measure)
            levels.append(Level(budget, spent, span.resets_at))
        else:
            levels.append(Level(budget, 0.0))
    return KeyRow(key, spent_since(file, scope, EVER), uses.get(scope), tuple(levels))


def _budget_cells(key: NamedKey) -> tuple[UsageBudget, ...]:
    try:
        return parse_budgets(key.budgets, BudgetScope.KEY)
    except ValueError as problem:  # the file was edited
        hint = f"make the key again: caretway key revoke {key.name}"
        raise CommandFailed(f"a budget of the key {key.name} cannot be read: {problem}", hint) from None


def as_json(rows: Sequence[KeyRow]) -> dict[str, Any]:
    return {
        "keys": [
            {
                "name": row.key.name,
                "made_at": round(row.key.made_at),
                "expires_at": _rounded(row.key.expires_at),
                "last_used_at": _rounded(row.used_at),
                "runs": row.total.runs,
                "tokens": row.total.tokens,
                "uncached_tokens": row.total.uncached,
                "cents": round(row.total.cents, 4),
                "models": list(row.key.models),
                "workspace": row.key.workspace or None,
                "page": row.key.page,
                "budgets": [
                    {
                        "budget": str(level.budget),
                        "limit": level.budget.limit,
                        "spent": level.spent if level.budget.scope is BudgetScope.KEY else None,
                        "resets_at": _rounded(level.resets_at),
                    }
                    for level in row.levels
                ],
            }
            for row in rows
        ]
    }


def as_table(rows: Sequence[KeyRow], now: float, style: Style, width: int = 80) -> list[str]:
    cells = [_cells(row, now) for row in rows]
    head, *lines = columns(_HEAD, cells, style, right=range(2, 5), width=width, shortened={0: _LEAST_NAME})
    table = [head]
    for row, line in zip(rows, lines, strict=True):
        key = row.key
        details = [("budget", _level(level), _mark(level, style)) for level in row.levels]
        details += [("models", ", ".join(key.models), style.dim), ("works in", key.workspace, style.dim)]
        details.append(("opens", "the dashboard" if key.page else "", style.dim))
        table.append(line if not key.expired(now) else line.removesuffix("expired") + style.bad("expired"))
        for label, text, mark in details:
            table += pairs([(label, text)], Style(), width=_LABEL, screen=width, mark=mark) if text else []
    return table


def _cells(row: KeyRow, now: float) -> tuple[str, ...]:
    key, total = row.key, row.total
    used = "never" if row.used_at is None else ago(now - row.used_at)
    cost = dollars(total.cents) if total.cents else ("?" if total.tokens else "-")
    expires = "expired" if key.expired(now) else _day(key.expires_at) if key.expires_at is not None else ""
    return key.name, used, f"{total.runs:,}", compact(total.tokens), cost, expires


def _mark(level: Level, style: Style) -> Callable[[str], str]:
    return style.bad if level.used_up else style.careful if level.low else style.dim


def _level(level: Level) -> str:
    if level.budget.scope is not BudgetScope.KEY:
        return str(level.budget)
    return f"{notice(level).partition(': ')[2]}"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).date().isoformat()


def _rounded(at: float | None) -> int | None:
    return None if at is None else round(at)
