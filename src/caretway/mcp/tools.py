"""The tools of all connected MCP servers as one value: by exposed name, filtered by allow and deny, without the names
of the client's own tools. Maps a call back to its server.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..core.request import ToolSpec
from .definitions import ServerDefinition


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


# ---- exposed names

# `mcp__server__tool`, unique, at most 64 characters of [A-Za-z0-9_-]. An illegal or long name gets a digest that is
# equal after every start. A table maps names back; they are never parsed.

LONGEST: Final = 64
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN_SERVER: Final = re.compile(r"(?!_)(?!.*__)[A-Za-z0-9_-]+(?<!_)")
"""A server name that needs no digest. Without the rule `a_` + `b` and `a` + `_b` would give equal names."""
_DIGEST: Final = 8

Key = tuple[str, str]
"""(server, tool) as the server spells it."""


def exposed_names(keys: Iterable[Key]) -> dict[str, Key]:
    """Exposed name -> key, in the given order, each key once."""
    names: dict[str, Key] = {}
    for key in dict.fromkeys(keys):
        name = _plain(key)
        tries = 0
        while name is None or name in names:
            name = _digested(key, tries)
            tries += 1
        names[name] = key
    return names


def _plain(key: Key) -> str | None:
    server, tool = key
    name = f"mcp__{server}__{tool}"
    safe = _PLAIN_SERVER.fullmatch(server) and tool and not _UNSAFE.search(tool)
    return name if safe and len(name) <= LONGEST else None


def _digested(key: Key, tries: int) -> str:
    server, tool = (_UNSAFE.sub("_", part) for part in key)
    print_ = hashlib.sha256("\0".join((*key, str(tries))).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    room = LONGEST - len("mcp____") - len("_") - _DIGEST
    server = server[: max(room // 3, room - len(tool))]
    return f"mcp__{server}__{tool[: room - len(server)]}_{print_}"
