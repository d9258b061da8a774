"""Wraps a backend and offers MCP tools in addition to the client's tools: always, on request or never, and only with
`tool_choice` auto. Offers fewer tools if the backend refuses them as too large. Its turns run the bridged calls.

`bridge.py` reaches the servers. Sessions still compare only the tools that the client declared.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.event_buffer import OuterTurn
from ..core.events import Event
from ..core.request import Message, Text, ToolResult, TurnRequest
from ..core.turn import Backend, BackendStatus, Guard, ModelInfo, Snapshot, Turn, takes_results
from ..processes.tasks import spawn
from .bridge import McpBridge
from .steps import Activity, StepPhase, StepReader
from .tools import BridgedTool, McpCatalogue

log = logging.getLogger(__name__)

_TOO_MANY = frozenset({"tools_too_large", "too_many_tools"})
Offer = Literal["always", "ask", "never"]


class BridgedBackend:
    def __init__(
        self, inner: Backend, bridge: McpBridge, guard: Guard, offer: Offer = "always", activity: Activity = "hidden"
    ) -> None:
        """`offer`: when bridged tools are offered. `activity`: how their calls are shown to clients."""
        self.name = inner.name
        self.standing = inner.standing
        able = inner.abilities.client_tools != "none"
        # A backend that cannot park gets the whole history after each step, which counts as parking for sessions.
        self.abilities = replace(inner.abilities, parks=inner.abilities.parks or able)
        self._inner = inner
        self._bridge = bridge
        self._guard = guard
        self._offer = offer
        self._activity: Activity = activity
        self._tried: tuple[McpCatalogue, int, int] | None = None
        """The newest offer that was too large: (catalogue, number of the client's tools, number of MCP tools)."""
        self._taken = 0
        """The number of MCP tools that the backend accepted for `_tried`."""

    async def models(self) -> Sequence[ModelInfo]:
        return await self._inner.models()

    async def status(self) -> BackendStatus:
        return await self._inner.status()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        tools: dict[str, BridgedTool] = {}
        if self.wanted(request):
            await self._bridge.ready()
            tools = self._bridge.catalogue.for_request(request.tools)
        if not tools and self._inner.abilities.parks == self.abilities.parks:
            return await self._inner.start(request, snapshot)
        offered = self._bridge.catalogue, len(request.tools), len(tools)
        if offered == self._tried:  # the same offer was too large before
            tools = _first(tools, self._taken)
        while True:
            model_request = _with(request, tools)
            try:
                inner = await self._inner.start(model_request, snapshot)
                break
            except GatewayError as refused:
                if refused.code not in _TOO_MANY or not tools:
                    raise
                # The request must not fail because of tools that the client did not send.
                tools = _first(tools, len(tools) // 2)
                self._tried, self._taken = offered, len(tools)
                self._bridge.left_out(offered[2] - len(tools))
                log.warning("%d MCP tools are too large for this backend; %d are offered", offered[2], len(tools))
        return BridgedTurn(
            self._inner, inner, model_request, tools, bridge=self._bridge, guard=self._guard, activity=self._activity
        )

    def wanted(self, request: TurnRequest) -> bool:
        """Whether to offer bridged tools. A `tool_choice` other than `auto` concerns only the client's tools."""
        if self._inner.abilities.client_tools == "none" or request.tool_choice.mode != "auto":
            return False
        by_offer = {"always": request.bridge is not False, "ask": request.bridge is True, "never": False}
        return by_offer[self._offer]


def _first(tools: Mapping[str, BridgedTool], count: int) -> dict[str, BridgedTool]:
    return dict(islice(tools.items(), count))


def _with(request: TurnRequest, tools: Mapping[str, BridgedTool]) -> TurnRequest:
    specs = tuple(tool.spec() for tool in tools.values())
    return replace(request, tools=(*request.tools, *specs), bridged=frozenset(tools))


class BridgedTurn(OuterTurn):
    """Runs the bridged calls of a turn. Passes their results to the inner turn, or the whole history to a new one if
    the old turn is gone or cannot park. `steps.py` decides what to show and to do, in the callback that brings the
    inner turn's events (`core/event_buffer.py`)."""

    def __init__(
        self,
        backend: Backend,
        inner: Turn,
        request: TurnRequest,
        tools: Mapping[str, BridgedTool],
        *,
        bridge: McpBridge,
        guard: Guard,
        activity: Activity,
    ) -> None:
        super().__init__(inner)
        self._backend = backend
        self._request = request
        self._bridge = bridge
        self._guard = guard
        self._reader = StepReader(tools, activity, parks=takes_results(inner, backend))
        self._running: dict[str, asyncio.Task[ToolResult]] = {}
        """Call id -> the running bridged call of this step."""
        self._moving: asyncio.Task[None] | None = None
        self._follow(inner)

    # ---- the reader's side

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        reader = self._reader
        if reader.phase is not StepPhase.PARKED or self._closed:
            raise GatewayError(ErrorKind.TURN_GONE, "The turn does not wait for results.")
        if demanded:  # bridged tools were offered, which a demanded call excludes
            raise GatewayError(ErrorKind.TURN_GONE, "A call of a certain tool is demanded.")
        step = reader.step
        step.given, step.extra = tuple(results), tuple(extra)
        if not self._running and self._reader.parks:
            try:
                await self._inner.submit(results, extra)
            except GatewayError as gone:
                if gone.kind is not ErrorKind.TURN_GONE or not reader.worked:
                    raise
            else:
                self._remember(step.messages({}))
                reader.begin_step()
                self._hear()
                return
        reader.phase = StepPhase.COLLECTING  # the calls may take minutes: the response waits for them, not this method
        self._move_on()

    def close(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
        self._cancel_calls()
        super().close()

    # ---- the inner turn

    @property
    def _listens(self) -> bool:
        return self._reader.listens

    def _digest(self, batch: list[Event]) -> list[Event]:
        reader = self._reader
        events = reader.feed(batch)
        calls, reader.to_run = reader.to_run, []
        for tool, arguments, call_id in calls:
            self._running[call_id] = spawn(self._bridge.call(tool, arguments, call_id), f"mcp-call-{tool.id}")
        if reader.phase is StepPhase.OVER:
            self._cancel_calls()
        elif reader.phase in (StepPhase.COLLECTING, StepPhase.LOST):
            self._move_on()
        return events

    def _cancel_calls(self) -> None:
        for task in self._running.values():
            task.cancel()

    # ---- results go back

    def _move_on(self) -> None:
        self._moving = spawn(self._moved_on(), "mcp-step")

    async def _moved_on(self) -> None:
        reader = self._reader
        try:
            if reader.phase is StepPhase.COLLECTING:
                await self._pass_on()
                reader.passed_on()
            else:
                await self._start_anew(self._request)
                reader.begin_step()
        except GatewayError as error:
            self._moving = None
            self._buffer.put([reader.failed(error)])
            return
        except Exception as failure:  # any failure goes to the reader, because no caller awaits this task
            self._moving = None
            self._buffer.close(failure)
            return
        self._moving = None
        self._running = {}
        self._hear()

    async def _pass_on(self) -> None:
        step = self._reader.step
        own = {call_id: await task for call_id, task in self._running.items()}
        before = self._request
        self._remember(step.messages(own))
        request = self._guard(self._request) if own else self._request
        if self._reader.parks:
            try:
                await self._inner.submit([*step.given, *_own_results(request, before, own)], step.extra)
            except GatewayError as gone:
                if gone.kind is not ErrorKind.TURN_GONE:
                    raise
            else:
                return
        await self._start_anew(request)

    async def _start_anew(self, request: TurnRequest) -> None:
        await self._inner.aclose()
        inner = await self._backend.start(replace(request, reopened=self._reader.reopened))
        self._reader.parks = takes_results(inner, self._backend)
        self._follow(inner)

    def _remember(self, messages: Sequence[Message]) -> None:
        self._request = replace(self._request, messages=(*self._request.messages, *messages))


def _own_results(request: TurnRequest, before: TurnRequest, own: Mapping[str, ToolResult]) -> list[ToolResult]:
    """The results of bridged calls, to which the loop guard may have added text."""
    newest = (part for message in request.messages[len(before.messages) :] for part in message.parts)
    return [part for part in newest if isinstance(part, ToolResult) and part.call_id in own]
