"""The client tools of a simulated run: merged from the run request and the context (each once, or only those in both),
their schemas, and their tokens."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from google.protobuf import json_format

from caretway.cursor.wire.messages import pb

from .model_input import Tool
from .tokens import Piece, estimate


def merged(
    in_run: Sequence[pb.McpToolDefinition], in_context: Sequence[pb.McpToolDefinition], *, both: bool = False
) -> list[pb.McpToolDefinition]:
    """The tools of a run, each once: clients name the same ones in the run request and in the request context.

    `both`: only those that stand in both.
    """
    known: dict[str, pb.McpToolDefinition] = {}
    for definition in [*in_run, *in_context]:
        known.setdefault(_key(definition), definition)
    if not both:
        return list(known.values())
    twice = {_key(one) for one in in_run} & {_key(one) for one in in_context}
    return [definition for key, definition in known.items() if key in twice]


def _key(definition: pb.McpToolDefinition) -> str:
    return definition.name or definition.tool_name


def read_tools(definitions: Iterable[pb.McpToolDefinition]) -> tuple[Tool, ...]:
    return tuple(
        Tool(one.name, one.tool_name, one.provider_identifier, one.description, _read_schema(one))
        for one in definitions
    )


def _read_schema(definition: pb.McpToolDefinition) -> dict[str, Any]:
    if definition.input_schema_json:
        try:
            schema = msgspec.json.decode(definition.input_schema_json)
        except msgspec.DecodeError:
            schema = None
    else:
        schema = json_format.MessageToDict(definition.input_schema) if definition.HasField("input_schema") else None
    return schema if isinstance(schema, dict) else {}


def piece(tools: Sequence[Tool]) -> Piece:
    """The tools as a piece of a prompt. Sorted: their order does not reach the model."""
    lines = sorted(
        f"{tool.shown}\x00{tool.description}\x00{msgspec.json.encode(tool.schema, order='sorted').decode()}"
        for tool in tools
    )
    text = "\n".join(lines)
    return Piece(f"tools\x00{text}", estimate(text))
