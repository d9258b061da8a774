"""Tells an answer once more, with the same call ids, when `plan` has found that a client repeats a request whose answer
it lost. Recognises nothing itself.

The calls keep their ids, so whichever copy of the answer the client goes on with leads to the same parked turn.
"""

from typing import Final

from ..core.events import Event, TextDelta, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnPaused, TurnStarted
from ..core.fixed_turn import FixedTurn
from ..core.fold import Reply
from ..core.request import Message, Text, ToolCall
from .lifecycle import Happening
from .live import LiveTurn
from .response import Response, ResponseOwner
from .tickets import Tickets


def repeated_turn(answer: Message, tickets: Tickets) -> FixedTurn:
    """The events of a paused answer, and nothing behind them."""
    events: list[Event] = [TurnStarted()]
    for part in answer.parts:
        match part:
            case Text(text=text):
                events.append(TextDelta(text))
            case ToolCall(id=ticket, name=name, arguments=arguments):
                call = tickets.upstream_id(ticket)
                events.append(ToolCallStarted(call, name))
                if arguments:
                    events.append(ToolCallDelta(call, arguments))
                events.append(ToolCallReady(call, name, arguments))
            case _:
                pass
    return FixedTurn([*events, TurnPaused()])


class _Repeater:
    """The turn itself is parked and stays as it is."""

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None: ...

    def issue(self, live: LiveTurn, ticket: str) -> None: ...

    def let_go(self, response: Response) -> None: ...


REPEATER: Final[ResponseOwner] = _Repeater()
