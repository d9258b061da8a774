"""Client tools' calls on the wire: a prefix such as `mcp_caretway_` taken off a name, the ids of one call, execs
answered at once (request context, unknown tool, approval probe), results as messages. Pure."""

import re
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.json_bounds import crowded
from ...core.request import ADDED_WORDS, Text, ToolResult, ToolSpec, TurnRequest, are_the_systems
from ...cursor.wire.embedding import embed, tag, write_value
from ...cursor.wire.heavy import MAX_ASKED_BYTES
from ...cursor.wire.messages import pb
from ...schemas.fitting import NO_RULES, SchemaRules, fit_tools
from ..builtin_tools import execs
from .arguments import complete

# ---- Writes the client's tools into a run request, in both of its places, with schemas fitted to the model. Caches
# what was written: bounded in bytes (LRU), with a lock because large requests use a thread.
#
# A schema is slow to fit and to write (a JSON value as protobuf has it), and an agent offers the same tools with every
# request of a session.

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
    changes: str = ""
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
"""What models put before a tool's name: that of the server which offers it, and that it is one for tools."""
_NONE: Final[frozenset[Any]] = frozenset()  # shared: most turns have no tools, and a set is large


def offered_names(request: TurnRequest) -> frozenset[str]:
    if not request.tools or request.tool_choice.mode == "none":
        return _NONE
    return frozenset([tool.name for tool in request.tools])


def client_name(args: pb.McpArgs, offered: frozenset[str]) -> str:
    """The offered tool that a call means. A name that was not offered is given back as it came."""
    for name in (args.tool_name, args.name):
        if name in offered:
            return name
    for name in (args.tool_name, args.name):
        bare = _PREFIX.sub("", name, count=1) if _PREFIX.match(name) else ""
        if bare in offered:
            return bare
    return args.tool_name or args.name


def wire_ids(call: pb.ToolCall, envelope: str) -> tuple[str, ...]:
    """The ids under which a call is told of. The inner one, which its exec will use, comes first."""
    inner = call.mcp_tool_call.args.tool_call_id if call.WhichOneof("tool") == "mcp_tool_call" else ""
    return tuple(dict.fromkeys(one for one in (inner, call.tool_call_id, envelope) if one))


def ready_answer(exec_: pb.ExecServerMessage, offered: frozenset[str], context: Sequence[bytes]) -> list[bytes] | None:
    """The answer to an exec for which nothing has to be run; None: for this one something has. `context`: a serialised
    RequestContext, in parts."""
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
"""In UTF-8 they fit with the id of a snapshot into the two bytes of a length."""


def with_extra(
    results: Sequence[ToolResult], extra: Sequence[Text], carries_text: Callable[[str], bool]
) -> tuple[Sequence[ToolResult], Sequence[Text]]:
    """What was said beside the results rides on the last result that can carry text. The second part: the words that
    have to wait for such a result. Only the system's do; the user's are for the very next words of the model."""
    able = [n for n, result in enumerate(results) if carries_text(result.call_id)]
    if not able:
        if are_the_systems(extra) and sum(len(text.text) for text in extra) <= MAX_UNREAD_CHARS:
            return results, extra
        raise GatewayError(ErrorKind.TURN_GONE, "The parked calls cannot carry the words beside them.")
    said = "\n\n".join(text.text for text in extra)
    last = results[able[-1]]
    content = (*last.content, Text(f"{ADDED_WORDS}{said}"))
    changed = ToolResult(last.call_id, content, last.is_error)
    return [changed if result is last else result for result in results], ()


# ---- Tool calls whose arguments are too large: the model is told as the tool's result and may try again, 8 times in a
# turn; a call of which the client has the beginning ends the turn.
#
# `wire.heavy.Oversized` marks them. A client that has the beginning of such a call cannot be told that it is void.

MAX_OVERSIZED: Final = 8
"""Of one turn. A model that does not learn from so many answers never will."""
_LIMIT: Final = f"at most {MAX_ASKED_BYTES // 1024} KiB and about 5,000 values in one call"
_TOLD: Final = f"The arguments of this call are too large ({_LIMIT}). Nothing was done. Make several smaller calls."


def whole(text: str) -> bool:
    """The model's own text of a call is all of it, and no more than can be worked on."""
    return bool(text) and not crowded(text) and complete(text)


def too_large(exec_: pb.ExecServerMessage) -> list[bytes]:
    """The answer to the exec: a tool that says no."""
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
