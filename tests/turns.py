"""Turns that say what the test says, and the backend that starts them.

What a test needs beside (steps, batches, corrections) is a subclass in its own folder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.event_buffer import EventBuffer
from caretway.core.events import Event, EventOrder, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnStarted
from caretway.core.fold import Reply, fold
from caretway.core.request import Text, ToolResult, TurnRequest
from caretway.core.turn import Abilities, BackendStatus, ModelInfo, Snapshot, Standing, Turn
from receiving import receive

PARKING = Abilities(client_tools="native", parks=True, continues=True)
GONE = GatewayError(ErrorKind.TURN_GONE, "gone")


def called(call_id: str, name: str = "read", arguments: str = "{}") -> list[Event]:
    return [ToolCallStarted(call_id, name), ToolCallDelta(call_id, arguments), ToolCallReady(call_id, name, arguments)]


async def reply_of(turn: Turn) -> Reply:
    """One whole response, with its order checked."""
    order = EventOrder()
    events: list[Event] = []
    while not events or order.state.name != "OVER":
        for event in await receive(turn):
            order.check(event)
            events.append(event)
    return fold(events)


class PlayedTurn:
    def __init__(self, *events: Event, snapshot: Snapshot | None = None) -> None:
        self._buffer = EventBuffer(1 << 20)
        self.submitted: list[tuple[list[ToolResult], list[Text]]] = []
        self.kept = snapshot
        self.lost = False
        """Takes no results."""
        self.closed = 0
        if events:
            self.say(TurnStarted(), *events)

    def say(self, *events: Event) -> None:
        self._buffer.put(list(events))

    def go_on(self) -> None:
        """Results came."""
        self.say(TurnStarted())

    def listen(self, ready: Callable[[], None]) -> None:
        self._buffer.listen(ready)

    def take(self) -> list[Event]:
        return self._buffer.take()

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        if self.lost:
            raise GONE
        self.submitted.append((list(results), list(extra)))
        self.go_on()

    def snapshot(self) -> Snapshot | None:
        return self.kept

    def close(self) -> None:
        self.closed += 1
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()


T = TypeVar("T", bound=PlayedTurn)


@dataclass
class PlayedBackend(Generic[T]):
    coming: list[T]
    """The turns that will be started, in this order."""
    abilities: Abilities = PARKING
    name: str = "played"
    standing: Standing = "simulated"
    listed: tuple[ModelInfo, ...] = ()
    started: list[tuple[TurnRequest, Snapshot | None]] = field(default_factory=list)
    turns: list[T] = field(default_factory=list)
    """Those that were started."""

    @property
    def requests(self) -> list[TurnRequest]:
        return [request for request, _ in self.started]

    async def models(self) -> Sequence[ModelInfo]:
        return self.listed

    async def status(self) -> BackendStatus:
        return BackendStatus(True)

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> T:
        self.started.append((request, snapshot))
        self.turns.append(self.coming.pop(0))
        return self.turns[-1]

    async def aclose(self) -> None: ...
