"""Cursor's token counts (deltas, checkpoints, `turn_ended`) for the tally of a turn, and whether the prompt fills the
model's context window. Pure.

Cursor counts pieces of output as they come, the context at each checkpoint, and everything once more when the run ends:
then for all its model calls together.
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
# and without tools; until then 12,000 with tools, nothing without.
#
# What a checkpoint counts more than we knew of are Cursor's own instructions and built-in tools. A step that Cursor did
# not count (the first one of a run: also of a replay, after a parked turn was lost) is estimated with what the newest
# run of its kind has shown.

ASSUMED: Final = 12_000
"""As long as no run has shown it: 10,000 to 15,000 were seen. Without tools Cursor leaves most of it out."""
MAX_UNSEEN: Final = 64_000
"""More than this is no preamble: the text of that conversation takes more tokens than we think."""
MAX_KINDS: Final = 512

Learn = Callable[[int], None]


class UnseenTokens:
    """By model and by whether tools are offered. Bounded: those that were told last stay."""

    def __init__(self) -> None:
        self._unseen: dict[tuple[str, bool], int] = {}

    def expected(self, request: TurnRequest) -> int:
        kind = _kind(request)
        if kind in self._unseen:
            return self._unseen[kind]
        return ASSUMED if kind[1] else 0

    def learner(self, request: TurnRequest) -> Learn:
        """To be called with what a run of this kind has shown."""
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
"""How long a model's maker keeps a prompt in its cache, at least."""
ASSUMED_WINDOW: Final = 200_000
"""Tokens, when no checkpoint has said it."""


class AgentTally(Tally):
    max_tokens: int = 0
    """The model's window; 0: unknown."""

    def details(self, details: pb.ConversationTokenDetails) -> int | None:
        """Counts the details of a checkpoint. The first one of a run shows how much more the model read than
        expected."""
        self.max_tokens = details.max_tokens or self.max_tokens  # the first one often says 0
        if self._used:
            self.checkpoint(details.used_tokens)
            return None
        expected = self.expected
        self.checkpoint(details.used_tokens)
        return self._input() - expected if self._counted else None

    @property
    def fills_window(self) -> bool:
        """Whether the prompt takes half of the model's window or more: then a refusal may be about its size."""
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
