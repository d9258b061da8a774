"""State that all runs of one simulator share: the clock, the heartbeat interval, counters, the prompt cache, counts of
scripted drops, conversations that stay refused.

Only this module has a clock, so that everything else is deterministic.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal

from .manners import LIVE, Manners
from .model_input import PrefixCache, Recent
from .prepared import Prepared

# ---- stats

# The simulator's counters (`/_sim/stats`) and the tokens of each model call (`/_sim/steps`); bounded, and can be reset.

MAX_RUNS: Final = 200
"""Runs that are remembered; older runs are forgotten."""
MAX_STEPS: Final = 100
"""Listed steps of one run; later steps are only counted."""


@dataclass(slots=True)
class Stats:
    connections: int = 0
    turned_away: int = 0
    """Connections that did not come through the proxy although they had to."""
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
    """Calls of `GetCurrentPeriodUsage`."""
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
    """`turn_ended` was sent, with these counts."""
    calls: int = 0
    steps: list[list[int]] = field(default_factory=list)
    """For each call: context tokens, cached tokens among them, output tokens."""

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


# ---- billing

# The cost of runs, as the simulated dashboard reports it: one row for each ended run. Prices are made up.

MAX_ROWS: Final = 10_000
"""Rows of billed runs that are kept; older rows are dropped."""
_CENTS: Final = {"read": 0.00005, "cached": 0.000005, "written": 0.00025}
"""Cents per token."""


def cents(read: int, cached: int, written: int) -> float:
    return round(_CENTS["read"] * read + _CENTS["cached"] * cached + _CENTS["written"] * written, 6)


@dataclass(frozen=True, slots=True)
class BilledRun:
    owner: str
    at_ms: int
    model: str
    conversation: str
    read: int
    """Uncached tokens."""
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

    def of_agent(self, agent: str, until_ms: int) -> list[BilledRun]:
        return [row for row in self._rows if row.conversation == agent and row.at_ms <= until_ms]

    def of(self, owner: str, until_ms: int) -> list[BilledRun]:
        """The owner's rows, newest first; rows after `until_ms` are not visible yet."""
        return [row for row in reversed(self._rows) if row.owner == owner and row.at_ms <= until_ms]


# ---- shared


MAX_DROP_KEYS: Final = 10_000
MAX_ASKED: Final = 100

Prefer = Literal["h1", "h2"]


class Drops:
    """Counts how often each `sim: drop` of each run has cut the connection. Old runs are forgotten."""

    def __init__(self) -> None:
        self._counts: Recent[tuple[str, int, int], int] = Recent(MAX_DROP_KEYS)

    def due(self, run: str, message: int, place: int, times: int) -> bool:
        """True if the drop at this place of the script in this message is due; counts it."""
        count = self._counts.get((run, message, place), 0)
        if count >= times:
            return False
        self._counts[run, message, place] = count + 1
        return True


@dataclass(slots=True)
class Shared:
    manners: Manners = LIVE
    prefer: Prefer = "h1"
    heartbeat_s: float = 5.0
    clock: Callable[[], float] = time.time
    home: Callable[[Any], bool] | None = None
    """True if a peer's address is one to which everything is served; None: no address is."""
    stats: Stats = field(default_factory=Stats)
    steps: Steps = field(default_factory=Steps)
    cache: PrefixCache = field(default_factory=PrefixCache)
    drops: Drops = field(default_factory=Drops)
    poisoned: Recent[str, None] = field(default_factory=lambda: Recent(MAX_DROP_KEYS))
    """Conversations that stay refused after a refusal without a reason."""
    billed: BilledRuns = field(default_factory=BilledRuns)
    asked: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=MAX_ASKED))
    """For the last runs: the shape of the model fields, and the model that ran; empty if none ran."""

    prepared: Prepared = field(default_factory=Prepared)

    def comes_from_home(self, peer: Any) -> bool:
        return self.home is not None and self.home(peer)
