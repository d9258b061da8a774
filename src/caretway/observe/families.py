"""Counters and histograms with labels, in Prometheus' text format (0.0.4): HELP and TYPE for each, escaped labels, and
how many label sets there can be (bounded cardinality: names that clients make up share `other` beyond a limit).

Knows nothing of responses or runs; `metrics` says what is counted.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

OTHER: Final = "other"
"""The label of every name beyond a limit."""
MAX_SERIES: Final = 2000
"""Label sets of one counter. From then on a new set has `other` for every open label."""
MAX_HISTOGRAMS: Final = 200
"""The same of a histogram, which has a series for each bucket."""


class Names:
    """The values of an open label: the first few keep their name."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[str, str] = {}

    def label(self, name: str) -> str:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._limit:
                return OTHER
            known = self._known[name] = name
        return known


class Family(Struct, frozen=True):
    """One metric: all series of one name."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    open: frozenset[str] = frozenset()
    """Labels whose values come from outside. Those of the others are a few fixed words."""

    def other(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """The label set that stands for all that have no series of their own."""
        return tuple(OTHER if label in self.open else value for label, value in zip(self.labels, values, strict=True))

    def head(self, kind: Literal["counter", "gauge", "histogram"]) -> list[str]:
        return [f"# HELP {self.name} {_help(self.help)}", f"# TYPE {self.name} {kind}"]


class CounterFamily:
    def __init__(self, family: Family, limit: int = MAX_SERIES) -> None:
        self._family = family
        self._limit = limit
        self._series: dict[tuple[str, ...], list[float]] = {} if family.labels else {(): [0]}

    def cell(self, values: tuple[str, ...] = ()) -> list[float]:
        """The one number of a series, to be counted up in place."""
        series = self._series
        if values not in series and len(series) >= self._limit:
            values = self._family.other(values)
        return series.setdefault(values, [0])

    def add(self, values: tuple[str, ...] = (), amount: float = 1) -> None:
        self.cell(values)[0] += amount

    def lines(self, key: str | None = None) -> list[str]:
        """`key`: only its series."""
        name, labels = self._family.name, self._family.labels
        series = sorted(self._series.items())
        if key is not None:
            at = labels.index("key")
            series = [one for one in series if one[0][at] == key]
        return [*self._family.head("counter"), *[f"{name}{braces(labels, key)} {number(n)}" for key, (n,) in series]]


class Spread:
    """One series of a histogram."""

    __slots__ = ("_buckets", "counts", "total")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self._buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        self.counts[bisect_left(self._buckets, amount)] += 1
        self.total += amount


class HistogramFamily:
    def __init__(self, family: Family, buckets: Sequence[float], limit: int = MAX_HISTOGRAMS) -> None:
        self._family = family
        self._buckets = tuple(buckets)
        self._limit = limit
        self._series: dict[tuple[str, ...], Spread] = {}

    def spread(self, values: tuple[str, ...]) -> Spread:
        found = self._series.get(values)
        if found is None:
            if len(self._series) >= self._limit:
                values = self._family.other(values)
            found = self._series.setdefault(values, Spread(self._buckets))
        return found

    def lines(self) -> list[str]:
        name, labels = self._family.name, self._family.labels
        lines = self._family.head("histogram")
        for values, spread in sorted(self._series.items()):
            below = 0
            for limit, count in zip((*map(str, self._buckets), "+Inf"), spread.counts, strict=True):
                below += count
                lines.append(f"{name}_bucket{braces((*labels, 'le'), (*values, limit))} {below}")
            lines.append(f"{name}_sum{braces(labels, values)} {number(spread.total)}")
            lines.append(f"{name}_count{braces(labels, values)} {below}")
        return lines


def gauge_lines(family: Family, series: Mapping[tuple[str, ...], float]) -> list[str]:
    return [
        *family.head("gauge"),
        *[f"{family.name}{braces(family.labels, values)} {number(n)}" for values, n in series.items()],
    ]


def number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")


def braces(names: Iterable[str], values: Iterable[str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
