"""What Cursor's own list says of the conversations of a ledger."""

from contextlib import closing
from pathlib import Path

import pytest

from caretway.core.account_usage import UsageEvent, UsageEvents
from caretway.storage.database import read_database
from caretway.usage.queries import EventCost, Span, event_cost
from caretway.usage.writing import LEDGER

from .told import EVER, NOW, kept, run

OURS = (UsageEvent(NOW, conversation="u1", cents=2.0), UsageEvent(NOW, conversation="u1", cents=1.5, charged_cents=1.0))
STRANGE = (UsageEvent(NOW, conversation="another", cents=7.0), UsageEvent(NOW, cents=9.0))


@pytest.mark.parametrize(
    ("events", "span", "expected"),
    [
        (UsageEvents(OURS + STRANGE), EVER, EventCost(3.5, 1.0, 1, 1)),
        (UsageEvents(OURS, complete=False), EVER, EventCost(3.5, 1.0, 1, 1, complete=False)),
        (UsageEvents(STRANGE), EVER, EventCost(missing=2)),
        (UsageEvents((UsageEvent(NOW, conversation="u1"),)), EVER, EventCost(0.0, 0.0, 1, 1)),
        (UsageEvents(OURS), Span(0.0, 1.0), EventCost()),
    ],
    ids=["ours and strangers'", "more than was fetched", "only strangers'", "no price", "another time"],
)
def test_events_are_matched_by_conversation(
    tmp_path: Path, events: UsageEvents, span: Span, expected: EventCost
) -> None:
    path = kept(tmp_path, run(1), run(2), run(3, upstream="u2"), run(4, upstream=""))
    ledger = read_database(path, LEDGER)
    assert ledger is not None
    with closing(ledger):
        assert event_cost(ledger, span, events) == expected
