"""Answers questions about usage from the ledger's SQLite file: grouped, priced and sorted in SQL, so that memory stays
small however many rows there are.

It reads and changes nothing; a gateway may write meanwhile. Days are those of the time zone of this process.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from .prices import FindPrice, own_price, priced_name
from .questions import By, Replayed, Span, Totals
from .writing import STAND_IN

_GROUPS: Final[dict[By, str]] = {
    "all": "''",
    "day": "strftime('%Y-%m-%d', at, 'unixepoch', 'localtime')",
    "model": "model",
    "key": "key",
    "client": "client",
    "conversation": "conversation",
    "reason": "session || ': ' || reason",
}
_UNCACHED: Final = "max(0, coalesce(input, 0) - coalesce(cache_read, 0) - coalesce(cache_write, 0))"
_LISTED: Final = f"""({_UNCACHED} * price_input + coalesce(cache_read, 0) * price_read
    + coalesce(cache_write, 0) * price_write + coalesce(output, 0) * price_output) / 1e4"""
"""Cents: prices are dollars for a million tokens."""
_COLUMNS: Final = (
    "responses",
    "failed",
    "refused",
    "runs",
    "unreported",
    "at_least",
    "input",
    "cache_read",
    "cache_write",
    "output",
    "reasoning",
    "saved",
    "told_cents",
    "listed_cents",
    "unpriced",
)
_TOTALS: Final = """SELECT g, {sums} FROM (
        SELECT {group} AS g, sum(session != 'refused') AS responses,
            sum(error != '' AND session != 'refused') AS failed, sum(session = 'refused') AS refused, 0 AS runs,
            0 AS unreported, 0 AS at_least, 0 AS input, 0 AS cache_read, 0 AS cache_write, 0 AS output,
            0 AS reasoning, sum(coalesce(held, 0)) AS saved, NULL AS told_cents, NULL AS listed_cents, 0 AS unpriced
        FROM responses WHERE at >= :since AND at < :until GROUP BY g
    UNION ALL
        SELECT {group} AS g, 0, 0, 0, count(*), sum(NOT reported), sum(reported AND NOT complete), sum({uncached}),
            total(cache_read), total(cache_write), total(output), total(reasoning), 0, sum(cents),
            sum(CASE WHEN cents IS NULL AND reported THEN {listed} END),
            sum(reported AND cents IS NULL AND price_input IS NULL)
        FROM runs LEFT JOIN temp.prices ON prices.priced = runs.variant
        WHERE at >= :since AND at < :until GROUP BY g
    ) GROUP BY g ORDER BY {order} LIMIT :limit"""
_ORDER: Final = "sum(input) + sum(cache_read) + sum(cache_write) + sum(output) DESC, sum(responses) DESC, g"
_REPLAYS: Final = """SELECT reason, count(*), sum(coalesce(input, 0) - coalesce(cache_read, 0)) FROM responses
    WHERE at >= ? AND at < ? AND session = 'replayed' GROUP BY reason ORDER BY count(*) DESC, reason"""

_UNPRICED: Final = """SELECT variant FROM runs LEFT JOIN temp.prices ON prices.priced = runs.variant
    WHERE at >= ? AND at < ? AND reported AND cents IS NULL AND price_input IS NULL
    GROUP BY variant ORDER BY count(*) DESC, variant"""
_LAST: Final = """SELECT backend, model, at FROM responses
    WHERE backend != 'simulator' AND backend NOT LIKE ? AND error = '' ORDER BY at DESC LIMIT 1"""


class LedgerQueries:
    def __init__(self, connection: sqlite3.Connection, price: FindPrice) -> None:
        self._db = connection
        self._price = price

    def totals(self, span: Span, by: By, limit: int | None = None) -> Iterator[Totals]:
        self._price_models(span)
        query = _TOTALS.format(
            sums=", ".join(f"sum({column})" for column in _COLUMNS),
            group=_GROUPS[by],
            uncached=_UNCACHED,
            listed=_LISTED,
            order="g" if by == "day" else _ORDER,
        )
        values = {"since": span.since, "until": span.until, "limit": -1 if limit is None else limit}
        with closing(self._db.execute(query, values)) as cursor:
            for group, *sums in cursor:
                yield Totals(
                    group,
                    **{
                        column: value if column.endswith("_cents") else int(value or 0)
                        for column, value in zip(_COLUMNS, sums, strict=True)
                    },
                )

    def unpriced(self, span: Span, limit: int) -> list[str]:
        """The tables of the settings file that would give runs without a price one; the most frequent first."""
        self._price_models(span)
        rows = self._db.execute(_UNPRICED, (span.since, span.until))
        tables = [own_price(priced_name(variant) or variant.partition("@")[0]) for (variant,) in rows]
        return list(dict.fromkeys(tables))[:limit]

    def replays(self, span: Span) -> list[Replayed]:
        return [Replayed(*row) for row in self._db.execute(_REPLAYS, (span.since, span.until))]

    def _price_models(self, span: Span) -> None:
        """The prices of the models that were used, where SQL can find them."""
        self._db.execute("DROP TABLE IF EXISTS temp.prices")
        self._db.execute(
            """CREATE TEMP TABLE prices (priced TEXT PRIMARY KEY, price_input REAL, price_read REAL, price_write REAL,
            price_output REAL) WITHOUT ROWID"""
        )
        used = self._db.execute("SELECT DISTINCT variant FROM runs WHERE at >= ? AND at < ?", (span.since, span.until))
        for (variant,) in used.fetchall():
            if (price := self._price(variant)) is not None:
                row = (variant, price.input, price.cache_read, price.cache_write, price.output)
                self._db.execute("INSERT INTO temp.prices VALUES (?, ?, ?, ?, ?)", row)


def last_answer(connection: sqlite3.Connection) -> tuple[str, str, float] | None:
    """(backend, model, when) of the last answer of a live account."""
    row = connection.execute(_LAST, (f"%{STAND_IN}",)).fetchone()
    return None if row is None else (str(row[0]), str(row[1]), float(row[2]))


def last_seen(connection: sqlite3.Connection, since: float) -> dict[str, float]:
    """When each client asked last, by the ledger's name for it."""
    rows = connection.execute("SELECT client, max(at) FROM responses WHERE at >= ? GROUP BY client", (since,))
    return {str(client): float(at) for client, at in rows}
