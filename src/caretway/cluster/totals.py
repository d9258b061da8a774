"""What all replicas have used, by day, model and key: counts in Redis beside the ledger that each replica keeps for
itself. Days are those of UTC, which replicas in several zones share.

One hash for a day. The names of models and keys are sealed; the fields of their counts are HMACs.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec

from ..core.records import Observer, RefusedRequest, RunRecord, TurnRecord
from .calls import Calls, number
from .outbox import ClusterOutbox
from .seal import Seal

KEPT_S: Final = 400 * 86_400
MAX_DAYS: Final = 400
MAX_NAMED: Final = 10_000
"""Labels that this process knows to be written."""
_LABEL: Final = b"label"
_MEASURES: Final = ("runs", "responses", "refused", "input", "output", "cached", "cents")


class TotalRow(msgspec.Struct, frozen=True):
    """What one key has used of one model on one day."""

    day: str
    model: str
    key: str
    """Its name; empty: no key was asked for."""
    runs: int = 0
    responses: int = 0
    refused: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    cents: float = 0.0


class Label(msgspec.Struct, frozen=True, array_like=True):
    model: str
    key: str


class ClusterTotals(Observer):
    def __init__(self, calls: Calls, seal: Seal, outbox: ClusterOutbox, clock: Callable[[], float]) -> None:
        self._calls = calls
        self._seal = seal
        self._outbox = outbox
        self._clock = clock
        self._named: set[tuple[str, Label]] = set()

    # ---- told

    def response_ended(self, record: TurnRecord) -> None:
        self._count(Label(record.model, record.caller.key), {"responses": 1})

    def request_refused(self, record: RefusedRequest) -> None:
        if record.turn:
            self._count(Label(record.model, record.caller.key), {"refused": 1})

    def run_ended(self, record: RunRecord) -> None:
        used = record.usage
        amounts: dict[str, float] = {} if record.again else {"runs": 1}
        if used is not None:
            amounts |= {
                "input": used.input_tokens or 0,
                "output": used.output_tokens or 0,
                "cached": used.cache_read_tokens or 0,
                "cents": used.cents or 0.0,
            }
        self._count(Label(record.model, record.origin.caller.key), amounts)

    def _count(self, label: Label, amounts: dict[str, float]) -> None:
        day = datetime.fromtimestamp(self._clock(), UTC).date().isoformat()
        place = _place(self._calls, day)
        name = self._seal.name("total", day.encode(), label.model.encode(), label.key.encode())
        if (day, label) not in self._named:
            if len(self._named) >= MAX_NAMED:
                self._named.clear()
            self._named.add((day, label))
            sealed = self._seal.close(place + name, msgspec.msgpack.encode(label))
            self._outbox.put([("HSET", place, name + b" " + _LABEL, sealed), ("EXPIRE", place, KEPT_S)])
        self._outbox.count(place, {name + b" " + one.encode(): more for one, more in amounts.items()}, KEPT_S)


async def read_totals(calls: Calls, seal: Seal, since: date, until: date) -> list[TotalRow]:
    """Both days included, by day, then by name. Raises RedisAway."""
    days = [since + timedelta(days=at) for at in range(min(MAX_DAYS, (until - since).days + 1))]
    if not days:
        return []
    places = [_place(calls, day.isoformat()) for day in days]
    found = await calls.run([("HGETALL", place) for place in places])
    rows = []
    for day, place, pairs in zip(days, places, found, strict=True):
        known = pairs if isinstance(pairs, dict) else dict(zip(pairs[::2], pairs[1::2], strict=True))
        for field, sealed in known.items():
            name, _, what = field.partition(b" ")
            opened = seal.open(place + name, sealed) if what == _LABEL else None
            if opened is None:
                continue
            label = msgspec.msgpack.decode(opened, type=Label)
            numbers = {one: number(known.get(name + b" " + one.encode())) for one in _MEASURES}
            whole = {one: round(count) for one, count in numbers.items() if one != "cents"}
            rows.append(TotalRow(day.isoformat(), label.model, label.key, cents=numbers["cents"], **whole))
    return sorted(rows, key=lambda row: (row.day, row.model, row.key))


def _place(calls: Calls, day: str) -> bytes:
    return calls.key("totals1", day.encode())
