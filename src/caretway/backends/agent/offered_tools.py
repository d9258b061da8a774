"""Writes the client's tools into a run request, in both of its places, with schemas fitted to the model. Caches what
was written: bounded in bytes (LRU), with a lock because large requests use a thread.

A schema is slow to fit and to write (a JSON value as protobuf has it), and an agent offers the same tools with every
request of a session.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Final

import msgspec

from ...core.request import ToolSpec
from ...cursor.wire.embedding import embed, tag
from ...cursor.wire.messages import pb
from ...cursor.wire.write_values import write_value
from ...schemas.fitting import NO_RULES, SchemaRules, fit_tools

PROVIDER: Final = "caretway"
"""The MCP server name under which the client's tools are offered."""
MAX_BYTES: Final = 8 * 1024 * 1024

_OF_RUN: Final = tag(pb.AgentRunRequest, "mcp_tools")
_IN_RUN: Final = tag(pb.McpTools, "mcp_tools")
_IN_CONTEXT: Final = tag(pb.RequestContext, "tools")
_SCHEMA: Final = tag(pb.McpToolDefinition, "input_schema")


class ToolOffer(msgspec.Struct, frozen=True, gc=False):
    """Some tools, written."""

    in_run: bytes
    """Of an AgentRunRequest: the field with all of them, present even when empty."""
    in_context: bytes
    """Of a RequestContext: the field for each of them."""
    size: int
    """Of all of them in the run's field, without its head."""
    told: str = ""
    """What was changed in the schemas, for people."""


class OfferedTools:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._known: dict[bytes, ToolOffer] = {}
        self._bytes = 0
        self._max_bytes = max_bytes
        self._lock = Lock()

    def offer(self, tools: Sequence[ToolSpec], rules: SchemaRules = NO_RULES) -> ToolOffer:
        """`rules`: of the model's family."""
        if not tools:
            return _NOTHING
        try:
            key = msgspec.json.encode(tools)
        except (TypeError, ValueError, OverflowError):  # a number that is no JSON for everybody
            return _written(tools, rules)
        if rules.any:
            key = rules.name.encode() + key
        with self._lock:
            offer = self._known.pop(key, None)
            if offer is not None:
                self._known[key] = offer
                return offer
        offer = _written(tools, rules)
        with self._lock:
            if key not in self._known:
                self._known[key] = offer
                self._bytes += _size(key, offer)
            while self._bytes > self._max_bytes:
                oldest = next(iter(self._known))
                self._bytes -= _size(oldest, self._known.pop(oldest))
        return offer


def _size(key: bytes, offer: ToolOffer) -> int:
    return len(key) + len(offer.in_run) + len(offer.in_context)


def _written(tools: Sequence[ToolSpec], rules: SchemaRules = NO_RULES) -> ToolOffer:
    fitted = fit_tools(tools, rules)
    written = [_definition(tool) for tool in fitted.tools]
    inside = b"".join([embed(_IN_RUN, definition) for definition in written])
    in_context = b"".join([embed(_IN_CONTEXT, definition) for definition in written])
    return ToolOffer(embed(_OF_RUN, inside), in_context, len(inside), fitted.told)


_NOTHING: Final = _written(())
EMPTY_TOOLS: Final = len(_NOTHING.in_run)
"""The size of the run's field without a tool."""


def _definition(tool: ToolSpec) -> bytes:
    before = pb.McpToolDefinition(name=tool.name, description=tool.description).SerializeToString()
    after = pb.McpToolDefinition(provider_identifier=PROVIDER, tool_name=tool.name).SerializeToString()
    return before + embed(_SCHEMA, write_value(tool.schema or {"type": "object"})) + after
