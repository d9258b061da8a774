"""Client tools' calls on the wire: a prefix such as `mcp_caretway_` taken off a name, the ids of one call, execs
answered at once (request context, unknown tool, approval probe), results as messages. Pure."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...core.errors import ErrorKind, GatewayError
from ...core.request import ADDED_WORDS, Text, ToolResult, TurnRequest, are_the_systems
from ...cursor.wire.messages import pb
from ..builtin_tools import execs
from .offered_tools import PROVIDER
from .snapshots import MAX_UNREAD_CHARS

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
