"""A backend whose turns say what the test wrote down, and tools that answer when the test lets them."""

import asyncio
from typing import cast

from caretway.core.events import Event, TurnPaused, TurnStarted
from caretway.core.request import Message, Role, Text, ToolResult, ToolSpec, TurnRequest
from caretway.core.turn import Abilities, Guard, Snapshot
from caretway.mcp.backend import BridgedBackend, Offer
from caretway.mcp.bridge import McpBridge
from caretway.mcp.definitions import Process, ServerDefinition
from caretway.mcp.steps import Activity
from caretway.mcp.tools import BridgedTool, ListedTool, McpCatalogue, catalogue
from turns import PlayedBackend, PlayedTurn

TEXT = Abilities(client_tools="native", parks=False)


def request(*tools: str, **more: object) -> TurnRequest:
    specs = tuple(ToolSpec(name) for name in tools)
    return TurnRequest("model", (Message(Role.USER, (Text("go"),)),), specs, **more)  # type: ignore[arg-type]  # by name


class ScriptedTurn(PlayedTurn):
    """Its script: one list of events for each step, one step for each round of the event loop; after TurnPaused the
    next one waits for results."""

    def __init__(self, steps: list[list[Event]], *, lost: bool = False) -> None:
        super().__init__(snapshot=Snapshot("scripted", b"state"))
        self.steps = steps
        self.lost = lost

    def go_on(self) -> None:
        if self.closed or not self.steps:
            return
        events = self.steps.pop(0)
        self.say(TurnStarted(), *events)
        if not isinstance(events[-1], TurnPaused):
            asyncio.get_running_loop().call_soon(self.go_on)


class ScriptedBackend(PlayedBackend[ScriptedTurn]):
    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> ScriptedTurn:
        turn = await super().start(request, snapshot)
        asyncio.get_running_loop().call_soon(turn.go_on)
        return turn


class Tools:
    """A tool `quick` that answers at once and a tool `slow` that answers when it is let go, both of server `s`."""

    def __init__(self) -> None:
        definition = ServerDefinition("s", Process("x"))
        self.catalogue: McpCatalogue = catalogue([(definition, [ListedTool("quick"), ListedTool("slow")])])
        self.go = asyncio.Event()
        self.running: list[str] = []
        self.cancelled: list[str] = []

    async def ready(self) -> None: ...

    def left_out(self, count: int) -> None: ...

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
    inner: ScriptedBackend,
    tools: Tools,
    offer: Offer = "always",
    activity: Activity = "hidden",
    guard: Guard = lambda request: request,
) -> BridgedBackend:
    return BridgedBackend(inner, cast("McpBridge", tools), guard, offer, activity)
