"""Timeouts of a run: heartbeats, the silence watchdog (30 s, half on a retry that hears nothing), the progress watchdog
(90 s; 600 s while a tool runs here); none counts while a slow reader is held back. Sans I/O.

Silence: nothing arrived at all. No progress: heartbeats, and nothing that moves the turn on.
"""

import logging
from typing import Final, NamedTuple

from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError
from ...core.recovery import RETRY_BUDGET, Cause
from .sent_limits import MAX_MESSAGE_BYTES

# ---- How long to wait for more parallel calls before a step of tool calls ends: each delta restarts the wait, up to a
# cap; a model whose siblings came late gets a longer wait, which eases back.
#
# Pure, but for what is remembered of a model. While a model writes its next call, tokens keep being counted: silences
# of 49 to 129 ms were recorded between the calls of one generation, and silence after the last. Other clients saw
# silent gaps of up to 1.2 s. A sibling that comes too late is not lost: it goes out in the next response, also when the
# client has answered already.

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
    """How long a silence ends a step of one model."""

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


class ConversationLimits(Struct, frozen=True):
    """All in seconds, except where the name says otherwise."""

    client_heartbeat: float = 5.0
    exec_heartbeat: float = 3.0
    silence: float = 30.0
    progress: float = 90.0
    tool_progress: float = 600.0
    """The same while a tool runs on this side."""
    sibling_quiet: float = 0.2
    """Without any delta after which a step of calls is complete, if their number is unknown."""
    sibling_cap: float = 1.5
    """After the last call, however much is heard; and for calls that were announced and do not come."""
    retries: int = RETRY_BUDGET
    max_blob_bytes: int = 64 * 1024 * 1024
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """Of one message of the conversation, images as base64: Cursor hands it back to be stored, in one frame."""


class GivenUp(Struct, frozen=True):
    """A watchdog's verdict on an attempt."""

    cause: Cause
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
        """When the newest call for the client came, and the newest delta of any kind."""
        self.heartbeat_at = self.exec_heartbeat_at = 0.0
        self.pause_at: float | None = None
        """When to look whether the step is over."""

    def opened(self, now: float, *, again: bool) -> None:
        """An attempt begins; `again`: not the first."""
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
        """A heartbeat of the client is due."""
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
        """How long neither a call nor a delta was heard."""
        return now - max(self.called, self.spoken)

    def silent(self, now: float) -> GivenUp | None:
        limit = self._limits.silence
        if self._again and self.unheard:
            limit /= 2  # a second attempt that hears nothing at all: the client has waited long enough
        if now - self.heard < limit:
            return None
        error = GatewayError(
            ErrorKind.TIMEOUT, f"Cursor sent nothing for {limit:g} seconds.", hint="Check the network and try again."
        )
        return GivenUp(Cause.SILENT, error)

    def stalled(self, now: float, *, tool_runs: bool) -> GivenUp | None:
        limit = self._limits.tool_progress if tool_runs else self._limits.progress
        if now - self.progressed < limit:
            return None
        error = GatewayError(
            ErrorKind.TIMEOUT,
            f"Cursor kept the connection alive and made no progress for {limit:g} seconds.",
            hint="Try again; if it happens at once with another prompt too, check status.cursor.com.",
        )
        return GivenUp(Cause.STALLED, error)
