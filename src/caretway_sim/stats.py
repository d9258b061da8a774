"""The simulator's counters (`/_sim/stats`), and the tokens that each model call read (`/_sim/steps`); bounded, and
reset."""

from collections import deque
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

MAX_RUNS: Final = 200
"""Older ones are forgotten."""
MAX_STEPS: Final = 100
"""Of one run; later ones are counted and not listed."""


@dataclass(slots=True)
class Stats:
    connections: int = 0
    turned_away: int = 0
    """Connections that did not come through the proxy, where all have to."""
    runs_opened: int = 0
    runs_resumed: int = 0
    chats_opened: int = 0
    misdirected: int = 0
    server_configs: int = 0
    appends: int = 0
    appends_duplicate: int = 0
    appends_out_of_order: int = 0
    blobs_set: int = 0
    blobs_got: int = 0
    blob_bytes_got: int = 0
    blobs_missing: int = 0
    execs_asked: int = 0
    execs_answered: int = 0
    queries_asked: int = 0
    queries_answered: int = 0
    token_exchanges: int = 0
    token_refreshes: int = 0
    usage_asked: int = 0
    """How often `GetCurrentPeriodUsage` was called."""
    renewals_refused: int = 0
    tokens_in_uncached: int = 0
    tokens_in_cached: int = 0
    tokens_out: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def reset(self) -> None:
        for counter in fields(self):
            setattr(self, counter.name, 0)


@dataclass(slots=True)
class RunSteps:
    """The model calls of one attempt at a run."""

    conversation: str
    run: str
    model: str
    ended: bool = False
    """`turn_ended` was sent: what was counted has been told."""
    calls: int = 0
    steps: list[list[int]] = field(default_factory=list)
    """Of each call: tokens of context, those of them that were cached, output."""

    def step(self, cached: int, uncached: int) -> None:
        self.calls += 1
        if len(self.steps) < MAX_STEPS:
            self.steps.append([cached + uncached, cached, 0])

    def said(self, tokens: int) -> None:
        if self.calls == len(self.steps):
            self.steps[-1][2] += tokens

    def as_dict(self) -> dict[str, Any]:
        steps = [{"context": context, "cached": cached, "output": output} for context, cached, output in self.steps]
        return asdict(self) | {"steps": steps}


@dataclass(slots=True)
class Steps:
    _runs: deque[RunSteps] = field(default_factory=lambda: deque(maxlen=MAX_RUNS))

    def open(self, conversation: str, run: str, model: str) -> RunSteps:
        opened = RunSteps(conversation, run, model)
        self._runs.append(opened)
        return opened

    def as_list(self) -> list[dict[str, Any]]:
        return [run.as_dict() for run in self._runs]

    def reset(self) -> None:
        self._runs.clear()
