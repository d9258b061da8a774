"""Turns that say what the test says, and the backend that starts them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.event_buffer import EventBuffer
from caretway.core.events import Event, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnStarted
from caretway.core.fold import Reply
from caretway.core.request import Message, Role, Text, ToolChoice, ToolResult, ToolSpec, TurnRequest
from caretway.core.turn import Abilities, BackendStatus, ModelInfo, Snapshot
from caretway.sessions.lifecycle import Happening
from caretway.sessions.live import LiveTurn
from caretway.sessions.response import Response
from caretway.sessions.tickets import Tickets

TOOLS = (ToolSpec("read"), ToolSpec("write"))
PARKING = Abilities(client_tools="native", parks=True, continues=True)
GONE = GatewayError(ErrorKind.TURN_GONE, "gone")


def ask(*said: Message, choice: ToolChoice | None = None, **more: object) -> TurnRequest:
    messages = said or (Message(Role.USER, (Text("hi"),)),)
    return TurnRequest("model", messages, TOOLS, choice or ToolChoice(), **more)  # type: ignore[arg-type]  # by name


def called(call_id: str, name: str = "read", arguments: str = "{}") -> list[Event]:
    return [ToolCallStarted(call_id, name), ToolCallDelta(call_id, arguments), ToolCallReady(call_id, name, arguments)]


class PlayedTurn:
    def __init__(self, *events: Event, snapshot: Snapshot | None = None) -> None:
        self._buffer = EventBuffer(1 << 20)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self.submitted: list[tuple[list[ToolResult], list[Text]]] = []
        self.kept = snapshot
        self.lost = False
        self.closed = 0
        if events:
            self.say(TurnStarted(), *events)

    def say(self, *events: Event) -> None:
        self._buffer.put(list(events))

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        if self.lost:
            raise GONE
        self.submitted.append((list(results), list(extra)))
        self.say(TurnStarted())

    def snapshot(self) -> Snapshot | None:
        return self.kept

    def close(self) -> None:
        self.closed += 1
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()


@dataclass
class PlayedBackend:
    turns: list[PlayedTurn]
    """Those that will be started, in this order."""
    abilities: Abilities = PARKING
    name: str = "played"
    standing: str = "simulated"
    started: list[tuple[TurnRequest, Snapshot | None]] = field(default_factory=list)

    async def models(self) -> Sequence[ModelInfo]:
        return []

    async def status(self) -> BackendStatus:
        return BackendStatus(True)

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> PlayedTurn:
        self.started.append((request, snapshot))
        return self.turns.pop(0)

    async def aclose(self) -> None: ...


@dataclass
class Owner:
    """What a response tells its session engine."""

    settled: list[Happening] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    let_go_of: int = 0

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None:
        self.settled.append(happening)
        self.replies.append(reply)
        live.turn.close()

    def issue(self, live: LiveTurn, ticket: str) -> None:
        live.issued.append(ticket)
        self.issued.append(ticket)

    def let_go(self, response: Response) -> None:
        self.let_go_of += 1


def live(turn: PlayedTurn, request: TurnRequest | None = None) -> LiveTurn:
    return LiveTurn(turn, Tickets("0123456789abcdef", "call_"), request or ask())
