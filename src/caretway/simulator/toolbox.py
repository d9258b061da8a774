"""The client tools of one run, as the simulated model sees them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.protobuf import json_format

from ..wire.messages import pb
from .tokens import Piece, estimate


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    tool_name: str
    provider: str = ""
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The name its owner gave it; `name` usually carries the provider in front."""
        return self.tool_name or self.name


def read_tools(definitions: Iterable[pb.McpToolDefinition]) -> tuple[Tool, ...]:
    """Clients send the same tools in the run request and in the request context: the first mention counts."""
    tools: dict[str, Tool] = {}
    for definition in definitions:
        tool = Tool(
            definition.name,
            definition.tool_name,
            definition.provider_identifier,
            definition.description,
            _read_schema(definition),
        )
        tools.setdefault(tool.name or tool.tool_name, tool)
    return tuple(tools.values())


def _read_schema(definition: pb.McpToolDefinition) -> dict[str, Any]:
    if definition.input_schema_json:
        try:
            schema = msgspec.json.decode(definition.input_schema_json)
        except msgspec.DecodeError:
            schema = None
    else:
        schema = json_format.MessageToDict(definition.input_schema) if definition.HasField("input_schema") else None
    return schema if isinstance(schema, dict) else {}


def find(tools: Sequence[Tool], name: str) -> Tool | None:
    return next((tool for tool in tools if name in (tool.tool_name, tool.name)), None)


def piece(tools: Sequence[Tool]) -> Piece:
    """The tools as a piece of a prompt. Sorted: their order does not reach the model."""
    lines = sorted(
        f"{tool.shown}\x00{tool.description}\x00{msgspec.json.encode(tool.schema, order='sorted').decode()}"
        for tool in tools
    )
    text = "\n".join(lines)
    return Piece(f"tools\x00{text}", estimate(text))
