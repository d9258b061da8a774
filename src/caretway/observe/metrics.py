"""The counters of `/metrics` for Prometheus: responses, recoveries, tokens of ended runs (each once, kinds that do not
overlap), time to the first event; at most 100 model labels, because clients make names up.

Model names come from clients, so only the first few different ones get a label of their own.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from ..core.events import RunUsage
from ..core.turn import Observer, TurnRecord

BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds until the first event."""
MAX_MODELS: Final = 100
OTHER: Final = "other"
_TOKENS_HELP: Final = (
    "Tokens of ended runs as Cursor counted them; kinds do not overlap: input (neither read from nor written to the "
    "cache), cache_read, cache_write, output (reasoning included)."
)
_REASONING_HELP: Final = "The part of output tokens that was reasoning."


KINDS: Final = ("input", "cache_read", "cache_write", "output")
"""No token is counted under two of them."""


class _Tokens(Struct):
    """Those of one model, as Cursor counted them."""

    input: int = 0
    """Input that was neither read from the cache nor written to it."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    """A part of `output`."""


class Metrics:
    def __init__(self) -> None:
        self._responses: Counter[tuple[str, str, str, str]] = Counter()
        self._tokens: dict[str, _Tokens] = {}
        self._calls = 0
        self._recoveries: Counter[tuple[str, str]] = Counter()
        self._first = [0] * (len(BUCKETS) + 1)
        self._first_sum = 0.0

    def response_ended(self, record: TurnRecord) -> None:
        self._responses[record.dialect, record.backend, record.session, record.outcome] += 1
        self._calls += record.calls
        for recovery in record.recoveries:
            self._recoveries[recovery] += 1
        if record.first_event_ms is not None:
            seconds = record.first_event_ms / 1000
            self._first[bisect_left(BUCKETS, seconds)] += 1
            self._first_sum += seconds

    def run_ended(self, model: str, run: RunUsage) -> None:
        """Counts each run that Cursor reported once, even if no client read its answer to the end."""
        tokens = self._tokens.get(model) or self._more_tokens(model)
        read, written = run.cache_read_tokens or 0, run.cache_write_tokens or 0
        fresh = (run.input_tokens or 0) - read - written
        tokens.input += max(0, fresh)
        tokens.cache_read += read
        tokens.cache_write += written
        tokens.output += run.output_tokens or 0
        tokens.reasoning += run.reasoning_tokens or 0

    def _more_tokens(self, model: str) -> _Tokens:
        return self._tokens.setdefault(model if len(self._tokens) < MAX_MODELS else OTHER, _Tokens())

    def _token_lines(self) -> list[str]:
        counted = sorted(self._tokens.items())
        tokens = [((kind, model), getattr(counts, kind)) for kind in KINDS for model, counts in counted]
        return [
            f"# HELP caretway_tokens_total {_TOKENS_HELP}",
            "# TYPE caretway_tokens_total counter",
            *[f"caretway_tokens_total{_braces(('kind', 'model'), key)} {n}" for key, n in tokens],
            f"# HELP caretway_reasoning_tokens_total {_REASONING_HELP}",
            "# TYPE caretway_reasoning_tokens_total counter",
            *[f"caretway_reasoning_tokens_total{_braces(('model',), (m,))} {c.reasoning}" for m, c in counted],
        ]

    def render(self, gauges: Mapping[str, int]) -> bytes:
        """The text format, version 0.0.4."""
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE caretway_{name} gauge", f"caretway_{name} {value}"]
        lines.append("# TYPE caretway_responses_total counter")
        labels = ("dialect", "backend", "session", "outcome")
        lines += [f"caretway_responses_total{_braces(labels, key)} {n}" for key, n in sorted(self._responses.items())]
        lines += ["# TYPE caretway_tool_calls_total counter", f"caretway_tool_calls_total {self._calls}"]
        lines.append("# TYPE caretway_recoveries_total counter")
        lines += [
            f"caretway_recoveries_total{_braces(('rung', 'cause'), key)} {n}"
            for key, n in sorted(self._recoveries.items())
        ]
        lines += self._token_lines()
        lines.append("# TYPE caretway_first_event_seconds histogram")
        below = 0
        for limit, count in zip((*map(str, BUCKETS), "+Inf"), self._first, strict=True):
            below += count
            lines.append(f'caretway_first_event_seconds_bucket{{le="{limit}"}} {below}')
        lines += [
            f"caretway_first_event_seconds_sum {self._first_sum:.6f}",
            f"caretway_first_event_seconds_count {below}",
        ]
        return ("\n".join(lines) + "\n").encode()


def _braces(names: Iterable[str], values: Iterable[str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Observers:
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def response_ended(self, record: TurnRecord) -> None:
        for observer in self._observers:
            observer.response_ended(record)
