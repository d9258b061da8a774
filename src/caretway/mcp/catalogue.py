"""The tools of all connected MCP servers as one value: by exposed name, filtered by allow and deny, without the names
of the client's own tools. Maps a call back to its server.

Input: each server's list of tools. Output: a `McpCatalogue`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.request import ToolSpec
from .definitions import ServerDefinition
from .names import exposed_names


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool as its server describes it."""

    name: str
    description: str = ""
    schema: Mapping[str, object] = field(default_factory=dict)
    hints: tuple[tuple[str, bool], ...] = ()
    """The tool's annotations by the protocol's names, without absent annotations."""

    @property
    def read_only(self) -> bool:
        return ("readOnlyHint", True) in self.hints


@dataclass(frozen=True, slots=True)
class BridgedTool:
    id: str
    """The name that models and clients see."""
    server: str
    tool: ListedTool

    def spec(self) -> ToolSpec:
        return ToolSpec(self.id, self.tool.description, self.tool.schema, hints=self.tool.hints)


@dataclass(frozen=True, slots=True)
class McpCatalogue:
    tools: Mapping[str, BridgedTool] = field(default_factory=dict)

    def for_request(self, taken: Iterable[ToolSpec]) -> dict[str, BridgedTool]:
        """The tools to offer in addition to a client's tools. A client's tool hides a bridged tool of the same name."""
        names = {tool.name for tool in taken}
        return {name: tool for name, tool in self.tools.items() if name not in names}


def catalogue(listed: Iterable[tuple[ServerDefinition, Sequence[ListedTool]]]) -> McpCatalogue:
    allowed = {
        (definition.name, tool.name): tool
        for definition, tools in listed
        for tool in tools
        if definition.offers(tool.name, read_only=tool.read_only)
    }
    names = exposed_names(allowed)
    return McpCatalogue({name: BridgedTool(name, key[0], allowed[key]) for name, key in names.items()})
