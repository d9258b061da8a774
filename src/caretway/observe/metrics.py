"""The metrics of `/metrics` for Prometheus, by model, backend and key: responses, tool calls, recoveries, session
reasons, tokens of ended runs (each once, in kinds that do not overlap), refused requests, time to the first event and
to the end; and the process (CPU, start, memory, file descriptors).

Names of models and keys come from outside, so only the first ones get a label of their own.
"""

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from .. import __version__
from ..core.records import Observer, RefusedRequest, RunRecord, TurnRecord
from ..processes.memory import resident_bytes

# ---- families

# Counters and histograms with labels, in Prometheus' text format (0.0.4): HELP and TYPE for each, escaped labels, and a
# bound for the label sets (cardinality: client-made names share `other` beyond a limit).

OTHER: Final = "other"
"""The label of every name beyond a limit."""
MAX_SERIES: Final = 2000
"""The limit for label sets of one counter. Beyond it, a new set has `other` for every open label."""
MAX_HISTOGRAMS: Final = 200
"""The limit for label sets of one histogram, which has a series for each bucket."""


class Names:
    """The values of an open label: only the first ones keep their name."""

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
    """One metric with all its series."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    open: frozenset[str] = frozenset()
    """Labels whose values come from outside. All other labels have a few fixed values."""

    def other(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """The label set shared by all values without a series of their own."""
        return tuple(OTHER if label in self.open else value for label, value in zip(self.labels, values, strict=True))

    def head(self, kind: Literal["counter", "gauge", "histogram"]) -> list[str]:
        return [f"# HELP {self.name} {_help(self.help)}", f"# TYPE {self.name} {kind}"]


class CounterFamily:
    def __init__(self, family: Family, limit: int = MAX_SERIES) -> None:
        self._family = family
        self._limit = limit
        self._series: dict[tuple[str, ...], list[float]] = {} if family.labels else {(): [0]}

    def cell(self, values: tuple[str, ...] = ()) -> list[float]:
        """The number of a series, in a list so that callers can increment it."""
        series = self._series
        if values not in series and len(series) >= self._limit:
            values = self._family.other(values)
        return series.setdefault(values, [0])

    def add(self, values: tuple[str, ...] = (), amount: float = 1) -> None:
        self.cell(values)[0] += amount

    def lines(self, key: str | None = None) -> list[str]:
        """The metric in Prometheus' text format. `key` limits the lines to that key's series."""
        name, labels = self._family.name, self._family.labels
        series = sorted(self._series.items())
        if key is not None:
            at = labels.index("key")
            series = [one for one in series if one[0][at] == key]
        return [*self._family.head("counter"), *[f"{name}{braces(labels, key)} {number(n)}" for key, (n,) in series]]


class Spread:
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


# ---- metrics


MAX_MODELS: Final = 100
MAX_KEYS: Final = 100
MAX_REASONS: Final = 100
KINDS: Final = ("input", "cache_read", "cache_write", "output")
"""The kinds of tokens; each token counts in exactly one."""
_MODEL: Final = frozenset({"model"})
_NAMED: Final = frozenset({"model", "key"})

FIRST_EVENT_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
DURATION_BUCKETS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
GAUGES: Final = {
    "live_turns": "Turns that are held with Cursor now, parked ones included.",
    "parked_turns": "Turns that wait for the results of a client's tools now.",
    "running": "Responses that are being made now.",
    "tasks": "Background tasks of the gateway now.",
}
"""The gauges of `/metrics`, and their help texts."""
BUILD: Final = Family("caretway_build_info", "The running version, as a label; the value is always 1.", ("version",))
RESPONSES: Final = Family(
    "caretway_responses_total",
    "Responses that ended, by API, backend, model, key, session (fresh, replayed, resumed, continued) and outcome.",
    ("dialect", "backend", "model", "key", "session", "outcome"),
    _NAMED,
)
CALLS: Final = Family(
    "caretway_tool_calls_total", "Tool calls that clients were given to run.", ("backend", "model", "key"), _NAMED
)
REASONS: Final = Family(
    "caretway_session_reasons_total",
    "Why a response was fresh, replayed, resumed or continued, as in x-caretway-session-reason.",
    ("session", "reason"),
    frozenset({"reason"}),
)
RECOVERIES: Final = Family(
    "caretway_recoveries_total", "Runs that were lost and went on, by what was done and why.", ("rung", "cause")
)
REFUSED: Final = Family(
    "caretway_refused_requests_total",
    "Requests that were answered with an error before a model was asked, by API and kind of error.",
    ("dialect", "kind"),
)
RUNS: Final = Family(
    "caretway_runs_total",
    "Runs of Cursor that are over, by backend, model, key, how they were opened and how they ended.",
    ("backend", "model", "key", "session", "outcome"),
    _NAMED,
)
TOKENS: Final = Family(
    "caretway_tokens_total",
    "Tokens of ended runs as Cursor counted them; kinds do not overlap: input (neither read from nor written to the "
    "cache), cache_read, cache_write, output (reasoning included).",
    ("kind", "model", "key"),
    _NAMED,
)
REASONING: Final = Family(
    "caretway_reasoning_tokens_total", "The part of output tokens that was reasoning.", ("model", "key"), _NAMED
)
FIRST_EVENT: Final = Family(
    "caretway_first_event_seconds",
    "Seconds from a request to the first event of its answer.",
    ("backend", "model", "session"),
    _MODEL,
)
DURATION: Final = Family(
    "caretway_response_duration_seconds",
    "Seconds from a request to the end of its answer.",
    ("backend", "model", "session"),
    _MODEL,
)
_COUNTERS: Final = (RESPONSES, CALLS, REASONS, RECOVERIES, REFUSED, RUNS, TOKENS, REASONING)

_STARTED: Final = time.time()
_CPU: Final = Family("process_cpu_seconds_total", "Seconds of CPU time that the gateway has used, user and system.")
_START: Final = Family("process_start_time_seconds", "When the gateway started, in seconds since 1970.")
_MEMORY: Final = Family("process_resident_memory_bytes", "Bytes of memory that the gateway holds.")
_OPEN: Final = Family("process_open_fds", "Open file descriptors.")
_MOST: Final = Family("process_max_fds", "File descriptors that may be open.")


class _ResponseSeries(Struct, frozen=True):
    """Counters of responses with the same labels."""

    responses: list[float]
    calls: list[float] | None
    reasons: list[float]
    first: Spread
    duration: Spread


class _RunSeries(Struct, frozen=True):
    """Counters of runs with the same labels."""

    runs: list[float]
    tokens: tuple[list[float], ...]
    """Tokens in the order of `KINDS`, then reasoning tokens."""


class Metrics(Observer):
    """Counts records. The series of equal records are looked up once, so a request costs only a few calls."""

    def __init__(self) -> None:
        self.more: Callable[[], Sequence[str]] | None = None
        """Renders the additional lines of a cluster."""
        self._models = Names(MAX_MODELS)
        self._keys = Names(MAX_KEYS)
        self._why = Names(MAX_REASONS)
        self._counters = {family: CounterFamily(family) for family in _COUNTERS}
        self._first = HistogramFamily(FIRST_EVENT, FIRST_EVENT_BUCKETS)
        self._duration = HistogramFamily(DURATION, DURATION_BUCKETS)
        self._response_series: dict[tuple[str | bool, ...], _ResponseSeries] = {}
        self._run_series: dict[tuple[str, ...], _RunSeries] = {}

    def response_ended(self, record: TurnRecord) -> None:
        alike = (
            record.dialect,
            record.backend,
            record.model,
            record.caller.key,
            record.session,
            record.reason,
            record.outcome,
            record.calls > 0,
        )
        series = self._response_series.get(alike) or self._more_responses(alike, record)
        series.responses[0] += 1
        series.reasons[0] += 1
        if series.calls is not None:
            series.calls[0] += record.calls
        for recovery in record.recoveries:
            self._counters[RECOVERIES].add(recovery)
        series.duration.observe(record.total_ms / 1000)
        if record.first_event_ms is not None:
            series.first.observe(record.first_event_ms / 1000)

    def run_ended(self, record: RunRecord) -> None:
        """Counts each run once with the usage that Cursor reported, even if no client read its answer to the end."""
        alike = (record.backend, record.model, record.origin.caller.key, record.session, record.outcome)
        series, run = self._run_series.get(alike) or self._more_runs(alike), record.usage
        if not record.again:
            series.runs[0] += 1
        if run is None:
            return
        read, written = run.cache_read_tokens or 0, run.cache_write_tokens or 0
        counts = (run.fresh, read, written, run.output_tokens or 0, run.reasoning_tokens or 0)
        for cell, count in zip(series.tokens, counts, strict=True):
            cell[0] += count

    def _more_responses(self, alike: tuple[str | bool, ...], record: TurnRecord) -> _ResponseSeries:
        if len(self._response_series) >= MAX_SERIES:  # clears only the cache: the counts stay
            self._response_series.clear()
        backend, session = record.backend, record.session
        model, key = self._models.label(record.model), self._keys.label(record.caller.key)
        found = self._response_series[alike] = _ResponseSeries(
            self._counters[RESPONSES].cell((record.dialect, backend, model, key, session, record.outcome)),
            self._counters[CALLS].cell((backend, model, key)) if record.calls else None,
            self._counters[REASONS].cell((session, self._why.label(record.reason))),
            self._first.spread((backend, model, session)),
            self._duration.spread((backend, model, session)),
        )
        return found

    def _more_runs(self, alike: tuple[str, ...]) -> _RunSeries:
        if len(self._run_series) >= MAX_SERIES:
            self._run_series.clear()
        backend, model, key, session, outcome = alike
        model, key = self._models.label(model), self._keys.label(key)
        tokens = [self._counters[TOKENS].cell((kind, model, key)) for kind in KINDS]
        found = self._run_series[alike] = _RunSeries(
            self._counters[RUNS].cell((backend, model, key, session, outcome)),
            (*tokens, self._counters[REASONING].cell((model, key))),
        )
        return found

    def request_refused(self, record: RefusedRequest) -> None:
        self._counters[REFUSED].add((record.dialect, record.kind))

    def render_for(self, key: str) -> bytes:
        """The counts of one key. Keys beyond the label limit share a label and get no counts."""
        lines = gauge_lines(BUILD, {(__version__,): 1})
        for family in (RESPONSES, CALLS, RUNS, TOKENS, REASONING):
            lines += self._counters[family].lines(key if key != OTHER else "")
        return ("\n".join(lines) + "\n").encode()

    def render(self, gauges: Mapping[str, int]) -> bytes:
        """The text format, version 0.0.4. `gauges` has a value for each of `GAUGES`."""
        lines = gauge_lines(BUILD, {(__version__,): 1})
        for name, value in gauges.items():
            lines += gauge_lines(Family(f"caretway_{name}", GAUGES[name]), {(): value})
        for family in self._counters.values():
            lines += family.lines()
        lines += [*self._first.lines(), *self._duration.lines()]
        if self.more is not None:
            lines += self.more()
        lines += _process_lines()
        return ("\n".join(lines) + "\n").encode()


def _process_lines() -> list[str]:
    """The process metrics under Prometheus' names; without memory on macOS: only /proc reports it cheaply."""
    lines = [*_CPU.head("counter"), f"{_CPU.name} {number(time.process_time())}"]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    gauges: list[tuple[Family, float]] = [(_START, _STARTED), (_OPEN, len(os.listdir("/dev/fd")))]
    if soft != resource.RLIM_INFINITY:
        gauges.append((_MOST, soft))
    if (held := resident_bytes()) is not None:
        gauges.append((_MEMORY, held))
    for family, value in gauges:
        lines += gauge_lines(family, {(): value})
    return lines


class Observers(Observer):
    """Combines observers. An observer is called only for the methods that it overrides."""

    def __init__(self, *observers: Observer) -> None:
        kinds = [(one, type(one)) for one in observers]
        self._responses = [one.response_ended for one, of in kinds if of.response_ended is not Observer.response_ended]
        self._runs = [one.run_ended for one, of in kinds if of.run_ended is not Observer.run_ended]
        self._refused = [one.request_refused for one, of in kinds if of.request_refused is not Observer.request_refused]

    def response_ended(self, record: TurnRecord) -> None:
        for tell in self._responses:
            tell(record)

    def run_ended(self, record: RunRecord) -> None:
        for tell in self._runs:
            tell(record)

    def request_refused(self, record: RefusedRequest) -> None:
        for tell in self._refused:
            tell(record)
