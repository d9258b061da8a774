"""Reads Cursor's token counts (deltas, checkpoints, `turn_ended`) into the tally of a turn, and checks whether the
prompt may be too large for the model's context window. Pure.

Cursor counts output while it arrives, the context at each checkpoint, and at the end of the run the total of all its
model calls.
"""

from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Final

from ...core.events import RunUsage
from ...core.request import TurnRequest
from ...core.tally import Tally
from ...cursor.wire.messages import pb

# ---- Estimates the tokens of Cursor's hidden instructions, for usage: learned from checkpoints for each model, with
# and without tools; until then 12,000 with tools and 0 without.
#
# The hidden tokens are the difference between a checkpoint's count and the tokens that the gateway sent: Cursor's own
# instructions and built-in tools. A step that Cursor did not count, such as the first step of a run or of a replay, is
# estimated with the newest value of its kind.

ASSUMED: Final = 12_000
"""The estimate with tools before the first run; 10,000 to 15,000 were seen. Without tools Cursor omits most of it."""
MAX_UNSEEN: Final = 64_000
"""The largest plausible value: a larger difference means that the text's own estimate is too low."""
MAX_KINDS: Final = 512

Learn = Callable[[int], None]


class UnseenTokens:
    """The hidden tokens by model and by whether tools are offered. Bounded: the oldest entry is dropped."""

    def __init__(self) -> None:
        self._unseen: dict[tuple[str, bool], int] = {}

    def expected(self, request: TurnRequest) -> int:
        kind = _kind(request)
        if kind in self._unseen:
            return self._unseen[kind]
        return ASSUMED if kind[1] else 0

    def learner(self, request: TurnRequest) -> Learn:
        """A function that records the hidden tokens of a run of this kind."""
        return partial(self._learn, _kind(request))

    def _learn(self, kind: tuple[str, bool], unseen: int) -> None:
        if self._unseen.get(kind) == unseen:
            return
        self._unseen.pop(kind, None)
        self._unseen[kind] = max(0, min(unseen, MAX_UNSEEN))
        if len(self._unseen) > MAX_KINDS:
            del self._unseen[next(iter(self._unseen))]


def _kind(request: TurnRequest) -> tuple[str, bool]:
    return request.model, bool(request.tools) and request.tool_choice.mode != "none"


CACHE_LIFE_S: Final = 300.0
"""The shortest time for which model makers cache a prompt."""
ASSUMED_WINDOW: Final = 200_000
"""Tokens of a window that no checkpoint has reported."""


class AgentTally(Tally):
    max_tokens: int = 0
    """The model's window; 0 if unknown."""

    def details(self, details: pb.ConversationTokenDetails) -> int | None:
        """Count the details of a checkpoint. For a run's first checkpoint, returns by how much the model's input
        exceeds the expected input."""
        self.max_tokens = details.max_tokens or self.max_tokens  # the first checkpoint often says 0
        if self._used:
            self.checkpoint(details.used_tokens)
            return None
        expected = self.expected
        self.checkpoint(details.used_tokens)
        return self._input() - expected if self._counted else None

    @property
    def fills_window(self) -> bool:
        """Whether the prompt fills at least half of the model's window, so that a refusal may be about its size."""
        return self.expected * 2 >= (self.max_tokens or ASSUMED_WINDOW)


def read_total(ended: pb.TurnEndedUpdate) -> RunUsage | None:
    """The usage of the whole run; None from an older server, which does not count."""
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
