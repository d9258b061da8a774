"""Counts of what happened, for Prometheus: no prompt, no answer, no secret, and no label that a client can make up.

Model names come from clients, so only the first few different ones get a label of their own.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from ..core.events import Usage
from ..core.turn import Observer, TurnRecord

BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds until the first event."""
MAX_MODELS: Final = 100
OTHER: Final = "other"

_TOKENS: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}


class Metrics:
    def __init__(self) -> None:
        self._responses: Counter[tuple[str, str, str, str]] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._calls = 0
        self._first = [0] * (len(BUCKETS) + 1)
        self._first_sum = 0.0
        self._models: set[str] = set()

    def response_ended(self, record: TurnRecord) -> None:
        self._responses[record.dialect, record.backend, record.session, record.outcome] += 1
        self._calls += record.calls
        if record.first_event_ms is not None:
            seconds = record.first_event_ms / 1000
            self._first[bisect_left(BUCKETS, seconds)] += 1
            self._first_sum += seconds
        if isinstance(record.usage, Usage) and not record.usage.estimated:
            model = self._label(record.model)
            for kind, field in _TOKENS.items():
                self._tokens[kind, model] += getattr(record.usage, field) or 0

    def _label(self, model: str) -> str:
        if model not in self._models and len(self._models) < MAX_MODELS:
            self._models.add(model)
        return model if model in self._models else OTHER

    def render(self, gauges: Mapping[str, int]) -> bytes:
        """The text format, version 0.0.4."""
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE caretway_{name} gauge", f"caretway_{name} {value}"]
        lines.append("# TYPE caretway_responses_total counter")
        labels = ("dialect", "backend", "session", "outcome")
        lines += [f"caretway_responses_total{_braces(labels, key)} {n}" for key, n in sorted(self._responses.items())]
        lines += ["# TYPE caretway_tool_calls_total counter", f"caretway_tool_calls_total {self._calls}"]
        lines.append("# TYPE caretway_tokens_total counter")
        lines += [
            f"caretway_tokens_total{_braces(('kind', 'model'), key)} {n}" for key, n in sorted(self._tokens.items())
        ]
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
