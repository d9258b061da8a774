"""Tokens of one simulated run: cached and uncached input of each model call, output, reasoning, and the totals that
`turn_ended` tells.

The totals cover every model call of the run, as the real service counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from caretway.cursor.wire.messages import pb

from . import models
from .billing import cents
from .manners import Manners
from .shared import Shared
from .tokens import Piece

_ABSURD: Final = 50


@dataclass(slots=True)
class StepUsage:
    cached: int = 0
    uncached: int = 0
    output: int = 0
    reasoning: int = 0


class Meter:
    def __init__(self, shared: Shared, prompt: Iterable[Piece], conversation: str, run_key: str, model: str) -> None:
        self._shared = shared
        self._model = model
        self._prompt = list(prompt)
        self._steps = shared.steps.open(conversation, run_key, model)
        self.usage = StepUsage()

    def read(self, pieces: Iterable[Piece]) -> None:
        """These are in the prompt of the next model call."""
        self._prompt += pieces

    @property
    def context(self) -> int:
        """The size of the prompt as it stands."""
        return sum(piece.tokens for piece in self._prompt)

    def model_call(self) -> None:
        charge = self._shared.cache.charge(self._prompt)
        self.usage.cached += charge.cached
        self.usage.uncached += charge.uncached
        self._shared.stats.tokens_in_cached += charge.cached
        self._shared.stats.tokens_in_uncached += charge.uncached
        self._steps.step(charge.cached, charge.uncached)

    def said(self, tokens: int, *, reasoning: bool = False) -> None:
        self.usage.output += tokens
        self.usage.reasoning += tokens if reasoning else 0
        self._shared.stats.tokens_out += tokens
        self._steps.said(tokens)

    def ended(self) -> pb.TurnEndedUpdate:
        self._steps.ended = True
        return totals(self.usage, self._model, int(self._shared.clock() * 1000), self._shared.manners)


def totals(usage: StepUsage, model: str, now_ms: int, manners: Manners) -> pb.TurnEndedUpdate:
    """`input_tokens` includes what was read from the cache and what was written to it."""
    return pb.TurnEndedUpdate(
        input_tokens=usage.cached + usage.uncached,
        output_tokens=usage.output,
        cache_read_tokens=usage.cached * (_ABSURD if manners.absurd_cache_reads else 1),
        cache_write_tokens=usage.uncached if models.writes_cache(model) else 0,
        reasoning_tokens=usage.reasoning,
        ended_at_ms=now_ms,
        estimated_cost=pb.EstimatedCost(raw_cost_cents=cents(usage.uncached, usage.cached, usage.output))
        if manners.tells_cost
        else None,
    )
