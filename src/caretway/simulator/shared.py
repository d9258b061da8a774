"""What all runs of one simulator share. The only place with a clock, so that everything else stays deterministic."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from .model_catalogue import ModelRules, ModelVerdict
from .stats import Stats, Steps
from .tokens import PrefixCache

MAX_DROP_KEYS: Final = 10_000
MAX_OWN_MODELS: Final = 1000

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


@dataclass(slots=True)
class Shared:
    prefer: Prefer = "h1"
    heartbeat_s: float = 5.0
    clock: Callable[[], float] = time.time
    model_rules: ModelRules | None = None
    """None: only the simulator's own models are listed, and a run may ask for any."""
    own_models: set[str] = field(default_factory=set)
    """Models that only some account has."""
    verdicts: deque[ModelVerdict] = field(default_factory=lambda: deque(maxlen=100))
    """How the last runs asked for their model."""
    stats: Stats = field(default_factory=Stats)
    steps: Steps = field(default_factory=Steps)
    cache: PrefixCache = field(default_factory=PrefixCache)
    drops: Drops = field(default_factory=Drops)

    def note_model(self, model: str) -> str:
        """An account has listed a model of its own (or none): runs may ask for it from now on."""
        if model and len(self.own_models) < MAX_OWN_MODELS:
            self.own_models.add(model)
        return model
