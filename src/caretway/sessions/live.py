"""One live turn as the session engine sees it: the turn, its tickets, its state, and who may come back for it."""

import asyncio
from dataclasses import dataclass, field

from ..core.request import TurnRequest
from ..core.turn import Turn
from .lifecycle import Happening, State, move
from .plan import Parked
from .tickets import Tickets


@dataclass(slots=True, eq=False)
class LiveTurn:
    turn: Turn
    tickets: Tickets
    model: str
    tools: bytes
    request: TurnRequest
    """The newest request of this turn: with our answer it is the transcript."""
    state: State = State.RUNNING
    open: set[str] = field(default_factory=set)
    """Tickets the client holds and has not answered."""
    issued: set[str] = field(default_factory=set)
    transcript: bytes = b""
    """Fingerprint of the history with the answer that made the open calls."""
    timer: asyncio.TimerHandle | None = None

    def happened(self, happening: Happening) -> None:
        self.state = move(self.state, happening)
        if self.timer is not None and self.state is not State.PARKED:
            self.timer.cancel()
            self.timer = None

    def parked(self) -> Parked:
        waiting = self.state is State.PARKED
        return Parked(self.tickets.sid, frozenset(self.open), self.model, self.tools, self.transcript, waiting)
