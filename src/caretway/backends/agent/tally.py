"""Cursor's token counts (deltas, checkpoints, `turn_ended`) for the tally of a turn, and whether the prompt fills the
model's context window. Pure.

Cursor counts pieces of output as they come, the context at each checkpoint, and everything once more when the run ends:
then for all its model calls together.
"""

from math import isfinite
from typing import Final

from ...core.events import RunUsage
from ...core.tally import Tally
from ...cursor.wire.messages import pb

CACHE_LIFE_S: Final = 300.0
"""How long a model's maker keeps a prompt in its cache, at least."""
ASSUMED_WINDOW: Final = 200_000
"""Tokens, when no checkpoint has said it."""


class AgentTally(Tally):
    max_tokens: int = 0
    """The model's window; 0: nobody has said it."""

    def details(self, details: pb.ConversationTokenDetails) -> int | None:
        """Of a checkpoint. The first one of a run shows how much more the model read than was expected."""
        self.max_tokens = details.max_tokens or self.max_tokens  # the first one often says 0
        if self._used:
            self.checkpoint(details.used_tokens)
            return None
        expected = self.expected
        self.checkpoint(details.used_tokens)
        return self._input() - expected if self._counted else None

    @property
    def fills_window(self) -> bool:
        """The prompt takes half of the model's window or more: then a refusal may be about its size."""
        return self.expected * 2 >= (self.max_tokens or ASSUMED_WINDOW)


def read_total(ended: pb.TurnEndedUpdate) -> RunUsage | None:
    """None: an older server, which does not count."""
    read = ended.input_tokens if ended.HasField("input_tokens") else None
    written = ended.output_tokens if ended.HasField("output_tokens") else None
    if read is None and written is None:
        return None
    return RunUsage(
        read,
        written,
        ended.cache_read_tokens if ended.HasField("cache_read_tokens") else None,
        ended.cache_write_tokens if ended.HasField("cache_write_tokens") else None,
        ended.reasoning_tokens if ended.HasField("reasoning_tokens") else None,
        cents=_money(ended.estimated_cost.raw_cost_cents) if ended.HasField("estimated_cost") else None,
        charged_cents=_money(ended.estimated_cost.charged_cents) if ended.HasField("estimated_cost") else None,
    )


def _money(cents: float) -> float | None:
    return round(cents, 6) if isfinite(cents) and cents >= 0 else None
