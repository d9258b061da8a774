"""What all runs of one simulator share: the clock, the heartbeat interval, counters, the prompt cache, how often each
drop has happened, conversations that stay refused.

The only place with a clock, so that everything else stays deterministic.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .billing import BilledRuns
from .manners import LIVE, Manners
from .prepared import Prepared
from .stats import Stats, Steps
from .tokens import PrefixCache

MAX_DROP_KEYS: Final = 10_000
MAX_ASKED: Final = 100

Prefer = Literal["h1", "h2"]


class Drops:
    """How often each `sim: drop` of each run has cut the connection. Old runs are forgotten."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def due(self, run: str, message: int, place: int, times: int) -> bool:
        """True when the drop at this place of the script in this message is to happen now; counts it."""
        count = self._counts.get((run, message, place), 0)
        if count >= times:
            return False
        self._counts[run, message, place] = count + 1
        while len(self._counts) > MAX_DROP_KEYS:
            self._counts.popitem(last=False)
        return True


class Poisoned:
    """Conversations that were refused without a reason, and stay so. Old ones are forgotten."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, conversation: str) -> None:
        self._ids[conversation] = None
        while len(self._ids) > MAX_DROP_KEYS:
            self._ids.popitem(last=False)

    def __contains__(self, conversation: str) -> bool:
        return conversation in self._ids


@dataclass(slots=True)
class Shared:
    manners: Manners = LIVE
    prefer: Prefer = "h1"
    heartbeat_s: float = 5.0
    clock: Callable[[], float] = time.time
    home: Callable[[Any], bool] | None = None
    """Whether the peer at an address comes from where everything is served; nobody does, if it is None."""
    stats: Stats = field(default_factory=Stats)
    steps: Steps = field(default_factory=Steps)
    cache: PrefixCache = field(default_factory=PrefixCache)
    drops: Drops = field(default_factory=Drops)
    poisoned: Poisoned = field(default_factory=Poisoned)
    billed: BilledRuns = field(default_factory=BilledRuns)
    asked: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=MAX_ASKED))
    """How the last runs asked for their model: the shape, and what ran, empty when nothing did."""

    prepared: Prepared = field(default_factory=Prepared)

    def comes_from_home(self, peer: Any) -> bool:
        return self.home is not None and self.home(peer)
