"""The rules by which the simulated Cursor refuses runs: too many or too large tools, messages or roots, refused
schemas, a result without its call, odd call ids, images that are no data URI. Pure.

Every rule returns the error that ends the run, or None. Roots of a checkpoint are the server's own; their ids are not
checked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from caretway.cursor.wire.envelope import ConnectError
from caretway.cursor.wire.messages import pb

from . import catalogue, faults
from .catalogue import BY_ID, BY_SLUG, BaseModel, Family, Variant
from .manners import Manners
from .model_input import Tool
from .script import Fail, parse

# ---- schema rules

# The tool schemas that a model's maker refuses: unions (Fable), tuples and enums of values other than strings (Gemini,
# Grok, Kimi). One refused schema ends the run. Pure.

_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose keys are names, not keywords."""
_VALUES: Final = ("enum", "const", "default", "examples", "required")
_STRICT_VALUES: Final = ("gemini", "grok", "kimi")


def refused(schema: Mapping[str, Any], family: Family, *, strict: bool = False) -> str:
    """The keyword for which makers of this family refuse the schema; empty if they accept it. `strict`: they refuse
    what any maker refuses."""
    if (family == "fable" or strict) and (found := _union(schema)):
        return found
    if family in _STRICT_VALUES or strict:
        for part in _parts(schema):
            enum = part.get("enum")
            if isinstance(enum, list) and not all(isinstance(value, str) for value in enum):
                return "enum"
            if isinstance(part.get("items"), list) or "prefixItems" in part:
                return "items"
    return ""


def _union(schema: Mapping[str, Any]) -> str:
    return next((key for part in _parts(schema) for key in _UNIONS if key in part), "")


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all schemas in it."""
    waiting: list[Mapping[str, Any]] = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        for key, value in part.items():
            if key in _VALUES:
                continue
            inner = list(value.values()) if key in _NAMED and isinstance(value, dict) else [value]
            for one in inner:
                waiting += [each for each in (one if isinstance(one, list) else [one]) if isinstance(each, dict)]


# ---- admission


MAX_TOOLS: Final = 330
MAX_TOOL_BYTES: Final = 120_000
MAX_MESSAGE_BYTES: Final = 1024 * 1024
MAX_ROOTS: Final = 207
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]+")


def from_checkpoint(request: pb.AgentRunRequest) -> bool:
    """True if the server made the state: a state that a client writes has no token count."""
    return request.conversation_state.HasField("token_details")


def ends_unheard(request: pb.AgentRunRequest) -> bool:
    """True if the script asks for a stream that ends without a frame, as on a wrong host."""
    said = request.action.user_message_action.user_message.text
    return any(isinstance(step, Fail) and step.code == "eof" for step in parse(said))


def empty_turn(request: pb.AgentRunRequest, model: str, manners: Manners) -> bool:
    """True for a resumed replayed history on composer-2.5, which ends in an empty turn."""
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
    if manners.judges_schemas and any(refused(tool.schema, family, strict=strict) for tool in tools):
        return faults.SCRIPTED["schema"]
    return None


def judge_roots(roots: Sequence[bytes], model: str, *, own: bool, manners: Manners) -> ConnectError | None:
    """The error for the root messages of a run, or None. `own`: the roots came with a checkpoint."""
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
        return {}  # the reader of the message reports it
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


# ---- model shapes

# Which model a run request means: the four shapes of its fields, unknown and dead models, whole variants, max mode,
# shapes that get a refusal or an empty turn. Pure.


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    """The model that runs: the base id with the variant in brackets, or the id as it came if ids are not checked."""
    empty: bool = False
    """The turn ends at once, without text and without tokens."""


def shape_of(request: pb.AgentRunRequest) -> str:
    """The shape of its model fields: base, details, both or requested."""
    asked, named = request.requested_model.model_id, request.model_details.model_id
    if asked and named:
        return "both"
    if named:
        return "details"
    return "base" if request.requested_model.parameters or asked in BY_ID else "requested"


def choose(request: pb.AgentRunRequest, manners: Manners) -> Choice | ConnectError:
    requested, details = request.requested_model, request.model_details
    asked = requested.model_id or details.model_id
    if not manners.cursor_catalogue:
        return Choice(asked)
    shape = shape_of(request)
    if shape in manners.refused_shapes:
        return faults.SCRIPTED["bare"]
    if shape in manners.empty_shapes:
        return Choice(asked, empty=True)
    params = {parameter.id: parameter.value for parameter in requested.parameters}
    found = _find(asked, params, manners)
    if isinstance(found, ConnectError):
        return found
    base, variant = found
    if refusal := dict(manners.refused_models).get(base.id):
        return faults.SCRIPTED[refusal]
    lonely = bool(requested.model_id) and not details.model_id
    if manners.judges_model_shape and lonely and asked not in BY_ID:
        return Choice(variant.bracket(base.id), empty=True)
    if variant.dead:
        return faults.NOT_FOUND
    if manners.demands_max_mode and variant.max_mode:
        modes = [field.max_mode for field in (requested, details) if field.model_id]
        if not all(modes):
            return faults.SCRIPTED["max_mode"]
    return Choice(variant.bracket(base.id))


def _find(asked: str, params: dict[str, str], manners: Manners) -> tuple[BaseModel, Variant] | ConnectError:
    base = BY_ID.get(asked)
    if params:
        if base is None:
            return faults.NOT_FOUND
        exact = next((variant for variant in base.variants if dict(variant.params) == params), None)
        if exact is None and not manners.whole_variants:
            exact = next((one for one in base.variants if params.items() <= dict(one.params).items()), None)
        return faults.NOT_FOUND if exact is None else (base, exact)
    if asked in BY_SLUG:
        return BY_SLUG[asked]
    if base is None:
        return faults.UNKNOWN_MODEL
    if base.tiered and manners.whole_variants:
        return faults.NOT_FOUND
    return base, base.default
