"""How long to wait for more parallel calls before a step of tool calls ends: each delta restarts the wait, up to a cap;
a model whose siblings came late gets a longer wait, which eases back.

Pure, but for what is remembered of a model. While a model writes its next call, tokens keep being counted: silences of
49 to 129 ms were recorded between the calls of one generation, and silence after the last. Other clients saw silent
gaps of up to 1.2 s. A sibling that comes too late is not lost: it goes out in the next response, also when the client
has answered already.
"""

import logging
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

MAX_QUIET_S: Final = 1.5
"""The longest wait that a model can earn."""
MARGIN: Final = 1.25
EASE: Final = 0.5
"""Of the way back to what a step needed, for each step without a late sibling."""
NEAR_S: Final = 0.02
MAX_MODELS: Final = 256


def step_ends_at(called: float, spoken: float, quiet: float, cap: float) -> float:
    """From the times of the newest call and of the newest delta."""
    return min(max(called, spoken) + quiet, called + cap)


class StepWait(NamedTuple):
    quiet: float
    why: str


def wait_for(silence: float, cap: float) -> float:
    """The wait that covers this silence; 0 if none does."""
    most = min(MAX_QUIET_S, cap)
    return min(silence * MARGIN, most) if silence < most else 0.0


def after_late_sibling(quiet: float, silence: float, cap: float) -> StepWait:
    """A call came after its step was closed; `silence` is the time without a call or a delta before it."""
    wanted = wait_for(silence, cap)
    if not wanted:
        return StepWait(quiet, f"a silence of {silence:.2f} s is longer than is ever waited")
    if wanted <= quiet:
        return StepWait(quiet, "the silence was not longer than usual")
    return StepWait(wanted, f"a sibling came after a silence of {silence:.2f} s")


def after_clean_step(quiet: float, usual: float) -> StepWait:
    """`usual`: what the step needed, or the usual wait if that is longer."""
    if quiet <= usual:
        return StepWait(quiet, "the step needed it")
    eased = quiet - (quiet - usual) * EASE
    if eased - usual < NEAR_S:
        return StepWait(usual, "no sibling was late")
    return StepWait(eased, "no sibling was late this time")


class StepPace:
    """Of one model: how long a silence ends its steps."""

    __slots__ = ("_cap", "_usual", "quiet")

    def __init__(self, usual: float, cap: float) -> None:
        self._usual, self._cap = usual, cap
        self.quiet = usual

    def late(self, silence: float) -> None:
        self._move(after_late_sibling(self.quiet, silence, self._cap))

    def settled(self, silence: float) -> None:
        """Upstream went on after a step; `silence` is the longest one before a call that was not its first."""
        if self.quiet != self._usual:
            self._move(after_clean_step(self.quiet, max(self._usual, wait_for(silence, self._cap))))

    def _move(self, wait: StepWait) -> None:
        self.quiet = wait.quiet
        log.debug("the end of a step is waited for %.2f s: %s", wait.quiet, wait.why)


class StepPaces:
    """By model. Bounded: those that were used last stay."""

    def __init__(self, usual: float, cap: float) -> None:
        self._usual, self._cap = usual, cap
        self._known: dict[str, StepPace] = {}

    def of(self, model: str) -> StepPace:
        pace = self._known.pop(model, None) or StepPace(self._usual, self._cap)
        self._known[model] = pace
        if len(self._known) > MAX_MODELS:
            del self._known[next(iter(self._known))]
        return pace
