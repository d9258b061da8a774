"""The last hour of a ledger, minute by minute: answers, failures, time to the first token, tokens by kind; and the
newest answers. Every answer is bounded, however large the ledger is.

Answers and failures belong to the minute in which the response ended, tokens to the one in which their run ended:
Cursor counts them then.
"""

import sqlite3
from typing import Any, Final

from msgspec import Struct

from .queries import UNCACHED

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
"""Percentiles by the nearest rank."""
_TOKENS: Final = """SELECT CAST(at / 60 AS INTEGER) AS minute, sum({fresh}), total(cache_read), total(cache_write),
    total(output) FROM runs WHERE at >= ? AND at < ? GROUP BY minute"""
_CODES: Final = """SELECT error, count(*) FROM responses WHERE at >= ? AND at < ? AND error != '' GROUP BY error
    ORDER BY count(*) DESC, error LIMIT ?"""


class Minute(Struct):
    at: float
    """When it begins. Unix seconds."""
    answers: int = 0
    failed: int = 0
    """Answers that ended with an error."""
    refused: int = 0
    """Requests that came to no answer; they are not among the answers."""
    first_p50: float | None = None
    """Milliseconds until the first token; None: no answer had one."""
    first_p95: float | None = None
    input: int = 0
    """Neither read from the cache nor written to it."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class LastHour(Struct, frozen=True):
    minutes: list[Minute]
    """Sixty; the last one is not over."""
    codes: dict[str, int]
    """Code of an error -> how often, the most frequent first."""


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
    return LastHour(minutes, dict(db.execute(_CODES, (*span, MAX_CODES)).fetchall()))


def latest(db: sqlite3.Connection, limit: int) -> list[dict[str, Any]]:
    """The answers and refusals that ended last, the newest first."""
    cursor = db.execute(f"SELECT {_LATEST} FROM responses ORDER BY at DESC, id DESC LIMIT ?", (limit,))  # noqa: S608 - our own columns
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
