"""Timeouts of a run: heartbeats, the silence watchdog (30 s, half on a retry that hears nothing), the progress watchdog
(90 s; 600 s while a tool runs here); none counts while a slow reader is held back. Sans I/O.

Silence: nothing at all was heard. No progress: heartbeats, and nothing that moves the turn on.
"""

from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError
from ...core.recovery import RETRY_BUDGET, Cause
from .sent_limits import MAX_MESSAGE_BYTES


class ConversationLimits(Struct, frozen=True):
    """All in seconds, except where the name says otherwise."""

    client_heartbeat: float = 5.0
    exec_heartbeat: float = 3.0
    silence: float = 30.0
    progress: float = 90.0
    tool_progress: float = 600.0
    """The same while a tool runs on this side."""
    sibling_quiet: float = 0.2
    """Without any delta after which a step of calls is complete, when nobody says how many there are."""
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
        """Nothing came since the attempt was opened."""
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
