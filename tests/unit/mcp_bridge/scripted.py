"""A backend whose turns say what the test wrote down, and tools that answer when the test lets them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.event_buffer import EventBuffer
from caretway.core.events import Event, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnPaused, TurnStarted
from caretway.core.fold import Reply, fold
from caretway.core.order import EventOrder
from caretway.core.request import Message, Role, Text, ToolResult, ToolSpec, TurnRequest
from caretway.core.turn import Abilities, BackendStatus, ModelInfo, Snapshot, Turn
from caretway.mcp_bridge.backend import BridgedBackend, Terms
from caretway.mcp_bridge.catalogue import BridgedTool, ListedTool, McpCatalogue, catalogue
from caretway.mcp_bridge.definitions import Process, ServerDefinition
from receiving import receive

PARKING = Abilities(client_tools="native", parks=True, continues=True)
TEXT = Abilities(client_tools="native", parks=False)


def request(*tools: str, **more: object) -> TurnRequest:
    specs = tuple(ToolSpec(name) for name in tools)
    return TurnRequest("model", (Message(Role.USER, (Text("go"),)),), specs, **more)  # type: ignore[arg-type]  # by name


def called(call_id: str, name: str, arguments: str = "{}") -> list[Event]:
    return [ToolCallStarted(call_id, name), ToolCallDelta(call_id, arguments), ToolCallReady(call_id, name, arguments)]


@dataclass
class ScriptedTurn:
    """Its script: one list of events for each step, one step for each round of the event loop; after TurnPaused the
    next one waits for results."""

    steps: list[list[Event]]
    submitted: list[tuple[list[ToolResult], list[Text]]] = field(default_factory=list)
    closed: bool = False
    refuses: bool = False

    def __post_init__(self) -> None:
        self._buffer = EventBuffer(1 << 20)
        self.listen, self.take = self._buffer.listen, self._buffer.take

    def play(self) -> None:
        if self.closed or not self.steps:
            return
        events = self.steps.pop(0)
        self._buffer.put([TurnStarted(), *events])
        if not isinstance(events[-1], TurnPaused):
            asyncio.get_running_loop().call_soon(self.play)

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        if self.refuses:
            raise GatewayError(ErrorKind.TURN_GONE, "gone")
        self.submitted.append((list(results), list(extra)))
        self.play()

    def snapshot(self) -> Snapshot | None:
        return Snapshot("scripted", b"state")

    def close(self) -> None:
        self.closed = True
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()


@dataclass
class ScriptedBackend:
    scripts: list[ScriptedTurn]
    abilities: Abilities = PARKING
    name: str = "scripted"
    standing: str = "simulated"
    started: list[TurnRequest] = field(default_factory=list)
    turns: list[ScriptedTurn] = field(default_factory=list)

    async def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo("model")]

    async def status(self) -> BackendStatus:
        return BackendStatus(True)

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        self.started.append(request)
        self.turns.append(self.scripts.pop(0))
        asyncio.get_running_loop().call_soon(self.turns[-1].play)
        return self.turns[-1]

    async def aclose(self) -> None: ...


class Tools:
    """A tool `quick` that answers at once and a tool `slow` that answers when it is let go, both of server `s`."""

    def __init__(self) -> None:
        definition = ServerDefinition("s", Process("x"))
        self.catalogue: McpCatalogue = catalogue([(definition, [ListedTool("quick"), ListedTool("slow")])])
        self.go = asyncio.Event()
        self.running: list[str] = []
        self.cancelled: list[str] = []

    async def ready(self) -> None: ...

    async def call(self, tool: BridgedTool, arguments: str, call_id: str) -> ToolResult:
        self.running.append(call_id)
        try:
            if tool.tool.name == "slow":
                await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(call_id)
            raise
        return ToolResult(call_id, (Text(f"{tool.tool.name} says {arguments}"),))


def bridged(
    inner: ScriptedBackend, tools: Tools, terms: Terms | None = None, guard: object = lambda request: request
) -> BridgedBackend:
    return BridgedBackend(inner, tools, guard, terms or Terms())  # type: ignore[arg-type]  # standing is a plain str here


async def response(turn: Turn) -> Reply:
    """One whole response, with its order checked."""
    order = EventOrder()
    events: list[Event] = []
    while not events or order.state.name != "OVER":
        for event in await receive(turn):
            order.check(event)
            events.append(event)
    return fold(events)
