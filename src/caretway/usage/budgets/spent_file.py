"""The SQLite file of what was spent: its tables, and what commands read in it."""

from contextlib import closing
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from ...storage.database import DatabaseKind, open_or_memory, read_database
from .budget import BillingCycle, Spent

FILE: Final = "budgets.sqlite"
CONVERSATION_PREFIX: Final = "conversation:"
SUM: Final = """SELECT coalesce(sum(runs), 0), coalesce(sum(tokens), 0), coalesce(sum(uncached), 0),
    coalesce(sum(cents), 0.0) FROM spent WHERE scope = ? AND day >= ?"""
_SCHEMA: Final = (
    # `scope` is a key's id, `everybody` or a conversation. A period is a sum of days.
    """CREATE TABLE spent (
        scope TEXT NOT NULL, day TEXT NOT NULL, runs INTEGER NOT NULL, tokens INTEGER NOT NULL,
        uncached INTEGER NOT NULL, cents REAL NOT NULL, used_at REAL NOT NULL, PRIMARY KEY (scope, day)
    ) WITHOUT ROWID""",
    "CREATE INDEX spent_by_use ON spent (used_at)",
    "CREATE TABLE marks (mark TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE cycle (one INTEGER PRIMARY KEY, starts_at REAL NOT NULL, ends_at REAL NOT NULL)",
)
SPENT: Final = DatabaseKind("budgets", (_SCHEMA,), synchronous="FULL")


def last_uses(path: Path) -> dict[str, float]:
    """Scope -> when it was counted last. Reads only, as the others here do; they raise sqlite3.Error."""
    with closing(_reading(path)) as connection:
        return dict(connection.execute("SELECT scope, max(used_at) FROM spent GROUP BY scope"))


def spent_since(path: Path, scope: str, since: str) -> Spent:
    with closing(_reading(path)) as connection:
        return Spent(*connection.execute(SUM, (scope, since)).fetchone())


def kept_cycle(path: Path) -> BillingCycle | None:
    with closing(_reading(path)) as connection:
        row = connection.execute("SELECT starts_at, ends_at FROM cycle").fetchone()
    return BillingCycle(*row) if row is not None else None


def _reading(path: Path) -> Connection:
    return read_database(path, SPENT) or open_or_memory(None, SPENT)
