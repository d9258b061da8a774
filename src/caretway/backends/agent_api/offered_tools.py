"""The client's tools as they stand in the opening of a run, twice: as the run's tools and in its context.

A schema is slow to write (a JSON value as protobuf has it), and an agent offers the same tools with every request of a
session. So what was written is remembered, bounded in bytes; those used last stay.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from ...core.request import ToolSpec
from ...wire.embedding import embed, tag
from ...wire.messages import pb

PROVIDER: Final = "caretway"
"""The MCP server name under which the client's tools are offered."""
MAX_BYTES: Final = 8 * 1024 * 1024

_OF_RUN: Final = tag(pb.AgentRunRequest, "mcp_tools")
_IN_RUN: Final = tag(pb.McpTools, "mcp_tools")
_IN_CONTEXT: Final = tag(pb.RequestContext, "tools")


class Offer(msgspec.Struct, frozen=True, gc=False):
    """Some tools, written."""

    in_run: bytes
    """Of an AgentRunRequest: the field with all of them, present even when empty."""
    in_context: bytes
    """Of a RequestContext: the field for each of them."""


class OfferedTools:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._known: dict[bytes, Offer] = {}
        self._bytes = 0
        self._max_bytes = max_bytes

    def offer(self, tools: Sequence[ToolSpec]) -> Offer:
        if not tools:
            return _NOTHING
        try:
            key = msgspec.json.encode(tools)
        except (TypeError, ValueError, OverflowError):  # a number that only the slow writer takes
            return _written(tools)
        offer = self._known.pop(key, None)
        if offer is None:
            offer = _written(tools)
            self._bytes += _size(key, offer)
        self._known[key] = offer
        while self._bytes > self._max_bytes:
            oldest = next(iter(self._known))
            self._bytes -= _size(oldest, self._known.pop(oldest))
        return offer


def _size(key: bytes, offer: Offer) -> int:
    return len(key) + len(offer.in_run) + len(offer.in_context)


def _written(tools: Sequence[ToolSpec]) -> Offer:
    written = [_definition(tool) for tool in tools]
    return Offer(
        embed(_OF_RUN, b"".join([embed(_IN_RUN, definition) for definition in written])),
        b"".join([embed(_IN_CONTEXT, definition) for definition in written]),
    )


_NOTHING: Final = _written(())


def _definition(tool: ToolSpec) -> bytes:
    return pb.McpToolDefinition(
        name=tool.name,
        description=tool.description,
        input_schema=ParseDict(_plain(tool.schema) or {"type": "object"}, Value()),
        provider_identifier=PROVIDER,
        tool_name=tool.name,
    ).SerializeToString()


def _plain(value: Any) -> Any:
    """A JSON schema as protobuf's Value can hold it: integers beyond 2**53 and the like become floats anyway."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
