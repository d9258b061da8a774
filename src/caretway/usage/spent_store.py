"""The store of spending as a Protocol: reserve (checked and counted in one step, durable before a run is opened) and
settle. SQLite implements it for one machine; a store with the same atomic step may serve several gateways.

A claim is refused or counted as a whole. Nothing is counted between its check and its count, so runs are exact.
"""

from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, Protocol

from msgspec import Struct

from ..storage.database import DatabaseKind, open_or_memory, read_database
from .budget import BillingCycle, Measure, Spent


class Limit(Struct, frozen=True):
    """Forbids a run if that much has been spent in the scope since the day."""

    scope: str
    measure: Measure
    most: float
    since: str


class Claim(Struct, frozen=True):
    """The expected use of a run, as far as it is known beforehand."""

    scopes: tuple[str, ...]
    """All scopes in which the claim is counted."""
    day: str
    amount: Spent
    limits: tuple[Limit, ...]
    at: float
    """Unix seconds."""


class ClaimOutcome(Struct, frozen=True):
    allowed: bool
    spent: tuple[float, ...]
    """The spent amount for each limit, including this claim if it was allowed."""


class SpentStore(Protocol):
    def reserve(self, claim: Claim) -> Coroutine[Any, Any, ClaimOutcome]: ...

    def settle(self, scopes: tuple[str, ...], day: str, amount: Spent, at: float) -> None:
        """Counts the amount regardless of limits; a negative amount corrects a reservation. Written soon, and before
        any later reservation."""
        ...

    async def spent(self, scope: str, since: str) -> Spent: ...

    async def first(self, mark: str, at: float) -> bool:
        """True for the first caller of this mark in any process, so that an event is reported once."""
        ...

    async def cycle(self) -> BillingCycle | None:
        """The billing cycle that was stored last."""
        ...

    def keep_cycle(self, cycle: BillingCycle) -> None: ...

    async def aclose(self) -> None: ...


# ---- spent file

# The SQLite file of spending: its tables, and the queries of commands.

FILE: Final = "budgets.sqlite"
CONVERSATION_PREFIX: Final = "conversation:"
SUM: Final = """SELECT coalesce(sum(runs), 0), coalesce(sum(tokens), 0), coalesce(sum(uncached), 0),
    coalesce(sum(cents), 0.0) FROM spent WHERE scope = ? AND day >= ?"""
_SCHEMA: Final = (
    # `scope` is `everybody`, a key's id or a conversation. A period is a sum of days.
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
    """Scope -> unix time of the last spending in it. Does not create or change the file. Raises sqlite3.Error."""
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
