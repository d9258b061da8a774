"""When a client is late: the defence against slowloris. Heads and bodies that arrive too slowly, an idle connection, a
client that takes nothing of its response; and a wake-up for others. What is sent to a silent stream is `answer`'s
decision. Pure.

Three clocks: what has to arrive or end in time, a response that the client does not take, and a moment at which a
handler wants to be woken. A connection has no timer: the server looks at all of them now and then, so what is late is
noticed a moment later. Pure; times are handed in, on the loop's clock.
"""

from collections.abc import Callable
from typing import Final

NEVER: Final = float("inf")


class Deadlines:
    __slots__ = ("_send_timeout", "_stuck_since", "_unsent", "_wake", "_wake_at", "due")

    def __init__(self, send_timeout: float) -> None:
        self._send_timeout = send_timeout
        self.due = NEVER
        """When something has to have arrived or ended."""
        self._unsent = 0
        """Bytes that waited to be taken at the server's last look, and since when they have not become less."""
        self._stuck_since = NEVER
        self._wake_at = NEVER
        self._wake: Callable[[], None] | None = None

    def stuck(self, now: float, unsent: int) -> bool:
        """True when the client has taken nothing for too long of what was written."""
        if not unsent:
            self._stuck_since = NEVER
        elif unsent < self._unsent or self._stuck_since == NEVER:
            self._stuck_since = now  # the client takes something, however slowly
        elif now - self._stuck_since >= self._send_timeout:
            return True
        self._unsent = unsent
        return False

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None:
        self._wake_at = when
        self._wake = wake

    def wake_due(self, now: float) -> None:
        """Call, once, the callbacks that are due."""
        if now >= self._wake_at and self._wake is not None:
            wake, self._wake = self._wake, None
            wake()
