"""Queries about single conversations in a ledger: the recent ones, filtered by a word; the steps and runs of one, with
their cost. Every result is bounded, however large the ledger is.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field

from ..core.recovery import in_words
from .prices import FindPrice, Price
from .queries import HAS_KINDS, NAMES_TOOLS, UNCACHED

MAX_LISTED: Final = 200
MAX_STEPS: Final = 500
SCANNED_ROWS: Final = 50_000
"""The number of newest responses that a list is made from."""
MAX_WORD: Final = 100
PAUSED: Final = "paused"
"""The outcome of a response that ended with tool calls."""
_SEARCHED: Final = ("conversation", "model", "asked", "client", "key", "session", "reason", "error", "request_id")
_FITS: Final = "(" + " OR ".join(f"{column} LIKE ? ESCAPE '!'" for column in _SEARCHED) + ")"
_RESPONSES: Final = """SELECT count(*), min(at), max(at), sum(error != ''), sum(calls), sum(coalesce(held, 0))
    FROM responses WHERE conversation = ?"""
_NEWEST: Final = """SELECT client, key, model, backend, outcome, error FROM responses WHERE conversation = ?
    ORDER BY id DESC LIMIT 1"""
_CODES: Final = """SELECT error, count(*) FROM responses WHERE conversation = ? AND error != '' GROUP BY error
    ORDER BY max(id) DESC"""
_SESSIONS: Final = "SELECT session, count(*) FROM responses WHERE conversation = ? GROUP BY session"
MAX_CHOICES: Final = 30
_CHOICES: Final = """SELECT {column} FROM (SELECT {column} FROM responses ORDER BY at DESC LIMIT ?)
    WHERE {column} != '' GROUP BY {column} ORDER BY count(*) DESC, {column} LIMIT ?"""
_SPENT: Final = """SELECT variant, count(*), sum({fresh}), total(cache_read), total(cache_write), total(output),
    sum(cents), sum(cents IS NULL AND reported), sum(CASE WHEN cents IS NULL THEN {fresh} END),
    total(CASE WHEN cents IS NULL THEN cache_read END), total(CASE WHEN cents IS NULL THEN cache_write END),
    total(CASE WHEN cents IS NULL THEN output END) FROM runs WHERE conversation = ? GROUP BY variant"""
_STEP: Final = (
    "at, request_id, client, key, dialect, asked, model, variant, stream, session, reason, outcome, error, calls, "
    "input, cache_read, cache_write, output, reasoning, estimated, first_ms, total_ms, held, run"
)
_RUN: Final = (
    "run, started_at, at, session, reason, outcome, error, responses, input, cache_read, cache_write, output, cents, "
    "cents_from, variant, reported"
)


class Spending(Struct):
    input: int = 0
    """Tokens neither read from the cache nor written to it."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    cents: float | None = None
    """The cost as Cursor reported it, else by a price list; None if unknown."""


class ListedConversation(Spending):
    id: str = ""
    first_at: float = 0.0
    last_at: float = 0.0
    client: str = ""
    key: str = ""
    model: str = ""
    backend: str = ""
    responses: int = 0
    failed: int = 0
    calls: int = 0
    saved: int = 0
    """Tokens that sessions already held."""
    sessions: dict[str, int] = field(default_factory=dict)
    outcome: str = ""
    """The outcome of the newest response."""
    error: str = ""
    errors: dict[str, int] = field(default_factory=dict)
    """The error codes of all failed responses, the newest first."""


class Wanted(Struct, frozen=True):
    """Selects conversations with a response that matches all fields; an empty field matches any."""

    word: str = ""
    client: str = ""
    model: str = ""
    key: str = ""
    failed: bool = False
    since: float | None = None
    before: float | None = None
    """The `last_at` of the last conversation on the previous page."""


ANY: Final = Wanted()


class ConversationList(Struct, frozen=True):
    data: list[ListedConversation]
    more: bool


class Timeline(Struct, frozen=True):
    steps: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    total: Spending
    more: bool
    """Whether older steps were left out."""


class ConversationQueries:
    def __init__(self, connection: sqlite3.Connection, price: FindPrice) -> None:
        self._db = connection
        self._price = price

    def listed(self, wanted: Wanted = ANY, limit: int = 50) -> ConversationList:
        """Lists conversations, the last active first."""
        limit = max(1, min(limit, MAX_LISTED))
        found: list[ListedConversation] = []
        seen: set[str] = set()
        for name in self._newest(wanted):
            if name in seen:
                continue
            seen.add(name)
            one = self._summed(name)
            if wanted.before is not None and one.last_at >= wanted.before:
                continue  # already listed
            if len(found) == limit:
                return ConversationList(found, more=True)
            found.append(one)
        return ConversationList(found, more=False)

    def timeline(self, name: str) -> Timeline | None:
        """The steps and runs of one conversation; None if there is none with this name."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        more = "called, recoveries" if version >= NAMES_TOOLS else "'' AS called, '' AS recoveries"
        more += ", kind" if version >= HAS_KINDS else ", '' AS kind"
        steps = self._rows("responses", f"{_STEP}, {more}", name)
        runs = self._rows("runs", _RUN, name)
        if not steps and not runs:
            return None
        for run in runs:
            run["ended_at"] = run.pop("at")
            variant, reported = run.pop("variant"), run.pop("reported")
            fresh = _fresh(run)
            if run["cents"] is None and reported and (price := self._price(variant)) is not None:
                amounts = (fresh, run["cache_read"] or 0, run["cache_write"] or 0, run["output"] or 0)
                run["cents"], run["cents_from"] = listed_cents(price, *amounts), "prices"
            run["input"] = fresh if run["input"] is not None else None
        for step in steps:
            step["tools"] = step.pop("called").split("\n") if step["called"] else []
            step["recoveries"] = in_words([_recovery(line) for line in step["recoveries"].splitlines()])
            step["input"] = _fresh(step) if step["input"] is not None else None
            step["stream"], step["estimated"] = bool(step["stream"]), bool(step["estimated"])
        _note_waits(steps)
        _share_costs(steps, runs, self._price)
        return Timeline(steps[-MAX_STEPS:], runs[-MAX_STEPS:], self._spent(name), len(steps) > MAX_STEPS)

    def _rows(self, table: str, columns: str, name: str) -> list[dict[str, Any]]:
        """The newest rows in order of time, one more than is shown."""
        # table and columns are constants of this file; client-made names are bound as values
        query = f"SELECT {columns} FROM {table} WHERE conversation = ? ORDER BY id DESC LIMIT ?"  # noqa: S608 - see above
        cursor = self._db.execute(query, (name, MAX_STEPS + 1))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor][::-1]

    def choices(self) -> dict[str, list[str]]:
        """Clients, models and keys of the newest responses, the most frequent first."""
        most = (SCANNED_ROWS, MAX_CHOICES)
        return {
            column: [str(name) for (name,) in self._db.execute(_CHOICES.format(column=column), most)]
            for column in ("client", "model", "key")
        }

    def _newest(self, wanted: Wanted) -> Iterable[str]:
        """Yields the name of each matching response's conversation, the newest first."""
        conditions, found = ["conversation != ''"], list[object]()
        if wanted.before is not None:
            conditions, found = [*conditions, "at < ?"], [*found, wanted.before]
        if wanted.since is not None:
            conditions, found = [*conditions, "at >= ?"], [*found, wanted.since]
        # the parts of both queries are constants of this file; search terms are bound as values
        query = f"SELECT * FROM responses WHERE {' AND '.join(conditions)} ORDER BY at DESC LIMIT {SCANNED_ROWS}"  # noqa: S608 - see above
        looked = []
        if word := wanted.word[:MAX_WORD]:
            looked.append(_FITS)
            found += [f"%{_escaped(word)}%"] * len(_SEARCHED)
        for column, name in (("client", wanted.client), ("model", wanted.model), ("key", wanted.key)):
            if name:
                looked.append(f"{column} = ?")
                found.append(name)
        if wanted.failed:
            looked.append("error != ''")
        where = f" WHERE {' AND '.join(looked)}" if looked else ""
        for (name,) in self._db.execute(f"SELECT conversation FROM ({query}){where}", found):  # noqa: S608 - see above
            yield name

    def _summed(self, name: str) -> ListedConversation:
        count, first, last, failed, calls, saved = self._db.execute(_RESPONSES, (name,)).fetchone()
        client, key, model, backend, outcome, error = self._db.execute(_NEWEST, (name,)).fetchone()
        spent = self._spent(name)
        return ListedConversation(
            spent.input,
            spent.cache_read,
            spent.cache_write,
            spent.output,
            spent.cents,
            name,
            first,
            last,
            client,
            key,
            model,
            backend,
            count,
            failed,
            calls,
            saved,
            dict(self._db.execute(_SESSIONS, (name,)).fetchall()),
            outcome,
            error,
            dict(self._db.execute(_CODES, (name,)).fetchall()),
        )

    def _spent(self, name: str) -> Spending:
        total = Spending()
        rows = self._db.execute(_SPENT.format(fresh=UNCACHED), (name,))
        for variant, _, fresh, read, written, output, reported, priced, *open_ in rows:
            total.input += int(fresh or 0)
            total.cache_read += int(read)
            total.cache_write += int(written)
            total.output += int(output)
            cents = reported
            if priced and (price := self._price(variant)) is not None:
                cents = (cents or 0.0) + listed_cents(price, *(part or 0 for part in open_))
            if cents is not None:
                total.cents = (total.cents or 0.0) + cents
        return total


def listed_cents(price: Price, fresh: float, read: float, written: float, output: float) -> float:
    """The cost in cents; prices are dollars for a million tokens."""
    dollars = fresh * price.input + read * price.cache_read + written * price.cache_write + output * price.output
    return dollars / 1e4


def forget_conversation(connection: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Deletes a conversation's rows and returns the counts (responses, runs). Must be called in a transaction."""
    connection.execute("PRAGMA secure_delete = ON")
    responses = connection.execute("DELETE FROM responses WHERE conversation = ?", (name,)).rowcount
    return responses, connection.execute("DELETE FROM runs WHERE conversation = ?", (name,)).rowcount


def _recovery(stored: str) -> tuple[str, str]:
    """(remedy, loss) of `fresh run (stale)`."""
    remedy, _, loss = stored.removesuffix(")").partition(" (")
    return remedy, loss


def _note_waits(steps: list[dict[str, Any]]) -> None:
    """Sets each step's wait: the time from the end of the previous step to its request, and the tools called before
    it."""
    before: dict[str, Any] | None = None
    for step in steps:
        step["started_at"] = step["at"] - step["total_ms"] / 1000
        step["waited_s"] = max(0.0, step["started_at"] - before["at"]) if before is not None else 0.0
        step["waited_for"] = [] if before is None or before["outcome"] != PAUSED else before["tools"]
        before = step


def _share_costs(steps: list[dict[str, Any]], runs: list[dict[str, Any]], find_price: FindPrice) -> None:
    """Divides the cost of each run among its steps by their tokens at list prices, because Cursor counts runs, not
    steps. A step's cost is None while its run is open, or if the run's cost is unknown."""
    of_run: dict[str, list[dict[str, Any]]] = {}
    for step in steps:
        step["cents"], step["shared"] = None, False
        of_run.setdefault(step["run"], []).append(step)
    for run in runs:
        parts = of_run.get(run["run"], [])
        if run["cents"] is None or len(parts) < run["responses"]:
            continue
        weights = [_weight(step, find_price(step["variant"])) for step in parts]
        whole = sum(weights)
        for step, weight in zip(parts, weights, strict=True):
            step["cents"] = run["cents"] * (weight / whole if whole else 1 / len(parts))
            step["shared"] = len(parts) > 1


def _weight(step: dict[str, Any], price: Price | None) -> float:
    amounts = [step[kind] or 0 for kind in ("input", "cache_read", "cache_write", "output")]
    return listed_cents(price, *amounts) if price is not None else float(sum(amounts))


def _fresh(row: dict[str, Any]) -> int:
    return max(0, (row["input"] or 0) - (row["cache_read"] or 0) - (row["cache_write"] or 0))


def _escaped(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
