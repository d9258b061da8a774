"""Records as the gateway tells them, and a ledger that was told of them."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from caretway.core.caller import Caller
from caretway.core.events import RunUsage, Usage
from caretway.core.records import RefusedRequest, RequestOrigin, RunRecord, TurnRecord
from caretway.storage.database import read_database
from caretway.usage.ledger import Ledger
from caretway.usage.prices import Price, PriceList
from caretway.usage.queries import By, LedgerQueries, Span, Totals
from caretway.usage.writing import FILE_NAME, LEDGER, LedgerRecord

NOW = 1_794_900_000.0
LAPTOP = Caller("laptop", "opencode")
EVER = Span(0.0, NOW * 2)
OWN_PRICES = {"priced": Price(1.0, 1.0, 0.1, 10.0)}

RESPONSE = TurnRecord(
    "req_1",
    "openai_chat",
    "agent",
    "model",
    "fresh",
    "first message",
    True,
    "end",
    total_ms=1500.0,
    usage=Usage(100, 10),
    caller=LAPTOP,
    asked="asked",
    variant="model",
    conversation="c1",
    run="r1",
    started_at=NOW,
)
RUN = RunRecord(
    run="r1",
    origin=RequestOrigin(LAPTOP, "req_1", "openai_chat", "asked"),
    backend="agent",
    model="model",
    variant="model",
    conversation="c1",
    session="fresh",
    reason="first message",
    outcome="ended",
    usage=RunUsage(100, 10, 60, 15, 4),
    upstream="u1",
    started_at=NOW,
    ended_at=NOW + 2,
)
REFUSED = RefusedRequest(
    "req_2", "POST", "/v1/messages", 429, "quota", "", "spent", NOW, LAPTOP, "anthropic_messages", "asked", turn=True
)


def response(**fields: object) -> TurnRecord:
    return replace(RESPONSE, **fields)


def run(number: int = 1, **fields: object) -> RunRecord:
    return replace(RUN, run=f"r{number}", **fields)


def tell(ledger: Ledger, records: Sequence[LedgerRecord]) -> None:
    for record in records:
        match record:
            case TurnRecord():
                ledger.response_ended(record)
            case RunRecord():
                ledger.run_ended(record)
            case RefusedRequest():
                ledger.request_refused(record)


def kept(directory: Path, *records: LedgerRecord, **limits: float) -> Path:
    """The file of a ledger that was told these, and was closed."""
    path = directory / FILE_NAME
    fields = {"max_age_s": 1e12, "max_bytes": 2**30, "clock": lambda: NOW, **limits}
    ledger = Ledger(path, **fields)  # type: ignore[arg-type]  # by name
    tell(ledger, records)
    ledger.close()
    return path


def asked(path: Path, by: By = "all", span: Span = EVER, limit: int | None = None) -> list[Totals]:
    connection = read_database(path, LEDGER)
    assert connection is not None
    try:
        return list(LedgerQueries(connection, PriceList(OWN_PRICES).find).totals(span, by, limit))
    finally:
        connection.close()
