"""Tool call ids that are the way back to a parked turn: `sess_<sid>__call_<cid>`.

A ticket names its turn, so a turn is never looked for by the text of a prompt, and two chats that open alike never
share one. Legal in every dialect: at most 64 characters of [A-Za-z0-9_-].
"""

import secrets
from typing import Final

from msgspec.structs import replace

from ..core.events import Event, ToolCallDelta, ToolCallReady, ToolCallStarted
from ..core.request import ToolResult

_SID_BYTES: Final = 8
_CALLS: Final = (ToolCallStarted, ToolCallDelta, ToolCallReady)


def new_sid() -> str:
    return secrets.token_hex(_SID_BYTES)


class Tickets:
    """In: events with upstream's own call ids, results with ours. Out: the same with the other kind of id.

    Upstream's ids may be long or hold odd characters, so they never leave the gateway.
    """

    __slots__ = ("_ours", "_theirs", "sid")

    def __init__(self, sid: str) -> None:
        self.sid = sid
        self._ours: dict[str, str] = {}
        self._theirs: dict[str, str] = {}

    def ticket(self, upstream_id: str) -> str:
        ours = self._ours.get(upstream_id)
        if ours is None:
            ours = f"sess_{self.sid}__call_{len(self._ours) + 1:x}{secrets.token_hex(3)}"
            self._ours[upstream_id] = ours
            self._theirs[ours] = upstream_id
        return ours

    def upstream_id(self, ticket: str) -> str:
        return self._theirs[ticket]

    def outward(self, event: Event) -> Event:
        if isinstance(event, _CALLS):
            return replace(event, id=self.ticket(event.id))
        return event

    def inward(self, result: ToolResult) -> ToolResult:
        return replace(result, call_id=self._theirs[result.call_id])
