"""Client tools and their calls on the wire: writes the tools, removes a prefix such as `mcp_caretway_` from a name,
reads a call's ids, answers execs that need no run (request context, unknown tool, approval probe), writes results."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.json_bounds import crowded
from ...core.request import Text, ToolResult, ToolSet, ToolSpec, TurnRequest, added_words, are_the_systems
from ...cursor.wire.embedding import embed, tag, write_value
from ...cursor.wire.heavy import MAX_ASKED_BYTES
from ...cursor.wire.messages import pb
from ...schemas.fitting import NO_RULES, SchemaRules, fit_tools
from ..builtin_tools import execs
from .arguments import complete

# ---- Writes the client's tools into both places of a run request, with schemas fitted to the model. An LRU cache with
# a limit in bytes keeps the result; a lock protects it, because large requests use a thread.
#
# Fitting and writing a schema is slow, and an agent offers the same tools with every request of a session.

PROVIDER: Final = "caretway"
"""The MCP server name under which the client's tools are offered."""
MAX_BYTES: Final = 8 * 1024 * 1024

_OF_RUN: Final = tag(pb.AgentRunRequest, "mcp_tools")
_IN_RUN: Final = tag(pb.McpTools, "mcp_tools")
_IN_CONTEXT: Final = tag(pb.RequestContext, "tools")
_SCHEMA: Final = tag(pb.McpToolDefinition, "input_schema")


class ToolOffer(msgspec.Struct, frozen=True, gc=False):
    """A request's tools, serialised for the two places of a run that name them."""

    in_run: bytes
    """The field of an AgentRunRequest with all tools, present even if there are none."""
    in_context: bytes
    """The fields of a RequestContext, one for each tool."""
    size: int
    """The size of the tools in the run's field, without the field's head."""
    changes: str = ""
    """A description of the changes to the schemas, for people."""


class OfferedTools:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._known: dict[bytes, ToolOffer] = {}
        self._bytes = 0
        self._max_bytes = max_bytes
        self._lock = Lock()

    def offer(self, tools: Sequence[ToolSpec], rules: SchemaRules = NO_RULES) -> ToolOffer:
        """The serialised tools. `rules` are the schema rules of the model's family."""
        if not tools:
            return _NOTHING
        try:
            key = _known_json(tools) if type(tools) is ToolSet else msgspec.json.encode(tools)
        except (TypeError, ValueError, OverflowError):  # a number that JSON cannot hold
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


@lru_cache(maxsize=64)
def _known_json(tools: ToolSet) -> bytes:
    return msgspec.json.encode(tools)


def _size(key: bytes, offer: ToolOffer) -> int:
    return len(key) + len(offer.in_run) + len(offer.in_context)


def _written(tools: Sequence[ToolSpec], rules: SchemaRules = NO_RULES) -> ToolOffer:
    fitted = fit_tools(tools, rules)
    written = [_definition(tool) for tool in fitted.tools]
    inside = b"".join([embed(_IN_RUN, definition) for definition in written])
    in_context = b"".join([embed(_IN_CONTEXT, definition) for definition in written])
    return ToolOffer(embed(_OF_RUN, inside), in_context, len(inside), fitted.changes)


_NOTHING: Final = _written(())
EMPTY_TOOLS: Final = len(_NOTHING.in_run)
"""The size of the run's field without a tool."""


def _definition(tool: ToolSpec) -> bytes:
    before = pb.McpToolDefinition(name=tool.name, description=tool.description).SerializeToString()
    last = pb.McpToolDefinition(provider_identifier=PROVIDER, tool_name=tool.name)
    if tool.hints:  # as the official client writes them
        last.annotations_json = msgspec.json.encode(dict(tool.hints)).decode()
    after = last.SerializeToString()
    return before + embed(_SCHEMA, write_value(tool.schema or {"type": "object"})) + after


_PREFIX: Final = re.compile(rf"(?:mcp(?:__?|[-./:]))?(?:user[-_])?{PROVIDER}(?:__?|[-./:])", re.IGNORECASE)
"""The prefix that models put before a tool's name: `mcp` and the name of the server."""
_NONE: Final[frozenset[Any]] = frozenset()  # shared, to save memory: most turns have no tools


def offered_names(request: TurnRequest) -> frozenset[str]:
    if not request.tools or request.tool_choice.mode == "none":
        return _NONE
    return frozenset([tool.name for tool in request.tools])


def client_name(args: pb.McpArgs, offered: frozenset[str]) -> str:
    """The offered tool that a call means. A name that was not offered is returned unchanged."""
    for name in (args.tool_name, args.name):
        if name in offered:
            return name
    for name in (args.tool_name, args.name):
        bare = _PREFIX.sub("", name, count=1) if _PREFIX.match(name) else ""
        if bare in offered:
            return bare
    return args.tool_name or args.name


def wire_ids(call: pb.ToolCall, envelope: str) -> tuple[str, ...]:
    """The ids of a call, first the inner id, which the call's exec will use."""
    inner = call.mcp_tool_call.args.tool_call_id if call.WhichOneof("tool") == "mcp_tool_call" else ""
    ids = {inner: None, call.tool_call_id: None, envelope: None}
    ids.pop("", None)
    return tuple(ids)


def ready_answer(exec_: pb.ExecServerMessage, offered: frozenset[str], context: Sequence[bytes]) -> list[bytes] | None:
    """The answer to an exec that needs no run; None if the exec needs a run. `context`: the parts of a serialised
    RequestContext."""
    match exec_.WhichOneof("message"):
        case "request_context_args":
            reply = execs.context_answer(exec_.id, b"".join(context))
        case "mcp_state_exec_args":
            wanted = exec_.mcp_state_exec_args.server_identifiers
            reply = execs.answer(execs.mcp_state(exec_.id, wanted, b"".join(context)))
        case "mcp_args" if (name := client_name(exec_.mcp_args, offered)) not in offered:
            reply = execs.answer(execs.tool_not_found(exec_.id, name, sorted(offered)))
        case "mcp_args" if exec_.mcp_args.smart_mode_approval_only:
            reply = execs.answer(execs.mcp_approved(exec_.id))
        case _:
            return None
    return [reply, execs.stream_close(exec_.id)]


def mcp_answer(exec_id: int, result: ToolResult) -> list[bytes]:
    return [execs.answer(execs.mcp_result(exec_id, result)), execs.stream_close(exec_id)]


MAX_UNREAD_CHARS: Final = 12_000
"""In UTF-8 this text and a snapshot's id fit into a two-byte length."""


def with_extra(
    results: Sequence[ToolResult], extra: Sequence[Text], carries_text: Callable[[str], bool]
) -> tuple[Sequence[ToolResult], Sequence[Text]]:
    """(results, deferred text). The extra text is added to the last result that can carry text. Without such a result
    system text is deferred; user text must reach the model at once, so it raises TURN_GONE."""
    able = [n for n, result in enumerate(results) if carries_text(result.call_id)]
    if not able:
        if are_the_systems(extra) and sum(len(text.text) for text in extra) <= MAX_UNREAD_CHARS:
            return results, extra
        raise GatewayError(ErrorKind.TURN_GONE, "The parked calls cannot carry the words beside them.")
    last = results[able[-1]]
    changed = ToolResult(last.call_id, (*last.content, added_words(extra)), last.is_error)
    return [changed if result is last else result for result in results], ()


# ---- Tool calls whose arguments are too large: the tool's result tells the model, which may try again, 8 times in a
# turn. If the client has the beginning of the call, the turn ends, because the call cannot be withdrawn.
#
# `wire.heavy.Oversized` marks such calls.

MAX_OVERSIZED: Final = 8
"""Oversized calls in one turn before the turn ends."""
_LIMIT: Final = f"at most {MAX_ASKED_BYTES // 1024} KiB and about 5,000 values in one call"
_TOLD: Final = f"The arguments of this call are too large ({_LIMIT}). Nothing was done. Make several smaller calls."


def whole(text: str) -> bool:
    """Whether the model's own text of a call is a complete JSON object that is not too large to process."""
    return bool(text) and not crowded(text) and complete(text)


def too_large(exec_: pb.ExecServerMessage) -> list[bytes]:
    """The answer to the exec: a refusal or a failed tool result."""
    if exec_.WhichOneof("message") != "mcp_args":
        return execs.refuse(exec_, _TOLD)
    return mcp_answer(exec_.id, ToolResult("", (Text(_TOLD),), is_error=True))


def cannot_go_on(name: str, *, begun: bool) -> GatewayError:
    why = "and the client has its beginning already" if begun else f"for the {MAX_OVERSIZED + 1}th time in this turn"
    return GatewayError(
        ErrorKind.UPSTREAM_PROTOCOL,
        f"The model called `{name[:200]}` with arguments that are too large ({_LIMIT}), {why}.",
        hint="Do not run that call. Ask for smaller steps, for instance to write a large file in parts.",
        code="tool_call_too_large",
    )
