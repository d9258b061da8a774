"""What Cursor's own list of events says that the conversations of a ledger cost. Events are matched by the
conversation's id at Cursor, never by time or model; what the list does not have is counted, and nothing is guessed.

The list may lag ten minutes, and it is fetched only on demand.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

from ...core.account_usage import UsageEvents
from .queries import Span

_OURS: Final = "SELECT EXISTS (SELECT 1 FROM runs WHERE upstream = ? AND at >= ? AND at < ?)"
_KNOWN: Final = "SELECT count(DISTINCT upstream) FROM runs WHERE upstream != '' AND at >= ? AND at < ?"


@dataclass(frozen=True, slots=True)
class EventCost:
    """The cost of conversations that are in both the ledger and Cursor's list."""

    cents: float = 0.0
    """What their tokens are worth."""
    charged_cents: float = 0.0
    """What is to be paid for them."""
    conversations: int = 0
    missing: int = 0
    """Conversations of the ledger that the list does not have, or not yet."""
    complete: bool = True
    """False: there are more events than were fetched."""


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
