"""What `caretway key list` shows: each key with its last use, its totals and how much of its budgets is used; at 80
columns, or as JSON.

Values in, lines out; only `read_rows` reads files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..usage.budget import EVER, NOTHING_SPENT, BudgetScope, Level, Spent, UsageBudget, notice, parse_budgets, window
from ..usage.charges import KEY_PREFIX
from ..usage.spent_store import kept_cycle, last_uses, spent_since
from .process import CommandFailed
from .terminal import Style, folded

if TYPE_CHECKING:
    from ..usage.budget import BillingCycle
    from ..usage.key_file import NamedKey
    from ..usage.spent_store import SpentStore

NAME_CHARS: Final = 24
_LABEL: Final = 8


@dataclass(frozen=True, slots=True)
class KeyRow:
    key: NamedKey
    total: Spent = NOTHING_SPENT
    used_at: float | None = None
    levels: tuple[Level, ...] = ()


def read_rows(keys: Sequence[NamedKey], file: Path, now: float) -> list[KeyRow]:
    """The keys with what is counted of them."""
    try:
        uses, cycle = last_uses(file), kept_cycle(file)
        return [_row(key, file, uses, now, cycle) for key in sorted(keys, key=lambda one: one.name.lower())]
    except sqlite3.Error as problem:
        raise CommandFailed(f"what the keys have used cannot be read from {file}: {problem}") from problem


async def shared_rows(keys: Sequence[NamedKey], spent: SpentStore, now: float) -> list[KeyRow]:
    """Rows of keys counted by a cluster. The last use of a key is not recorded there."""
    cycle, rows = await spent.cycle(), list[KeyRow]()
    for key in sorted(keys, key=lambda one: one.name.lower()):
        scope, levels = f"{KEY_PREFIX}{key.id}", list[Level]()
        for budget in _budgets(key):
            span = window(budget.period, now, cycle)
            counted = budget.scope is BudgetScope.KEY
            used = (await spent.spent(scope, span.since)).of(budget.measure) if counted else 0.0
            levels.append(Level(budget, used, span.resets_at if counted else None))
        rows.append(KeyRow(key, await spent.spent(scope, EVER), None, tuple(levels)))
    return rows


def _row(key: NamedKey, file: Path, uses: dict[str, float], now: float, cycle: BillingCycle | None) -> KeyRow:
    scope = f"{KEY_PREFIX}{key.id}"
    levels: list[Level] = []
    for budget in _budgets(key):
        if budget.scope is BudgetScope.KEY:
            span = window(budget.period, now, cycle)
            spent = spent_since(file, scope, span.since).of(budget.measure)
            levels.append(Level(budget, spent, span.resets_at))
        else:
            levels.append(Level(budget, 0.0))
    return KeyRow(key, spent_since(file, scope, EVER), uses.get(scope), tuple(levels))


def _budgets(key: NamedKey) -> tuple[UsageBudget, ...]:
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
    name = max(len("key"), *(min(NAME_CHARS, len(row.key.name)) for row in rows))
    head = f"{'key'.ljust(name)}  {'last used':10}  {'runs':>7}  {'tokens':>7}  {'cost':>9}  expires"
    lines = [style.dim(head)]
    for row in rows:
        key, total = row.key, row.total
        shown = key.name if len(key.name) <= NAME_CHARS else f"{key.name[: NAME_CHARS - 1]}~"
        cost = f"${total.cents / 100:,.2f}" if total.cents else ("?" if total.tokens else "-")
        cells = f"{_ago(row.used_at, now):10}  {total.runs:>7,}  {_short(total.tokens):>7}  {cost:>9}"
        expires = _day(key.expires_at) if key.expires_at is not None else ""
        if key.expired(now):
            expires = style.bad("expired")
        lines.append(f"{shown.ljust(name)}  {cells}  {expires}".rstrip())
        for level in row.levels:
            mark = style.bad if level.used_up else style.careful if level.low else style.dim
            lines += _detail("budget", _level(level), width, mark)
        if key.models:
            lines += _detail("models", ", ".join(key.models), width, style.dim)
        if key.workspace:
            lines += _detail("works in", key.workspace, width, style.dim)
        if key.page:
            lines += _detail("opens", "the dashboard", width, style.dim)
    return lines


def _level(level: Level) -> str:
    if level.budget.scope is not BudgetScope.KEY:
        return str(level.budget)
    return f"{notice(level).partition(': ')[2]}"


def _detail(label: str, text: str, width: int, mark: Any) -> list[str]:
    pieces = folded(text, width - _LABEL - 4)
    labels = [label, *[""] * (len(pieces) - 1)]
    return [f"  {one.ljust(_LABEL)}  {mark(piece)}".rstrip() for one, piece in zip(labels, pieces, strict=True)]


def _ago(at: float | None, now: float) -> str:
    if at is None:
        return "never"
    seconds = max(0.0, now - at)
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    return f"{seconds // 3600:.0f} h ago" if seconds < 86_400 else _day(at)


def _short(number: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).date().isoformat()


def _rounded(at: float | None) -> int | None:
    return None if at is None else round(at)
