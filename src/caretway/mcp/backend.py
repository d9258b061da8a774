"""Wraps a backend and offers MCP tools in addition to the client's tools: always, on request or never, and only with
`tool_choice` auto. Offers fewer tools if the backend refuses them as too large.

`bridge.py` runs the tools. Sessions still compare only the tools that the client declared.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol

from msgspec import structs
from msgspec.structs import replace

from ..core.errors import GatewayError
from ..core.request import ToolResult, TurnRequest
from ..core.turn import Backend, BackendStatus, Guard, ModelInfo, Snapshot, Turn
from .catalogue import BridgedTool, McpCatalogue
from .steps import Activity
from .turn import BridgedTurn

log = logging.getLogger(__name__)

_TOO_MANY = frozenset({"tools_too_large", "too_many_tools"})
Offer = Literal["always", "ask", "never"]


class McpTools(Protocol):
    @property
    def catalogue(self) -> McpCatalogue: ...

    async def ready(self) -> None: ...

    def left_out(self, count: int) -> None:
        """Count tools of the catalogue that were too many for a request."""
        ...

    async def call(self, tool: BridgedTool, arguments: str, call_id: str) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """When bridged tools are offered, and how their calls are shown to clients."""

    offer: Offer = "always"
    activity: Activity = "hidden"


class BridgedBackend:
    def __init__(self, inner: Backend, tools: McpTools, guard: Guard, terms: Terms) -> None:
        self.name = inner.name
        self.standing = inner.standing
        able = inner.abilities.client_tools != "none"
        # A backend that cannot park gets the whole history after each step, which counts as parking for sessions.
        self.abilities = replace(inner.abilities, parks=inner.abilities.parks or able)
        self._inner = inner
        self._tools = tools
        self._guard = guard
        self._terms = terms
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
            await self._tools.ready()
            tools = self._tools.catalogue.for_request(request.tools)
        if not tools and self._inner.abilities.parks == self.abilities.parks:
            return await self._inner.start(request, snapshot)
        offered = self._tools.catalogue, len(request.tools), len(tools)
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
                self._tools.left_out(offered[2] - len(tools))
                log.warning("%d MCP tools are too large for this backend; %d are offered", offered[2], len(tools))
        return BridgedTurn(
            self._inner,
            inner,
            model_request,
            tools,
            run=self._tools.call,
            guard=self._guard,
            activity=self._terms.activity,
        )

    def wanted(self, request: TurnRequest) -> bool:
        """Whether to offer bridged tools. A `tool_choice` other than `auto` concerns only the client's tools."""
        if self._inner.abilities.client_tools == "none" or request.tool_choice.mode != "auto":
            return False
        asked = {"always": request.bridge is not False, "ask": request.bridge is True, "never": False}
        return asked[self._terms.offer]


def _first(tools: Mapping[str, BridgedTool], count: int) -> dict[str, BridgedTool]:
    return dict(islice(tools.items(), count))


def _with(request: TurnRequest, tools: Mapping[str, BridgedTool]) -> TurnRequest:
    specs = tuple(tool.spec() for tool in tools.values())
    return structs.replace(request, tools=(*request.tools, *specs), bridged=frozenset(tools))
