"""What the page tells of usage: totals of a period by day, model, key, client or reason, what sessions saved, why
conversations were replayed, and how much of each budget is used.
"""

import sqlite3
import time
from datetime import datetime, timedelta
from typing import Any, Final, get_args

from msgspec.structs import asdict

from ..budgets.verdict import Level, used, whose
from ..core.errors import bad_request
from ..ledger.prices import AS_OF, SOURCE, FindPrice, age_days
from ..ledger.queries import By, LedgerQueries, Span, Totals

MAX_ROWS: Final = 400
"""A year of days; of other groups the largest."""
MAX_UNPRICED: Final = 5
"""Models without a price that are named."""
PERIODS: Final = ("today", "week", "month", "all")


def span_of(period: str, now: float) -> Span:
    """Days of the machine's time zone. Raises GatewayError."""
    midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    starts = {
        "today": midnight,
        "week": midnight - timedelta(days=6),
        "month": midnight.replace(day=1),
        "all": datetime.fromtimestamp(0),
    }
    if period not in starts:
        raise bad_request(f"`period` is one of {', '.join(PERIODS)}.", param="period")
    return Span(starts[period].timestamp(), now + 1)


def by_of(word: str) -> By:
    if word not in get_args(By):
        raise bad_request(f"`by` is one of {', '.join(get_args(By))}.", param="by")
    found: By = word  # type: ignore[assignment]  # one of the words, as was just looked at
    return found


def figures(row: Totals) -> dict[str, Any]:
    shares = {"cached_share": row.cached_share, "saved_share": row.saved_share}
    return asdict(row) | {"tokens": row.tokens, "read": row.read, "cents": row.cents} | shares


def totals(db: sqlite3.Connection, price: FindPrice, span: Span, by: By) -> dict[str, Any]:
    book = LedgerQueries(db, price)
    rows = list(book.totals(span, by, MAX_ROWS + 1))
    (total,) = book.totals(span, "all") if rows else (Totals(),)
    return {
        "rows": [figures(row) for row in rows[:MAX_ROWS]],
        "rows_left_off": len(rows) > MAX_ROWS,
        "total": figures(total),
        "replays": [asdict(one) for one in book.replays(span)],
        "unpriced": book.unpriced(span, MAX_UNPRICED),
    }


NOTHING: Final[dict[str, Any]] = {
    "rows": [],
    "rows_left_off": False,
    "total": figures(Totals()),
    "replays": [],
    "unpriced": [],
}


def prices() -> dict[str, object]:
    return {"source": SOURCE, "as_of": AS_OF.isoformat(), "age_days": age_days(time.time())}


def told_level(level: Level, *, counted: bool) -> dict[str, object]:
    """`counted`: it has one count; budgets of a conversation or a run have one for each."""
    budget = level.budget
    return {
        "text": str(budget),
        "scope": budget.scope.value,
        "key": level.name,
        "measure": budget.measure.value,
        "limit": budget.limit,
        "period": budget.period.value,
        "spent": level.spent if counted else None,
        "share": level.share if counted else None,
        "low": level.low and counted,
        "resets_at": level.resets_at,
        "says": f"{whose(level)}: {used(level)}" if counted else f"{whose(level)}, each",
    }
