"""The ledger's SQLite file: its tables and their migrations; deleting every row."""

from contextlib import closing
from pathlib import Path
from typing import Final

from ...storage.database import DatabaseKind, open_database, transaction

FILE_NAME: Final = "ledger.sqlite"

_CALLED = """key TEXT NOT NULL, client TEXT NOT NULL, dialect TEXT NOT NULL, backend TEXT NOT NULL,
    asked TEXT NOT NULL, model TEXT NOT NULL, variant TEXT NOT NULL, conversation TEXT NOT NULL"""
_TOKENS = "input INTEGER, cache_read INTEGER, cache_write INTEGER, output INTEGER, reasoning INTEGER"
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        f"""CREATE TABLE responses (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, {_CALLED}, run TEXT NOT NULL, request_id TEXT NOT NULL,
            session TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL, error TEXT NOT NULL,
            stream INTEGER NOT NULL, calls INTEGER NOT NULL, {_TOKENS}, estimated INTEGER NOT NULL,
            held INTEGER, first_ms REAL, total_ms REAL NOT NULL)""",
        "CREATE INDEX responses_by_time ON responses (at)",
        "CREATE INDEX responses_by_conversation ON responses (conversation, id)",
        f"""CREATE TABLE runs (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, at REAL NOT NULL, started_at REAL NOT NULL, {_CALLED},
            upstream TEXT NOT NULL, session TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL,
            error TEXT NOT NULL, responses INTEGER NOT NULL, reported INTEGER NOT NULL, complete INTEGER NOT NULL,
            steps INTEGER NOT NULL, {_TOKENS}, cents REAL, charged_cents REAL, cents_from TEXT NOT NULL)""",
        "CREATE INDEX runs_by_time ON runs (at)",
        "CREATE INDEX runs_by_conversation ON runs (conversation, id)",
        "CREATE INDEX runs_by_upstream ON runs (upstream) WHERE upstream != ''",
    ),
    (
        "ALTER TABLE responses ADD COLUMN called TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE responses ADD COLUMN recoveries TEXT NOT NULL DEFAULT ''",
    ),
)
LEDGER: Final = DatabaseKind("usage records", MIGRATIONS, cache_kib=8192)


def forget(path: Path) -> tuple[int, int]:
    """Delete every row, also from the file's free space; (responses, runs). Raises as `open_database` does."""
    with closing(open_database(path, LEDGER)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        with transaction(connection):
            responses = connection.execute("DELETE FROM responses").rowcount
            runs = connection.execute("DELETE FROM runs").rowcount
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return responses, runs
