"""One live turn as the session engine sees it: the turn, its tickets, its state, and who may come back for it."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from ..core.request import Message, Role, ToolResult, TurnRequest
from ..core.turn import Turn
from .lifecycle import Happening, State, move
from .plan import Parked
from .tickets import Tickets
from .transcript import Chain, tools_key

NOTHING: Final = Message(Role.ASSISTANT, ())


@dataclass(slots=True, eq=False)
class LiveTurn:
    turn: Turn
    tickets: Tickets
    request: TurnRequest
    """The newest request of this turn."""
    chain: Chain | None = None
    """Of all that was said before `unchained`; None: of nothing yet."""
    unchained: tuple[Message, ...] = ()
    answer: Message = NOTHING
    """The newest answer: the one that made the open calls."""
    given: tuple[ToolResult, ...] = ()
    """What it was resumed with last."""
    state: State = State.RUNNING
    open: list[str] = field(default_factory=list)
    """Tickets the client holds and has not answered."""
    issued: list[str] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None

    def happened(self, happening: Happening) -> None:
        self.state = move(self.state, happening)
        if self.timer is not None and self.state is not State.PARKED:
            self.timer.cancel()
            self.timer = None

    def answered(self, answer: Message) -> None:
        self.answer = answer
        self.unchained = (*self.unchained, answer)

    def transcript(self) -> bytes:
        """Fingerprint of all that was said so far."""
        chain = self.chain
        if chain is None:
            chain = self.chain = Chain(tools_key(self.request.tools))
        unchained, self.unchained = self.unchained, ()
        return chain.add(unchained).digest()

    def parked(self) -> Parked:
        request, waiting = self.request, self.state is State.PARKED
        return Parked(
            sid=self.tickets.sid,
            tickets=frozenset(self.open),
            model=request.model,
            tools=request.tools,
            history=request.messages,
            answer=self.answer,
            transcript=self.transcript,
            waiting=waiting,
            given=self.given,
            abandoned=self.state is State.DETACHED,
        )
