"""Which runs the simulated Cursor refuses: too many or too large tools, messages or roots, refused schemas, a result
without its call, odd call ids, pictures that are no data URI. Pure.

Every rule gives the error that ends the run, or nothing. Roots that came with a checkpoint are the server's own, and
their ids are not judged.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from caretway.cursor.wire.errors import ConnectError
from caretway.cursor.wire.messages import pb

from . import catalogue, faults, schema_rules
from .manners import Manners
from .model_input import Tool
from .script import Fail, parse

MAX_TOOLS: Final = 330
MAX_TOOL_BYTES: Final = 120_000
MAX_MESSAGE_BYTES: Final = 1024 * 1024
MAX_ROOTS: Final = 207
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]+")


def from_checkpoint(request: pb.AgentRunRequest) -> bool:
    """The state was made by the server. A client that writes one has no count of tokens to put in."""
    return request.conversation_state.HasField("token_details")


def ends_unheard(request: pb.AgentRunRequest) -> bool:
    """The script wants a stream that ends without a frame, as one on a wrong host does."""
    said = request.action.user_message_action.user_message.text
    return any(isinstance(step, Fail) and step.code == "eof" for step in parse(said))


def empty_turn(request: pb.AgentRunRequest, model: str, manners: Manners) -> bool:
    """A replayed history that is resumed: composer-2.5 has nothing to say to it."""
    resumed = request.action.HasField("resume_action") and not from_checkpoint(request)
    return manners.resume_needs_checkpoint and resumed and model == "composer-2.5[fast=false]"


def judge_message(request: pb.AgentRunRequest, manners: Manners) -> ConnectError | None:
    if request.custom_system_prompt and not manners.custom_prompt:
        return faults.NO_CUSTOM_PROMPT
    said = request.action.user_message_action.user_message.text
    too_long = manners.limits and len(said.encode("utf-8", "surrogatepass")) > MAX_MESSAGE_BYTES
    return faults.SCRIPTED["late"] if too_long else None


def judge_tools(
    definitions: Sequence[pb.McpToolDefinition], tools: Sequence[Tool], model: str, manners: Manners
) -> ConnectError | None:
    if manners.limits and (
        len(definitions) > MAX_TOOLS or pb.McpTools(mcp_tools=definitions).ByteSize() > MAX_TOOL_BYTES
    ):
        return faults.SCRIPTED["late"]
    family = catalogue.family(model)
    strict = family in manners.strict_families
    if manners.judges_schemas and any(schema_rules.refused(tool.schema, family, strict=strict) for tool in tools):
        return faults.SCRIPTED["schema"]
    return None


def judge_roots(roots: Sequence[bytes], model: str, *, own: bool, manners: Manners) -> ConnectError | None:
    """`own`: they came with a checkpoint."""
    external = catalogue.is_external(model)
    if manners.limits and external and len(roots) > MAX_ROOTS:
        return faults.SCRIPTED["late"]
    if not (manners.parts_only or manners.pictures_as_uris or manners.pairs_only or manners.plain_ids_only):
        return None
    called: set[str] = set()
    for data in roots:
        message = _decoded(data)
        content = message.get("content")
        if manners.parts_only and external and message.get("role") == "user" and isinstance(content, str):
            return faults.SCRIPTED["late"]
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and (error := _judge_part(part, called, own=own, manners=manners)):
                return error
    return None


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}  # reported when it is read as a message
    return value if isinstance(value, dict) else {}


def _judge_part(part: dict[str, Any], called: set[str], *, own: bool, manners: Manners) -> ConnectError | None:
    kind, call_id = part.get("type"), str(part.get("toolCallId", ""))
    if kind in ("tool-call", "tool-result"):
        if manners.plain_ids_only and not own and not _PLAIN_ID.fullmatch(call_id):
            return faults.SCRIPTED["bare"]
        if kind == "tool-call":
            called.add(call_id)
        elif manners.pairs_only and call_id not in called:
            return faults.SCRIPTED["late"]
    bare = not str(part.get("image", "")).startswith("data:") or "mediaType" not in part
    return faults.SCRIPTED["picture"] if kind == "image" and manners.pictures_as_uris and bare else None
