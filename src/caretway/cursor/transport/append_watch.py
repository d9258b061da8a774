"""When an unanswered BidiAppend (HTTP/1.1) is waited for, sent again once over a new connection, or gives its run up: a
silent run, a slow upload, the append's timeout. Pure: times are given.

HTTP/1.1 has no PING, so an answer that does not come is all there is to go by. Nothing at all from the run and no
answer to the append: the run's way is dead. An answer is missing while the run speaks: this connection is. Then the
append is sent once more over a new one, which is its whole retry budget. An upload that moves is not in doubt.
"""

from dataclasses import dataclass
from enum import Enum

from .limits import TransportLimits


class AppendVerdict(Enum):
    WAIT = "wait"
    RESEND = "its connection leads nowhere, most likely"
    SILENT = "neither the run nor the append is answered"
    UNANSWERED = "two connections brought no answer"
    LATE = "its time is over"


@dataclass(frozen=True, slots=True)
class AppendState:
    """An append as it is seen now."""

    sent_at: float | None
    """None: it waits for a connection."""
    heard: bool
    """Its answer has begun."""
    repeated: bool
    """This is the second connection."""
    unsent: int
    """Bytes that the system has not taken."""
    run_heard_at: float | None
    """When the run's own connection last brought anything; None: it is not being read."""
    under_way: int
    """Bytes of all appends of the run."""


class AppendWatch:
    __slots__ = ("_left", "_limits", "_moved_at", "until")

    def __init__(self, limits: TransportLimits, now: float) -> None:
        self._limits = limits
        self.until = now + limits.append_timeout_s
        self._left = 0  # bytes that were unsent at the last look
        self._moved_at = 0.0  # when they were seen to be fewer than before

    def look(self, now: float, seen: AppendState) -> tuple[AppendVerdict, float]:
        """What to do, and when to look again."""
        limits = self._limits
        left, self._left = self._left, seen.unsent
        if seen.unsent < left:
            self._moved_at, self.until = now, max(self.until, now + limits.append_timeout_s)
        if now >= self.until:
            return AppendVerdict.LATE, now
        again = min(self.until, now + limits.append_silence_s)  # often enough to see an upload move
        if seen.sent_at is None:
            return AppendVerdict.WAIT, again
        limit = limits.append_silence_s + seen.under_way / limits.slowest_bytes_per_s
        moved_at = max(seen.sent_at, self._moved_at)
        if seen.run_heard_at is not None:
            silent_at = max(moved_at, seen.run_heard_at) + limit
            if now >= silent_at:
                return AppendVerdict.SILENT, now
            again = min(again, silent_at)
        if seen.heard:
            return AppendVerdict.WAIT, again
        # The second connection gets more time: two that lead nowhere are rare, a slow server is not.
        doubt_at = moved_at + limit * (2 if seen.repeated else 1)
        if now < doubt_at:
            return AppendVerdict.WAIT, min(again, doubt_at)
        return (AppendVerdict.UNANSWERED if seen.repeated else AppendVerdict.RESEND), again
