"""What was measured, round by round, and what it says: medians with their spread, and ratios within the same round.

A ratio compares two values of one round, taken within seconds of each other, so what the machine did to both cancels.
Pure; writes nothing.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float

    def json(self) -> dict[str, float]:
        return {"median": self.median, "min": self.low, "max": self.high}


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


@dataclass(slots=True)
class Ledger:
    _values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, measure: str, target: str, value: float) -> None:
        self._values.setdefault(measure, {}).setdefault(target, []).append(value)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def measures(self) -> Iterable[str]:
        return self._values

    def targets(self, measure: str) -> Sequence[str]:
        return list(self._values.get(measure, {}))

    def has(self, measure: str, target: str) -> bool:
        return bool(self._values.get(measure, {}).get(target))

    def spread(self, measure: str, target: str) -> Spread:
        return spread(self._values[measure][target])

    def ratio(self, measure: str, target: str, base: str) -> Spread:
        """target / base, round by round; of the medians when the two were not measured in the same rounds."""
        ours, theirs = self._values[measure][target], self._values[measure][base]
        if len(ours) != len(theirs):
            value = statistics.median(ours) / statistics.median(theirs)
            return Spread(value, value, value)
        return spread([a / b for a, b in zip(ours, theirs, strict=True) if b])

    def added(self, measure: str, target: str, base: str) -> Spread:
        """target - base, round by round."""
        ours, theirs = self._values[measure][target], self._values[measure][base]
        if len(ours) != len(theirs):
            value = statistics.median(ours) - statistics.median(theirs)
            return Spread(value, value, value)
        return spread([a - b for a, b in zip(ours, theirs, strict=True)])

    def json(self) -> dict[str, Any]:
        return {
            "measures": {
                measure: {
                    target: {**spread(values).json(), "values": [round(value, 4) for value in values]}
                    for target, values in targets.items()
                }
                for measure, targets in self._values.items()
            },
            "notes": self.notes,
        }


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line through log(x), log(y), by least squares: 1 means that twice the input costs twice as much."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len(logs) < 2:
        return math.nan
    x_mean = statistics.mean(x for x, _ in logs)
    y_mean = statistics.mean(y for _, y in logs)
    return sum((x - x_mean) * (y - y_mean) for x, y in logs) / sum((x - x_mean) ** 2 for x, _ in logs)
