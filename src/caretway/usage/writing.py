"""Converts records to rows of the ledger: a response, a run, a refused request. Rows hold no prompt and no answer.
Names chosen by clients are bounded and safe on a terminal.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from ..core.events import RunUsage, Tokens, Usage
from ..core.records import RefusedRequest, RunRecord, TurnRecord
from ..storage.database import DatabaseKind, open_database, open_or_memory, read_database, transaction

# ---- ledger file

# The ledger's SQLite file: tables, migrations, reading, and deletion of all rows.

FILE_NAME: Final = "ledger.sqlite"

_IS_CALLED = """key TEXT NOT NULL, client TEXT NOT NULL, dialect TEXT NOT NULL, backend TEXT NOT NULL,
    asked TEXT NOT NULL, model TEXT NOT NULL, variant TEXT NOT NULL, conversation TEXT NOT NULL"""
_COUNT_COLUMNS = "input INTEGER, cache_read INTEGER, cache_write INTEGER, output INTEGER, reasoning INTEGER"
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        f"""CREATE TABLE responses (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, {_IS_CALLED}, run TEXT NOT NULL, request_id TEXT NOT NULL,
            session TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL, error TEXT NOT NULL,
            stream INTEGER NOT NULL, calls INTEGER NOT NULL, {_COUNT_COLUMNS}, estimated INTEGER NOT NULL,
            held INTEGER, first_ms REAL, total_ms REAL NOT NULL)""",
        "CREATE INDEX responses_by_time ON responses (at)",
        "CREATE INDEX responses_by_conversation ON responses (conversation, id)",
        f"""CREATE TABLE runs (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, at REAL NOT NULL, started_at REAL NOT NULL, {_IS_CALLED},
            upstream TEXT NOT NULL, session TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL,
            error TEXT NOT NULL, responses INTEGER NOT NULL, reported INTEGER NOT NULL, complete INTEGER NOT NULL,
            steps INTEGER NOT NULL, {_COUNT_COLUMNS}, cents REAL, charged_cents REAL, cents_from TEXT NOT NULL)""",
        "CREATE INDEX runs_by_time ON runs (at)",
        "CREATE INDEX runs_by_conversation ON runs (conversation, id)",
        "CREATE INDEX runs_by_upstream ON runs (upstream) WHERE upstream != ''",
    ),
    (
        "ALTER TABLE responses ADD COLUMN called TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE responses ADD COLUMN recoveries TEXT NOT NULL DEFAULT ''",
    ),
    (
        "ALTER TABLE responses ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
    ),
)
LEDGER: Final = DatabaseKind("usage records", MIGRATIONS, cache_kib=8192)


@contextmanager
def reading_ledger(data_dir: Path) -> Iterator[sqlite3.Connection]:
    """The ledger, opened for reading; an empty one if nothing was written yet. Raises sqlite3.Error."""
    with closing(read_database(data_dir / FILE_NAME, LEDGER) or open_or_memory(None, LEDGER)) as connection:
        yield connection


def forget(path: Path) -> tuple[int, int]:
    """Deletes every row, also from free space; returns (responses, runs). Raises as `open_database` does."""
    with closing(open_database(path, LEDGER)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        with transaction(connection):
            responses = connection.execute("DELETE FROM responses").rowcount
            runs = connection.execute("DELETE FROM runs").rowcount
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return responses, runs


# ---- writing


MAX_NAME: Final = 120
"""The maximum length of a model's name, which clients choose, valid or not."""
MAX_WORDS: Final = 32
"""The maximum number of tools named for a response."""
LedgerRecord = TurnRecord | RunRecord | RefusedRequest
REFUSED: Final = "refused"
"""The `session` of a request without a response."""
STAND_IN: Final = " (stand-in)"
"""The suffix of a backend's name if its requests went to an address that is not Cursor's own."""
_CALLED: Final = "key, client, dialect, backend, asked, model, variant, conversation"
_TOKENS: Final = "input, cache_read, cache_write, output, reasoning"
_RESPONSE_COLUMNS: Final = (
    f"at, {_CALLED}, run, request_id, session, reason, outcome, error, stream, calls, {_TOKENS}, "
    "estimated, held, first_ms, total_ms, called, recoveries, kind"
)
_RUN_COLUMNS: Final = (
    f"run, at, started_at, {_CALLED}, upstream, session, reason, outcome, error, responses, "
    f"reported, complete, steps, {_TOKENS}, cents, charged_cents, cents_from, kind"
)
_LATE: Final = f"reported, complete, steps, {_TOKENS}, cents, charged_cents, cents_from"
"""Columns that a second record of the same run may update."""


TOGETHER: Final = 32
"""Rows of one statement. Each statement holds the interpreter lock, which streams also need."""
NO_ROW: Final = (OverflowError, ValueError, sqlite3.DataError, sqlite3.IntegrityError)
"""Errors of a record that no retry can write."""
_Row = tuple[object, ...]


def _inserts(table: str, columns: str, after: str = "") -> tuple[str, str]:
    """The statements for one row and for `TOGETHER` rows."""
    values = f"({', '.join('?' * len(columns.split(', ')))})"
    begin = f"INSERT INTO {table} ({columns}) VALUES "  # noqa: S608 - these are our own columns
    return f"{begin}{values}{after}", f"{begin}{', '.join([values] * TOGETHER)}{after}"


_RESPONSES: Final = _inserts("responses", _RESPONSE_COLUMNS)
_RUNS: Final = _inserts(
    "runs",
    _RUN_COLUMNS,
    f" ON CONFLICT (run) DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in _LATE.split(', '))}"
    " WHERE excluded.reported",
)
_NONE: Final = Usage()
_UNREPORTED: Final = RunUsage(steps=0)
BY_CURSOR: Final = "cursor"
"""Marks the cents of a run as reported by Cursor at its end."""


def write(connection: sqlite3.Connection, records: Iterable[LedgerRecord]) -> list[Exception]:
    """Writes the records and returns an error for each that cannot be written. Must be called in a transaction."""
    responses: list[_Row] = []
    runs: list[_Row] = []
    for record in records:
        match record:
            case TurnRecord():
                responses.append(_response(record))
            case RunRecord():
                runs.append(_run(record))
            case RefusedRequest():
                responses.append(_refused(record))
    return [*_write(connection, _RESPONSES, responses), *_write(connection, _RUNS, runs)]


def _write(connection: sqlite3.Connection, statements: tuple[str, str], rows: list[_Row]) -> list[Exception]:
    one, many = statements
    problems: list[Exception] = []
    for at in range(0, len(rows), TOGETHER):
        some = rows[at : at + TOGETHER]
        if len(some) == TOGETHER:
            try:
                connection.execute(many, list(chain.from_iterable(some)))
                continue
            except NO_ROW:  # the statement wrote no row: single inserts find the bad one
                pass
        for row in some:
            try:
                connection.execute(one, row)
            except NO_ROW as odd:
                problems.append(odd)
    return problems


def _response(record: TurnRecord) -> tuple[object, ...]:
    usage, caller = record.usage or _NONE, record.caller
    return (
        record.started_at + record.total_ms / 1000,
        caller.key,
        caller.client,
        record.dialect,
        record.backend,
        _name(record.asked),
        _name(record.model),
        _name(record.variant),
        record.conversation,
        record.run,
        record.request_id,
        record.session,
        record.reason,
        record.outcome,
        record.error,
        record.stream,
        record.calls,
        *_tokens(usage),
        usage.estimated,
        record.held,
        record.first_event_ms,
        record.total_ms,
        _words([name for _, name in record.called]),
        _words([f"{rung} ({cause})" for rung, cause in record.recoveries]),
        record.kind,
    )


def _refused(record: RefusedRequest) -> tuple[object, ...]:
    caller, code = record.caller, record.code or record.kind
    model = _name(record.model)
    names = (caller.key, caller.client, record.dialect, "", model, model, model, "", "")
    counted = (record.request_id, REFUSED, record.kind, record.kind, code, False, 0)
    return (record.at, *names, *counted, None, None, None, None, None, False, None, None, 0.0, "", "", "")


def _run(record: RunRecord) -> tuple[object, ...]:
    usage, origin = record.usage or _UNREPORTED, record.origin
    return (
        record.run,
        record.ended_at,
        record.started_at,
        origin.caller.key,
        origin.caller.client,
        origin.dialect,
        record.backend,
        _name(origin.model),
        _name(record.model),
        _name(record.variant),
        record.conversation,
        record.upstream,
        record.session,
        record.reason,
        record.outcome,
        record.error,
        record.responses,
        record.usage is not None,
        usage.complete,
        usage.steps,
        *_tokens(usage),
        usage.cents,
        usage.charged_cents,
        BY_CURSOR if usage.cents is not None else "",
        origin.kind,
    )


def _tokens(usage: Tokens) -> tuple[int | None, ...]:
    """The values of the columns `_TOKENS`."""
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    return usage.input_tokens, read, written, usage.output_tokens, usage.reasoning_tokens


def _words(words: list[str]) -> str:
    """The first `MAX_WORDS` names (of tools, for example), one to a line."""
    return "\n".join([_name(word) for word in words[:MAX_WORDS]]) if words else ""


def _name(text: str) -> str:
    short = text[:MAX_NAME]
    return short if short.isprintable() else "".join(char if char.isprintable() else "?" for char in short)
