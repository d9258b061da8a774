"""Answers questions about usage from the ledger's SQLite file: totals of a span by group, reasons of replays. SQL
groups, prices and sorts, so memory use does not grow with the number of rows.

Tokens are those of runs, as Cursor counted them: each once, in kinds that do not overlap. A run that Cursor did not
report counts as `unreported`, without an estimate. None means "not known", never zero. Days are those of this process's
time zone. Queries write nothing; a gateway may write meanwhile.
"""

import csv
import io
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict

from ..core.account_usage import UsageEvents
from .prices import FindPrice, own_price, priced_name
from .writing import STAND_IN

By = Literal["all", "hour", "day", "model", "key", "client", "conversation", "reason", "kind"]
_GROUPS: Final[dict[By, str]] = {
    "all": "''",
    "hour": "strftime('%Y-%m-%d %H:00', at, 'unixepoch', 'localtime')",
    "day": "strftime('%Y-%m-%d', at, 'unixepoch', 'localtime')",
    "model": "model",
    "key": "key",
    "client": "client",
    "conversation": "conversation",
    "reason": "session || ': ' || reason",
    "kind": "kind",
}
HAS_KINDS: Final = 3
"""The first ledger version whose rows have a kind."""
UNCACHED: Final = "max(0, coalesce(input, 0) - coalesce(cache_read, 0) - coalesce(cache_write, 0))"
_LISTED: Final = f"""({UNCACHED} * price_input + coalesce(cache_read, 0) * price_read
    + coalesce(cache_write, 0) * price_write + coalesce(output, 0) * price_output) / 1e4"""
"""SQL for cents: prices are dollars for a million tokens."""
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
_TOOLS: Final = """SELECT called, count(*), count(waited), total(waited), max(waited) FROM (
        SELECT at, called, lead(at - total_ms / 1000) OVER (PARTITION BY conversation ORDER BY id) - at AS waited
        FROM responses WHERE at >= ? AND at < ? AND conversation != ''
    ) WHERE called != '' GROUP BY called ORDER BY count(*) DESC LIMIT ?"""
_MAX_TOOL_SETS: Final = 2000
NAMES_TOOLS: Final = 2
"""The first ledger version whose responses name their tools."""
_LAST: Final = """SELECT backend, model, at FROM responses
    WHERE backend != 'simulator' AND backend NOT LIKE ? AND error = '' ORDER BY at DESC LIMIT 1"""


class Span(Struct, frozen=True):
    """From `since` (inclusive) to `until` (exclusive), in unix seconds."""

    since: float
    until: float


def slots(span: Span, by: By, most: int) -> list[str]:
    """The names in `totals` of all hours or days in the span, also of empty ones. Empty if there are more than `most`,
    or if `by` is neither hour nor day."""
    if by not in ("hour", "day"):
        return []
    step, form = (timedelta(hours=1), "%Y-%m-%d %H:00") if by == "hour" else (timedelta(days=1), "%Y-%m-%d")
    at, until = datetime.fromtimestamp(span.since), datetime.fromtimestamp(span.until)
    count = int((until - at) / step) + 1
    return [(at + step * number).strftime(form) for number in range(count)] if count <= most else []


class Totals(Struct, frozen=True):
    group: str = ""
    responses: int = 0
    failed: int = 0
    """Responses that ended with an error."""
    refused: int = 0
    """Requests for an answer that got no response; `responses` does not include them."""
    runs: int = 0
    unreported: int = 0
    """Runs that Cursor did not count: cut, stopped, or on a backend that reports no usage."""
    at_least: int = 0
    """Runs with a lost attempt that was not counted."""
    input: int = 0
    """Tokens neither read from the cache nor written to it."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    """Output tokens, reasoning included."""
    reasoning: int = 0
    saved: int = 0
    """Tokens that sessions held already and a `fresh` session would have sent again."""
    told_cents: float | None = None
    """The cost of runs as reported by Cursor; None if Cursor reported no cost."""
    listed_cents: float | None = None
    """The cost of the other runs by a price list; None if no other run has a price."""
    unpriced: int = 0
    """Reported runs without a known cost."""

    @property
    def tokens(self) -> int:
        return self.input + self.cache_read + self.cache_write + self.output

    @property
    def read(self) -> int:
        """All input tokens, of any price: the denominator of the shares."""
        return self.input + self.cache_write + self.cache_read

    @property
    def cached_share(self) -> float | None:
        """The share of the input that came from the cache; None without input."""
        return self.cache_read / self.read if self.read else None

    @property
    def saved_share(self) -> float | None:
        """The share of input saved compared with `fresh` sessions; None without input."""
        whole = self.saved + self.read
        return self.saved / whole if whole else None

    def plus(self, other: "Totals") -> "Totals":
        """The sum of both, as a group without a name."""
        sums: dict[str, Any] = {}
        for name in (name for name in self.__struct_fields__ if name != "group"):
            known = [value for value in (getattr(self, name), getattr(other, name)) if value is not None]
            sums[name] = sum(known) if known else None
        return Totals(**sums)

    @property
    def cents(self) -> float | None:
        known = [cents for cents in (self.told_cents, self.listed_cents) if cents is not None]
        return sum(known) if known else None


class Replayed(Struct, frozen=True):
    reason: str
    responses: int
    input: int
    """Uncached input of the replays."""


class ToolUse(Struct):
    """Calls of one tool. The wait after an answer with several tools counts for each of them."""

    group: str
    calls: int = 0
    waits: int = 0
    """Answers with calls that were followed by another request."""
    waited: float = 0.0
    """Total seconds from these answers to the next request."""
    longest: float = 0.0


class LedgerQueries:
    def __init__(self, connection: sqlite3.Connection, price: FindPrice) -> None:
        self._db = connection
        self._price = price

    def totals(self, span: Span, by: By, limit: int | None = None) -> Iterator[Totals]:
        """Yields the largest group first; hours and days in order. `all` is one row. Streamed, because there may be
        many groups."""
        self._price_models(span)
        group, columns = _GROUPS[by], Totals.__struct_fields__[1:]
        if by == "kind" and self._db.execute("PRAGMA user_version").fetchone()[0] < HAS_KINDS:
            group = "''"
        query = _TOTALS.format(
            sums=", ".join(f"sum({column})" for column in columns),
            group=group,
            uncached=UNCACHED,
            listed=_LISTED,
            order="g" if by in ("hour", "day") else _ORDER,
        )
        values = {"since": span.since, "until": span.until, "limit": -1 if limit is None else limit}
        with closing(self._db.execute(query, values)) as cursor:
            for group, *sums in cursor:
                yield Totals(
                    group,
                    **{
                        column: value if column.endswith("_cents") else int(value or 0)
                        for column, value in zip(columns, sums, strict=True)
                    },
                )

    def unpriced(self, span: Span, limit: int) -> list[str]:
        """The tables of the settings file that would price the unpriced runs, the most frequent first."""
        self._price_models(span)
        rows = self._db.execute(_UNPRICED, (span.since, span.until))
        tables = [own_price(priced_name(variant) or variant.partition("@")[0]) for (variant,) in rows]
        return list(dict.fromkeys(tables))[:limit]

    def replays(self, span: Span) -> list[Replayed]:
        """Reasons of replays, the most frequent first."""
        return [Replayed(*row) for row in self._db.execute(_REPLAYS, (span.since, span.until))]

    def tools(self, span: Span, limit: int) -> list[ToolUse]:
        """Tools, the most called first."""
        if self._db.execute("PRAGMA user_version").fetchone()[0] < NAMES_TOOLS:
            return []
        found: dict[str, ToolUse] = {}
        for called, answers, waits, waited, longest in self._db.execute(
            _TOOLS, (span.since, span.until, _MAX_TOOL_SETS)
        ):
            names = called.split("\n")
            for name in dict.fromkeys(names):
                one = found.setdefault(name, ToolUse(name))
                one.calls += answers * names.count(name)
                one.waits += waits
                one.waited += max(0.0, waited)
                one.longest = max(one.longest, longest or 0.0)
        return sorted(found.values(), key=lambda one: (-one.calls, one.group))[:limit]

    def _price_models(self, span: Span) -> None:
        """Writes the prices of the used models to a temporary table, for SQL."""
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
    """(backend, model, time) of a live account's last answer."""
    row = connection.execute(_LAST, (f"%{STAND_IN}",)).fetchone()
    return None if row is None else (str(row[0]), str(row[1]), float(row[2]))


def last_seen(connection: sqlite3.Connection, since: float) -> dict[str, float]:
    """The time of each client's last request, by the client's name in the ledger."""
    rows = connection.execute("SELECT client, max(at) FROM responses WHERE at >= ? GROUP BY client", (since,))
    return {str(client): float(at) for client, at in rows}


# ---- event costs

# The cost of a ledger's conversations in Cursor's own list of events. Events are matched by Cursor's conversation id,
# never by time or model; conversations missing from the list are counted, not estimated.

_OURS: Final = "SELECT EXISTS (SELECT 1 FROM runs WHERE upstream = ? AND at >= ? AND at < ?)"
_KNOWN: Final = "SELECT count(DISTINCT upstream) FROM runs WHERE upstream != '' AND at >= ? AND at < ?"


@dataclass(frozen=True, slots=True)
class EventCost:
    """The cost of conversations that are both in the ledger and in Cursor's list."""

    cents: float = 0.0
    """The value of the tokens."""
    charged_cents: float = 0.0
    """The amount charged for the tokens."""
    conversations: int = 0
    missing: int = 0
    """Conversations of the ledger that are not (yet) in the list."""
    complete: bool = True
    """False if there are more events than were fetched."""


def event_cost(ledger: sqlite3.Connection, span: Span, listed: UsageEvents) -> EventCost:
    cents: dict[str, tuple[float, float]] = {}
    for event in listed.events:
        if event.conversation:
            worth, charged = cents.get(event.conversation, (0.0, 0.0))
            cents[event.conversation] = (worth + (event.cents or 0.0), charged + (event.charged_cents or 0.0))
    when = (span.since, span.until)
    ours = [sums for name, sums in cents.items() if ledger.execute(_OURS, (name, *when)).fetchone()[0]]
    (known,) = ledger.execute(_KNOWN, when).fetchone()
    return EventCost(
        sum(worth for worth, _ in ours),
        sum(charged for _, charged in ours),
        len(ours),
        max(0, known - len(ours)),
        listed.complete,
    )


# ---- export

# Totals of a ledger with documented field names, and as CSV.


def figures(row: Totals) -> dict[str, Any]:
    fields = asdict(row)
    fields.pop("group")
    return fields | {"tokens": row.tokens, "cents": row.cents}


def as_csv(by: str, rows: Iterable[Totals]) -> Iterator[str]:
    """Yields CSV line by line, because there may be many groups."""
    line = io.StringIO()
    writer = csv.DictWriter(line, [by, *figures(Totals())], lineterminator="\n")
    writer.writeheader()
    yield line.getvalue()
    for row in rows:
        line.seek(0)
        line.truncate()
        writer.writerow({by: _plain(row.group), **figures(row)})
        yield line.getvalue()


def _plain(text: str) -> str:
    """Escapes a name that a spreadsheet would read as a formula: clients choose names."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


# ---- last hour

# The last hour of a ledger by minute: answers, failures, time to the first token, tokens by kind; and the newest
# answers. Every result is bounded, however large the ledger is.

MINUTES: Final = 60
MAX_CODES: Final = 8
_LATEST: Final = (
    "at, request_id, client, key, dialect, asked, model, conversation, session, reason, outcome, error, calls, "
    "first_ms, total_ms"
)
_ANSWERS: Final = """SELECT CAST(at / 60 AS INTEGER) AS minute, sum(session != 'refused'),
    sum(error != '' AND session != 'refused'), sum(session = 'refused') FROM responses
    WHERE at >= ? AND at < ? GROUP BY minute"""
_FIRST: Final = """SELECT minute, max(CASE WHEN place = (many + 1) / 2 THEN first_ms END),
        max(CASE WHEN place = (95 * many + 99) / 100 THEN first_ms END)
    FROM (SELECT minute, first_ms, row_number() OVER (PARTITION BY minute ORDER BY first_ms) AS place,
            count(*) OVER (PARTITION BY minute) AS many
        FROM (SELECT CAST(at / 60 AS INTEGER) AS minute, first_ms FROM responses
            WHERE at >= ? AND at < ? AND first_ms IS NOT NULL))
    GROUP BY minute"""
"""Computes percentiles by the nearest rank."""
_TOKENS: Final = """SELECT CAST(at / 60 AS INTEGER) AS minute, sum({fresh}), total(cache_read), total(cache_write),
    total(output) FROM runs WHERE at >= ? AND at < ? GROUP BY minute"""
_CODES: Final = """SELECT error, count(*), max(outcome) FROM responses
    WHERE at >= ? AND at < ? AND error != '' GROUP BY error
    ORDER BY count(*) DESC, error LIMIT ?"""


class Minute(Struct):
    at: float
    """The start of the minute, in unix seconds."""
    answers: int = 0
    failed: int = 0
    """Answers that ended with an error."""
    refused: int = 0
    """Requests that got no answer; `answers` does not include them."""
    first_p50: float | None = None
    """Median milliseconds to the first token; None if no answer had one."""
    first_p95: float | None = None
    input: int = 0
    """Tokens neither read from the cache nor written to it."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class FailureCount(Struct, frozen=True):
    code: str
    count: int
    kind: str
    """The error kind of the code."""


class LastHour(Struct, frozen=True):
    minutes: list[Minute]
    """Sixty minutes; the last one is incomplete."""
    failures: list[FailureCount]
    """Error codes, the most frequent first."""


def last_hour(db: sqlite3.Connection, now: float) -> LastHour:
    newest = int(now // 60)
    oldest = newest - MINUTES + 1
    span = (oldest * 60.0, (newest + 1) * 60.0)
    minutes = [Minute(number * 60.0) for number in range(oldest, newest + 1)]
    for number, answers, failed, refused in db.execute(_ANSWERS, span):
        one = minutes[number - oldest]
        one.answers, one.failed, one.refused = answers, failed, refused
    for number, median, slow in db.execute(_FIRST, span):
        one = minutes[number - oldest]
        one.first_p50, one.first_p95 = median, slow
    for number, *tokens in db.execute(_TOKENS.format(fresh=UNCACHED), span):
        one = minutes[number - oldest]
        one.input, one.cache_read, one.cache_write, one.output = map(int, tokens)
    return LastHour(minutes, [FailureCount(*row) for row in db.execute(_CODES, (*span, MAX_CODES))])


def latest(db: sqlite3.Connection, limit: int) -> list[dict[str, Any]]:
    """The newest answers and refusals, the newest first."""
    cursor = db.execute(f"SELECT {_LATEST} FROM responses ORDER BY at DESC, id DESC LIMIT ?", (limit,))  # noqa: S608 - our own columns
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
