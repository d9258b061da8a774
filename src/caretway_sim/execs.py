"""What the simulated server asks of its client: execs and interaction queries (newer kinds by field number), typed
results as text, and display records. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import json_format, struct_pb2
from google.protobuf.message import Message as ProtoMessage

from caretway.cursor.wire.messages import pb

from . import raw_fields
from .model_input import Tool
from .script import EXEC_FIELDS, NEWER_EXECS, NEWER_QUERIES, QUERY_FIELDS, ToolUse

_ENVELOPE_FIELDS: Final = (1, 15, 39, 45)
"""Fields of an ExecClientMessage that hold no result."""


_WRITABLE_FIELD: Final = 6
"""Field of a background shell that lets the model write to it; our schema lacks it."""
_STARTED: Final = "started as shell "


class BadArguments(ValueError):
    """The script's JSON does not fit the wire message."""


def request(kind: str, args: dict[str, Any], call_id: str) -> pb.ExecServerMessage:
    """The exec message of a built-in tool; the caller sets its number."""
    message = pb.ExecServerMessage()
    if kind in NEWER_EXECS:
        message.MergeFromString(raw_fields.message(NEWER_EXECS[kind], *_numbered(args)))
        return message
    inner = getattr(message, EXEC_FIELDS[kind])
    inner.SetInParent()
    try:
        json_format.ParseDict(args, inner)
    except json_format.ParseError as wrong:
        raise BadArguments(str(wrong)) from wrong
    if "tool_call_id" in inner.DESCRIPTOR.fields_by_name and not inner.tool_call_id:
        inner.tool_call_id = call_id
    if kind in ("shell", "shell_stream"):
        inner.parsing_result.SetInParent()  # the official client refuses a plain shell without it
    if kind == "background_shell":
        inner.MergeFromString(raw_fields.number(_WRITABLE_FIELD, 1))
    return message


def _numbered(args: dict[str, Any]) -> Iterator[bytes]:
    """Encode fields of a message that our schema lacks, by number: `{"1": "text", "3": 5, "8": {}}`."""
    for name, value in args.items():
        if not name.isdecimal() or not 0 < int(name) < 2**29:
            raise BadArguments(f"{name!r} is no field number")
        match value:
            case str():
                yield raw_fields.message(int(name), value.encode())
            case int():  # also for a bool
                yield raw_fields.number(int(name), value % 2**64)
            case dict():
                yield raw_fields.message(int(name), *_numbered(value))
            case _:
                raise BadArguments(f"field {name} is neither text nor a number nor a message")


def mcp_args(tool: Tool, use: ToolUse, call_id: str) -> pb.McpArgs:
    spelled = use.name if use.name == tool.prefixed else ""  # the model's own spelling is kept
    args = pb.McpArgs(
        name=spelled or tool.name,
        tool_call_id=call_id,
        provider_identifier=tool.provider,
        tool_name=spelled or tool.tool_name or tool.name,
    )
    for key, value in use.args.items():
        json_format.ParseDict(value, args.args[key])
        if value is None:
            args.args[key].null_value = struct_pb2.NULL_VALUE
    return args


# ---------------------------------------------------------------------------------------------- outcomes


@dataclass(frozen=True, slots=True)
class ExecOutcome:
    """The outcome of one exec: the client's messages, or the text that it threw."""

    messages: tuple[pb.ExecClientMessage, ...] = ()
    thrown: str | None = None

    @property
    def mcp(self) -> pb.McpResult:
        return self.messages[-1].mcp_result if self.messages else pb.McpResult()

    def text(self) -> str:
        if self.thrown is not None:
            return f"error: {self.thrown}"
        if not self.messages:
            return "error: the exec was closed without a result"
        kind = self.messages[-1].WhichOneof("message")
        if kind is None or self.messages[-1].DESCRIPTOR.fields_by_name[kind].number in NEWER_EXECS.values():
            fields = [field for field, _ in raw_fields.read(self.messages[-1].SerializeToString())]
            newer = [field for field in fields if field not in _ENVELOPE_FIELDS]
            return f"answered in field {newer[0]}" if newer else "error: the result has no content"
        if kind == "shell_stream":
            return _stream_text(self.messages)
        result = getattr(self.messages[-1], kind)
        which = result.WhichOneof("result")
        if which is None:
            return "error: the result is empty"
        return _outcome_text(kind, which, getattr(result, which))

    def is_error(self) -> bool:
        if self.thrown is not None or not self.messages:
            return True
        message = self.messages[-1]
        if message.WhichOneof("message") == "mcp_result":
            return message.mcp_result.WhichOneof("result") != "success" or message.mcp_result.success.is_error
        return self.text().startswith(("error:", "rejected:"))


def started_shell(results: Sequence[str]) -> int:
    """The number of the shell that was started last, read from result texts; 0 if none was started."""
    numbers = [text.rpartition(" ")[2] for text in results if text.startswith(_STARTED)]
    return int(numbers[-1]) if numbers else 0


def final(message: pb.ExecClientMessage) -> bool:
    """True for the message that ends an exec; a shell stream sends several."""
    if message.WhichOneof("message") != "shell_stream":
        return True
    return message.shell_stream.WhichOneof("event") in ("exit", "rejected", "permission_denied", "backgrounded")


def _stream_text(messages: Sequence[pb.ExecClientMessage]) -> str:
    said, ending = [], ""
    for message in messages:
        event = message.shell_stream
        match event.WhichOneof("event"):
            case "stdout":
                said.append(event.stdout.data)
            case "stderr":
                said.append(event.stderr.data)
            case "exit" if event.exit.code:
                ending = f"[exit code {event.exit.code}]"
            case "rejected":
                ending = f"rejected: {event.rejected.reason}"
            case "permission_denied":
                ending = f"error: {event.permission_denied.error or 'permission denied'}"
            case "backgrounded":
                ending = f"[in the background as shell {event.backgrounded.shell_id}]"
            case _:
                pass
    return _with_ending("".join(said), ending)


def _with_ending(text: str, ending: str) -> str:
    if not ending or not text:
        return text or ending
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{ending}"


def _outcome_text(kind: str, which: str, value: Any) -> str:
    render = _RENDER.get((kind, which)) or _RENDER_ANY.get(which)
    return render(value) if render else _as_json(which, value)


def _as_json(which: str, value: ProtoMessage) -> str:
    return f"{which} {json_format.MessageToJson(value, preserving_proto_field_name=True, indent=None)}"


def _field(value: ProtoMessage, *names: str) -> str:
    """The first of these fields that the message has with a non-empty value."""
    for name in names:
        if name in value.DESCRIPTOR.fields_by_name and (text := getattr(value, name)):
            return str(text)
    return ""


def _error(value: ProtoMessage) -> str:
    return f"error: {_field(value, 'error', 'client_visible_error', 'reason', 'path', 'uri', 'name') or 'unspecified'}"


def _named_error(what: str) -> Callable[[Any], str]:
    return lambda value: f"error: {what}: {_field(value, 'path', 'uri', 'name', 'error', 'reason')}"


def _shell(value: pb.ShellSuccess | pb.ShellFailure) -> str:
    ending = f"[exit code {value.exit_code}]" if value.exit_code else ""
    return _with_ending(value.stdout + value.stderr or value.interleaved_output, ending)


def _read(value: pb.ReadSuccess) -> str:
    return f"[{len(value.data)} bytes]" if value.WhichOneof("output") == "data" else value.content


def _tree(value: pb.LsSuccess | pb.LsTimeout) -> str:
    lines: list[str] = []

    def walk(node: pb.LsDirectoryTreeNode, depth: int) -> None:
        lines.append(f"{'  ' * depth}{node.abs_path.rstrip('/') + '/' if node.abs_path else './'}")
        for inner in node.children_dirs:
            walk(inner, depth + 1)
        lines.extend(f"{'  ' * (depth + 1)}{file.name}" for file in node.children_files)

    walk(value.directory_tree_root, 0)
    return "\n".join(lines)


def _grep(value: pb.GrepSuccess) -> str:
    lines: list[str] = []
    for found in value.workspace_results.values():
        lines.extend(found.files.files)
        lines.extend(f"{entry.file}:{entry.count}" for entry in found.count.counts)
        for file in found.content.matches:
            lines.extend(f"{file.file}:{match.line_number}:{match.content}" for match in file.matches)
    return "\n".join(lines) or "no matches"


def _mcp(value: pb.McpSuccess) -> str:
    items = []
    for item in value.content:
        if item.HasField("image"):
            items.append(f"[{item.image.mime_type or 'image'}, {len(item.image.data)} bytes]")
        else:
            items.append(item.text.text)
    return "\n".join(items)


def _context(value: pb.RequestContextSuccess) -> str:
    """The client's environment and the number of its tools."""
    environment = json_format.MessageToJson(value.request_context.env, preserving_proto_field_name=True, indent=None)
    return f"context with {len(value.request_context.tools)} tools; env {environment}"


_RENDER: Final[dict[tuple[str, str], Callable[[Any], str]]] = {
    ("shell_result", "success"): _shell,
    ("shell_result", "failure"): _shell,
    ("shell_result", "timeout"): lambda value: f"error: timed out after {value.timeout_ms} ms",
    ("read_result", "success"): _read,
    ("write_result", "success"): lambda value: f"wrote {value.path} ({value.file_size} bytes)",
    ("write_result", "no_space"): _named_error("no space left"),
    ("delete_result", "success"): lambda value: f"deleted {value.deleted_file or value.path}",
    ("delete_result", "not_file"): _named_error("not a file"),
    ("delete_result", "file_busy"): _named_error("file is busy"),
    ("ls_result", "success"): _tree,
    ("ls_result", "timeout"): _tree,
    ("grep_result", "success"): _grep,
    ("fetch_result", "success"): lambda value: value.content,
    ("diagnostics_result", "success"): lambda value: f"{value.total_diagnostics} diagnostics in {value.path}",
    ("background_shell_spawn_result", "success"): lambda value: f"{_STARTED}{value.shell_id}",
    ("request_context_result", "success"): _context,
    ("mcp_result", "success"): _mcp,
    ("mcp_result", "approved"): lambda _: "approved",
}
_RENDER_ANY: Final[dict[str, Callable[[Any], str]]] = {
    "rejected": lambda value: f"rejected: {_field(value, 'reason')}",
    "error": _error,
    "spawn_error": _error,
    "permission_denied": lambda value: (
        f"error: {_field(value, 'error', 'client_visible_error') or 'permission denied'}"
    ),
    "file_not_found": _named_error("file not found"),
    "not_found": _named_error("not found"),
    "tool_not_found": _named_error("tool not found"),
    "server_not_found": _named_error("server not found"),
    "invalid_file": lambda value: f"error: {_field(value, 'reason') or 'invalid file'}",
}


# ---------------------------------------------------------------------------------------------- how a call is shown


def shown_mcp(args: pb.McpArgs, call_id: str, outcome: ExecOutcome | None = None) -> pb.ToolCall:
    call = pb.ToolCall(tool_call_id=call_id)
    call.mcp_tool_call.args.CopyFrom(args)
    if outcome is None:
        return call
    result = outcome.mcp
    match result.WhichOneof("result"):
        case "success":
            call.mcp_tool_call.result.success.CopyFrom(result.success)
        case "rejected":
            call.mcp_tool_call.result.rejected.CopyFrom(result.rejected)
        case "permission_denied":
            call.mcp_tool_call.result.permission_denied.CopyFrom(result.permission_denied)
        case _:
            call.mcp_tool_call.result.error.error = outcome.text()
    return call


def shown_exec(message: pb.ExecServerMessage, call_id: str, outcome: ExecOutcome | None = None) -> pb.ToolCall | None:
    """The display record of a built-in tool; None for kinds without one."""
    call = pb.ToolCall(tool_call_id=call_id)
    last = outcome.messages[-1] if outcome is not None and outcome.messages else pb.ExecClientMessage()
    match message.WhichOneof("message"):
        case "shell_args":
            call.shell_tool_call.args.CopyFrom(message.shell_args)
            if last.HasField("shell_result"):
                call.shell_tool_call.result.CopyFrom(last.shell_result)
        case "shell_stream_args":
            call.shell_tool_call.args.CopyFrom(message.shell_stream_args)
            if outcome is not None:
                call.shell_tool_call.result.success.stdout = outcome.text()
        case "read_args":
            call.read_tool_call.args.path = message.read_args.path
        case "write_args":
            call.edit_tool_call.args.path = message.write_args.path
            call.edit_tool_call.args.stream_content = message.write_args.file_text
        case "ls_args":
            call.ls_tool_call.args.CopyFrom(message.ls_args)
            if last.HasField("ls_result"):
                call.ls_tool_call.result.CopyFrom(last.ls_result)
        case "grep_args":
            call.grep_tool_call.args.CopyFrom(message.grep_args)
            if last.HasField("grep_result"):
                call.grep_tool_call.result.CopyFrom(last.grep_result)
        case _:
            return None
    return call


# ---- interaction queries: web search, questions, plans ...

_ANSWERS: Final = dict(NEWER_QUERIES.values())
_ID: Final = 1


def query(kind: str, args: dict[str, Any], number: int, call_id: str) -> pb.InteractionQuery:
    if kind in NEWER_QUERIES:
        if args:
            raise BadArguments(f"the query {kind} takes no arguments")
        return pb.InteractionQuery.FromString(
            raw_fields.number(_ID, number) + raw_fields.message(NEWER_QUERIES[kind][0])
        )
    field, defaults = QUERY_FIELDS[kind]
    message = pb.InteractionQuery(id=number)
    inner = getattr(message, field)
    try:
        json_format.ParseDict({**defaults, **args}, inner.args)
    except json_format.ParseError as wrong:
        raise BadArguments(str(wrong)) from wrong
    carrier = inner if "tool_call_id" in inner.DESCRIPTOR.fields_by_name else inner.args
    carrier.tool_call_id = carrier.tool_call_id or call_id
    return message


FOUND: Final = pb.WebSearchReference(
    title="A simulated page", url="https://example.invalid/simulated", chunk="What the simulated page says."
)
"""What every simulated web search finds."""


def shown_query(asked: pb.InteractionQuery, call_id: str, answer: str = "") -> pb.ToolCall | None:
    """The call that the updates show for a web search, with its result once there is an answer; None for other
    queries."""
    if asked.WhichOneof("query") != "web_search_request_query":
        return None
    call = pb.ToolCall(tool_call_id=call_id)
    call.web_search_tool_call.args.CopyFrom(asked.web_search_request_query.args)
    result = call.web_search_tool_call.result
    if agreed(answer):
        result.success.references.append(FOUND)
    elif answer:
        result.rejected.reason = answer
    return call


def query_text(response: pb.InteractionResponse) -> str:
    """`approved`, `rejected: REASON`, `error: ...` or `success`."""
    kind = response.WhichOneof("result")
    if kind is None or response.DESCRIPTOR.fields_by_name[kind].number in _ANSWERS:
        return _newer_text(response.SerializeToString())
    answer = getattr(response, kind)
    if kind in ("ask_question_interaction_response", "create_plan_request_response"):
        answer = answer.result
    which = answer.WhichOneof("result")
    if which is None:
        return "error: the answer is empty"
    value = getattr(answer, which)
    match which:
        case "rejected":
            return f"rejected: {value.reason}"
        case "error":
            return f"error: {value.error_message if hasattr(value, 'error_message') else value.error}"
        case other:
            return str(other)


def agreed(text: str) -> bool:
    return text.startswith(("approved", "success"))


def _newer_text(response: bytes) -> str:
    """The reply to a newer kind as text."""
    for field, meanings in _ANSWERS.items():
        answer = raw_fields.embedded(response, field)
        for number, meaning in meanings.items() if answer is not None else ():
            value = raw_fields.embedded(answer or b"", number)
            if value is not None:
                reason = (raw_fields.embedded(value, 1) or b"").decode("utf-8", "replace")
                return meaning if meaning == "success" else f"{meaning}: {reason}"
    return "error: the answer is empty"
