"""Estimates the tokens of Cursor's hidden instructions, for usage: learned from checkpoints for each model, with and
without tools; until then 12,000 with tools, nothing without.

What a checkpoint counts more than we knew of are Cursor's own instructions and built-in tools. A step that Cursor did
not count (the first one of a run: also of a replay, after a parked turn was lost) is estimated with what the newest run
of its kind has shown.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from ...core.request import TurnRequest

ASSUMED: Final = 12_000
"""As long as no run has shown it: 10,000 to 15,000 were seen. Without tools Cursor leaves most of it out."""
MAX_UNSEEN: Final = 64_000
"""More than this is no preamble: the text of that conversation takes more tokens than we think."""
MAX_KINDS: Final = 512

Learn = Callable[[int], None]


class UnseenTokens:
    """By model and by whether tools are offered. Bounded: those that were told last stay."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, bool], int] = {}

    def expected(self, request: TurnRequest) -> int:
        kind = _kind(request)
        if kind in self._told:
            return self._told[kind]
        return ASSUMED if kind[1] else 0

    def learner(self, request: TurnRequest) -> Learn:
        """To be called with what a run of this kind has shown."""
        return partial(self._learn, _kind(request))

    def _learn(self, kind: tuple[str, bool], unseen: int) -> None:
        if self._told.get(kind) == unseen:
            return
        self._told.pop(kind, None)
        self._told[kind] = max(0, min(unseen, MAX_UNSEEN))
        if len(self._told) > MAX_KINDS:
            del self._told[next(iter(self._told))]


def _kind(request: TurnRequest) -> tuple[str, bool]:
    return request.model, bool(request.tools) and request.tool_choice.mode != "none"
