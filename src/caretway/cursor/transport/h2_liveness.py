"""PINGs on an HTTP/2 connection decide when the connection is dead (half-open behind NAT), in doubt for new runs, or
closed as idle.

Only the answer to a PING proves the connection. Other data proves nothing: through a half-dead NAT entry the peer's
heartbeats arrive, but nothing reaches the peer. `next_ping` and `patience` are pure decisions. `Liveness` holds the
pending PING and one timer: for the next PING while there are streams, for the answer to a PING, or for the idle
timeout.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from ...processes.tasks import DeadlineTimer
from .ports import TransportLimits

if TYPE_CHECKING:
    from .h2_connection import H2Connection

STEPS: Final = 4
"""The number of parts of the wait for an answer. If this process was suspended, only one part is lost, and an answer in
the socket's buffer is read before the next part ends."""
LAST_PART_S: Final = 0.01


class PendingPing:
    """A PING without an answer yet."""

    __slots__ = ("ahead", "asked_at", "heard", "patience_s", "payload", "sent", "waited_s")

    def __init__(
        self, payload: bytes, asked_at: float, patience_s: float, *, sent: int = 0, ahead: int = 0, heard: int = 0
    ) -> None:
        self.payload = payload
        self.asked_at = asked_at
        self.patience_s = patience_s
        self.sent = sent
        """Bytes written before the PING."""
        self.ahead = ahead
        """The part of `sent` that the peer may not have read yet."""
        self.heard = heard
        """Bytes read before the PING."""
        self.waited_s = 0.0


def next_ping(limits: TransportLimits, *, asked_at: float, answered_at: float, heard_at: float) -> float:
    """When to ping next on a connection with streams: sooner if it fell silent after data, but not if it only answered
    PINGs."""
    due = asked_at + limits.ping_interval_s
    return min(due, heard_at + limits.ping_quiet_s) if heard_at > answered_at else due


def patience(question: PendingPing, heard: int, limits: TransportLimits) -> float:
    """How long the answer may take. On a slow line, bytes sent before the PING delay it, and bytes that the peer sends
    before its answer (at most a window) delay the answer."""
    before_answer = min(heard - question.heard, limits.connection_window_bytes)
    return question.patience_s + (question.ahead + before_answer) / limits.slowest_bytes_per_s


class Liveness:
    __slots__ = (
        "_alarm",
        "_answered_at",
        "_asked",
        "_asked_at",
        "_connection",
        "_doubted",
        "_limits",
        "_loop",
        "_proven",
        "_question",
        "heard",
        "heard_at",
        "sent",
    )

    def __init__(self, connection: "H2Connection", limits: TransportLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._limits = limits
        self._loop = loop
        self._alarm = DeadlineTimer(loop)
        self.heard_at = self._asked_at = self._answered_at = loop.time()
        self.heard = self.sent = 0
        """Bytes that the connection has received and sent; `sent` counts only the streams' data."""
        self._proven = 0  # sent bytes that the peer has certainly read
        self._asked = 0
        self._question: PendingPing | None = None
        self._doubted = False

    @property
    def in_doubt(self) -> bool:
        """Whether a new request should use another connection."""
        question = self._question
        if question is None:
            return False
        return self._doubted or self._loop.time() - question.asked_at > self._limits.sure_s

    def opened(self, *, first: bool) -> None:
        """A stream was opened: ping if the last answer is old, with a short deadline if the last data is old, too."""
        if self._question is not None:
            return
        limits, now = self._limits, self._loop.time()
        if now - self.heard_at > limits.sure_s:
            self._ask(limits.doubt_timeout_s)
        elif now - self._answered_at > limits.sure_s:
            self._ask(limits.ping_timeout_s)
        elif first:
            self._alarm.set(limits.ping_quiet_s, self._look)

    def emptied(self) -> None:
        """The last stream has ended: start the idle timeout."""
        if self._question is None:
            self._alarm.set(self._limits.idle_timeout_s, self._connection.idle)

    def doubt(self) -> None:
        """A caller timed out: the connection is in doubt until the next answer. Ping now with a short deadline, unless
        such a PING is outstanding."""
        if self._doubted:
            return
        self._doubted = True
        question = self._question
        if question is None or question.patience_s > self._limits.doubt_timeout_s:
            self._ask(self._limits.doubt_timeout_s)

    def answered(self, payload: bytes) -> None:
        question = self._question
        if question is None or question.payload != payload:
            return  # not the answer to the last PING
        was_in_doubt = self.in_doubt
        self._question, self._doubted = None, False
        self._proven, self._answered_at = question.sent, self._loop.time()
        if self._connection.in_use:
            self._look()
        else:
            self.emptied()
        if was_in_doubt:
            self._connection.proven()

    def stop(self) -> None:
        self._alarm.cancel()
        self._question = None

    def _look(self) -> None:
        limits = self._limits
        due = next_ping(limits, asked_at=self._asked_at, answered_at=self._answered_at, heard_at=self.heard_at)
        due_in = due - self._loop.time()
        if due_in <= 0:
            self._ask(limits.ping_timeout_s)
        else:
            self._alarm.set(min(due_in, limits.ping_quiet_s), self._look)  # data and silence may come earlier

    def _ask(self, patience_s: float) -> None:
        self._asked += 1
        self._asked_at = now = self._loop.time()
        payload = self._asked.to_bytes(8, "big")
        self._question = PendingPing(
            payload, now, patience_s, sent=self.sent, ahead=self.sent - self._proven, heard=self.heard
        )
        self._wait(self._question)
        self._connection.send_ping(payload)

    def _wait(self, question: PendingPing) -> None:
        left = patience(question, self.heard, self._limits) - question.waited_s
        part = min(question.patience_s / STEPS, max(left, LAST_PART_S))
        self._alarm.set(part, lambda: self._waited(question, part))

    def _waited(self, question: PendingPing, part: float) -> None:
        question.waited_s += part
        if question.waited_s < patience(question, self.heard, self._limits):
            self._wait(question)
        else:
            self._connection.unheard(question.waited_s)
