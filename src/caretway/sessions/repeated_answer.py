"""An answer that was given before, told once more: for a client that repeats a request whose answer it lost.

The calls keep their ids, so whichever copy of the answer the client goes on with leads to the same parked turn.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ..core.errors import ErrorKind, GatewayError
from ..core.events import Event, TextDelta, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnPaused, TurnStarted
from ..core.fold import Reply
from ..core.request import Message, Text, ToolCall, ToolResult
from ..core.turn import Snapshot
from .lifecycle import Happening
from .live import LiveTurn
from .response import Response, ResponseOwner
from .tickets import Tickets


class RepeatedTurn:
    """The events of a paused answer, and nothing behind them."""

    __slots__ = ("_events",)

    def __init__(self, answer: Message, tickets: Tickets) -> None:
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
        self._events = [*events, TurnPaused()]

    def listen(self, ready: Callable[[], None]) -> None:
        """Everything can be taken already, so nobody has to be told."""

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "A copy of an answer takes no results.")

    def snapshot(self) -> Snapshot | None:
        return None

    def close(self) -> None:
        self._events = []

    async def aclose(self) -> None:
        self.close()


class _Repeater:
    """The turn itself is parked and stays as it is."""

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None: ...

    def issue(self, live: LiveTurn, ticket: str) -> None: ...

    def let_go(self, response: Response) -> None: ...


REPEATER: Final[ResponseOwner] = _Repeater()
