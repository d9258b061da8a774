"""What runs have cost, as the simulated dashboard reports it: one row for each run that ended. Prices are made up.

Nothing here knows how a row is asked for.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

MAX_ROWS: Final = 10_000
"""Older ones are forgotten."""
_CENTS: Final = {"read": 0.00005, "cached": 0.000005, "written": 0.00025}
"""For each token."""


def cents(read: int, cached: int, written: int) -> float:
    return round(_CENTS["read"] * read + _CENTS["cached"] * cached + _CENTS["written"] * written, 6)


@dataclass(frozen=True, slots=True)
class BilledRun:
    owner: str
    at_ms: int
    model: str
    conversation: str
    read: int
    """Tokens that were not cached."""
    cached: int
    written: int

    @property
    def cents(self) -> float:
        return cents(self.read, self.cached, self.written)


class BilledRuns:
    def __init__(self) -> None:
        self._rows: deque[BilledRun] = deque(maxlen=MAX_ROWS)

    def add(self, row: BilledRun) -> None:
        self._rows.append(row)

    def of(self, owner: str, until_ms: int) -> list[BilledRun]:
        """The newest first; those after `until_ms` are not known yet."""
        return [row for row in reversed(self._rows) if row.owner == owner and row.at_ms <= until_ms]
