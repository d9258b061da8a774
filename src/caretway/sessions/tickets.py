"""Tool call ids that clients see: made up here, mapped to upstream's ids and back, at most 40 characters that every API
takes (`call_`, `toolu_`). They are looked up, never trusted; two chats that open alike never share a turn.

A ticket is looked up: a turn is not looked for by the text of a prompt, so two chats that open alike never share one,
and an id that is not known is a foreign one. Only a gateway of a cluster reads who may hold it. Legal in every dialect,
and nothing that a client would rewrite: at most 40 characters of [A-Za-z0-9_-] that begin as the dialect's own ids do.
"""

import re
from os import urandom
from typing import Final

from msgspec.structs import replace

from ..core.events import Event, ToolCallDelta, ToolCallReady, ToolCallStarted
from ..core.passing import Held
from ..core.request import ToolResult

REPLICA: Final = "0000"
"""Which of several gateways holds the turn, where there is only one."""
_SID_BYTES: Final = 8
_CALL_BYTES: Final = 2
_TICKET: Final = re.compile(r"[a-z]+_([0-9a-f]{4})([0-9a-f]{16})[0-9a-f]{5,}")
_CALLS: Final = (ToolCallStarted, ToolCallDelta, ToolCallReady)


def new_sid() -> str:
    return urandom(_SID_BYTES).hex()


def held_by(ticket: str) -> Held | None:
    """Which gateway of a cluster says that it holds the turn; None: this is not one of our tickets. Only
    a hint: the turn's holder looks it up."""
    found = _TICKET.fullmatch(ticket)
    return Held(found[1], found[2]) if found is not None else None


class Tickets:
    """In: events with upstream's own call ids, results with ours. Out: the same with the other kind of id.

    Upstream's ids may be long or hold odd characters, so they never leave the gateway.
    """

    __slots__ = ("_ours", "_replica", "_theirs", "prefix", "sid")

    def __init__(self, sid: str, prefix: str, replica: str = REPLICA) -> None:
        self.sid = sid
        self._replica = replica
        self.prefix = prefix
        """Of tickets from now on: the next step of a turn may be asked for through another dialect."""
        self._ours: dict[str, str] = {}
        self._theirs: dict[str, str] = {}

    def ticket(self, upstream_id: str) -> str:
        ours = self._ours.get(upstream_id)
        if ours is None:
            call = f"{urandom(_CALL_BYTES).hex()}{len(self._ours) + 1:x}"
            ours = f"{self.prefix}{self._replica}{self.sid}{call}"
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
