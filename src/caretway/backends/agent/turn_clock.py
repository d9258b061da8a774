"""Timeouts of a run: heartbeats, the silence watchdog (30 s; half in a retry that receives nothing), the progress
watchdog (90 s; 600 s while a tool runs here). The watchdogs stop while a slow reader pauses the stream. Sans I/O.

Silence means that nothing arrives. No progress means that only heartbeats arrive.
"""

import logging
from typing import Final, NamedTuple

from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError
from ...core.recovery import RETRY_BUDGET, Loss
from .sent_limits import MAX_MESSAGE_BYTES

# ---- The wait for more parallel calls before a step of tool calls ends: each delta restarts the wait, up to a cap; a
# model whose siblings came late gets a longer wait, which shrinks again.
#
# Pure except for the state of each model. Token counts arrive while a model writes its next call: silences of 49 to
# 129 ms were recorded between the calls of one generation, and silence after the last call. Other clients saw silent
# gaps of up to 1.2 s. A late sibling is not lost: the next response brings it, even if the client has already answered.

log = logging.getLogger(__name__)

MAX_QUIET_S: Final = 1.5
"""The longest wait that a model can get."""
MARGIN: Final = 1.25
EASE: Final = 0.5
"""The fraction by which the wait approaches the needed wait after each step without a late sibling."""
NEAR_S: Final = 0.02
MAX_MODELS: Final = 256


def step_ends_at(called: float, spoken: float, quiet: float, cap: float) -> float:
    """The end of the step, from the times of the newest call and the newest delta."""
    return min(max(called, spoken) + quiet, called + cap)


class StepWait(NamedTuple):
    quiet: float
    why: str


def wait_for(silence: float, cap: float) -> float:
    """The wait that covers this silence; 0 if the silence is too long for any wait."""
    most = min(MAX_QUIET_S, cap)
    return min(silence * MARGIN, most) if silence < most else 0.0


def after_late_sibling(quiet: float, silence: float, cap: float) -> StepWait:
    """The wait after a call came late; `silence` is the time without a call or a delta before it."""
    wanted = wait_for(silence, cap)
    if not wanted:
        return StepWait(quiet, f"a silence of {silence:.2f} s is longer than is ever waited")
    if wanted <= quiet:
        return StepWait(quiet, "the silence was not longer than usual")
    return StepWait(wanted, f"a sibling came after a silence of {silence:.2f} s")


def after_clean_step(quiet: float, usual: float) -> StepWait:
    """The wait after a step without a late call: closer to `usual`, the wait that is usual or that the step needed."""
    if quiet <= usual:
        return StepWait(quiet, "the step needed it")
    eased = quiet - (quiet - usual) * EASE
    if eased - usual < NEAR_S:
        return StepWait(usual, "no sibling was late")
    return StepWait(eased, "no sibling was late this time")


class StepPace:
    """The silence that ends a step of one model."""

    __slots__ = ("_cap", "_usual", "quiet")

    def __init__(self, usual: float, cap: float) -> None:
        self._usual, self._cap = usual, cap
        self.quiet = usual

    def late(self, silence: float) -> None:
        self._move(after_late_sibling(self.quiet, silence, self._cap))

    def settled(self, silence: float) -> None:
        """Upstream continued after a step; `silence` is the longest silence before a later call of the step."""
        if self.quiet != self._usual:
            self._move(after_clean_step(self.quiet, max(self._usual, wait_for(silence, self._cap))))

    def _move(self, wait: StepWait) -> None:
        self.quiet = wait.quiet
        log.debug("the end of a step is waited for %.2f s: %s", wait.quiet, wait.why)


class StepPaces:
    """The pace of each model. Bounded: the least recently used model is dropped."""

    def __init__(self, usual: float, cap: float) -> None:
        self._usual, self._cap = usual, cap
        self._known: dict[str, StepPace] = {}

    def of(self, model: str) -> StepPace:
        pace = self._known.pop(model, None) or StepPace(self._usual, self._cap)
        self._known[model] = pace
        if len(self._known) > MAX_MODELS:
            del self._known[next(iter(self._known))]
        return pace


class ConversationLimits(Struct, frozen=True):
    """Limits of a run, in seconds unless the name says otherwise."""

    client_heartbeat: float = 5.0
    exec_heartbeat: float = 3.0
    silence: float = 30.0
    progress: float = 90.0
    tool_progress: float = 600.0
    """The progress limit while a tool runs in the gateway."""
    sibling_quiet: float = 0.2
    """The silence that completes a step of calls if their number is unknown."""
    sibling_cap: float = 1.5
    """The longest wait after the last call, also while deltas arrive or announced calls are missing."""
    retries: int = RETRY_BUDGET
    max_blob_bytes: int = 64 * 1024 * 1024
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """Size of one message, with images as base64: Cursor sends the message back for storage in one frame."""


class GivenUp(Struct, frozen=True):
    """A watchdog has given an attempt up."""

    loss: Loss
    error: GatewayError


class Watch:
    __slots__ = (
        "_again",
        "_limits",
        "_opened",
        "called",
        "exec_heartbeat_at",
        "heard",
        "heartbeat_at",
        "pause_at",
        "progressed",
        "spoken",
    )

    def __init__(self, limits: ConversationLimits) -> None:
        self._limits = limits
        self._again = False
        self._opened = 0.0
        self.heard = self.progressed = 0.0
        self.called = self.spoken = 0.0
        """The times of the newest call for the client and of the newest delta."""
        self.heartbeat_at = self.exec_heartbeat_at = 0.0
        self.pause_at: float | None = None
        """The time at which to check whether the step is over."""

    def opened(self, now: float, *, again: bool) -> None:
        """An attempt begins: restart all timers. `again`: the attempt is a retry."""
        self._opened = self.heard = self.progressed = now
        self._again = again
        self.pause_at = None
        self.heartbeat_at = now + self._limits.client_heartbeat
        self.exec_heartbeat_at = now + self._limits.exec_heartbeat

    @property
    def unheard(self) -> bool:
        """Whether nothing arrived since the attempt was opened."""
        return self.heard == self._opened

    def due(self) -> float:
        at = min(self.heartbeat_at, self.exec_heartbeat_at)
        return at if self.pause_at is None else min(at, self.pause_at)

    def beats(self, now: float) -> bool:
        """Whether a client heartbeat is due. If so, schedules the next one."""
        if now < self.heartbeat_at:
            return False
        self.heartbeat_at = now + self._limits.client_heartbeat
        return True

    def exec_beats(self, now: float) -> bool:
        if now < self.exec_heartbeat_at:
            return False
        self.exec_heartbeat_at = now + self._limits.exec_heartbeat
        return True

    def held_back(self, now: float) -> None:
        """Upstream is not being read, so its silence proves nothing."""
        self.heard = self.progressed = self.called = self.spoken = now

    def hush(self, now: float) -> float:
        """Seconds since the newest call or delta."""
        return now - max(self.called, self.spoken)

    def silent(self, now: float) -> GivenUp | None:
        limit = self._limits.silence
        if self._again and self.unheard:
            limit /= 2  # a retry that receives nothing: the client has waited long enough
        if now - self.heard < limit:
            return None
        error = GatewayError(
            ErrorKind.TIMEOUT, f"Cursor sent nothing for {limit:g} seconds.", hint="Check the network and try again."
        )
        return GivenUp(Loss.SILENT, error)

    def stalled(self, now: float, *, tool_runs: bool) -> GivenUp | None:
        limit = self._limits.tool_progress if tool_runs else self._limits.progress
        if now - self.progressed < limit:
            return None
        error = GatewayError(
            ErrorKind.TIMEOUT,
            f"Cursor kept the connection alive and made no progress for {limit:g} seconds.",
            hint="Try again; if it happens at once with another prompt too, check status.cursor.com.",
        )
        return GivenUp(Loss.STALLED, error)
