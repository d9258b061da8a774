"""Builds protobuf answers to execs: refusals in the type of each kind (a throw for an unknown kind), MCP results,
request context, heartbeats, stream close. Also hashes equal execs and readdresses answers. Pure.

Every exec gets an answer, because the server waits for an answer: the model sees a refusal, not a broken connection.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from ...core.errors import GatewayError
from ...core.request import Image, Text, ToolResult
from ...cursor.wire.embedding import embed, tag
from ...cursor.wire.messages import pb

# ---- The types of decisions about an exec (a call of a built-in tool): `Redirect` to a client's tool, `RunHere`,
# `Refuse`, or `EndTurn` by the loop guard. `policy.py` decides.

Convert = Callable[[int, ToolResult], list[bytes]]
"""(exec id, the client's result) -> the messages that answer the exec."""


class Redirect(Struct, frozen=True):
    """An exec that one of the client's tools can run."""

    name: str
    arguments: str
    convert: Convert
    carries_text: bool = False
    """The answer can carry text that came with the client's result."""


class RunHere(Struct, frozen=True):
    """An exec that the gateway runs itself, in its workspace."""


class Refuse(Struct, frozen=True):
    reason: str


class EndTurn(Struct, frozen=True):
    """The turn ends, because the model repeated a call after the loop guard's refusal."""

    error: GatewayError


Decision = Redirect | RunHere | Refuse | EndTurn
Policy = Callable[[pb.ExecServerMessage], Decision]
"""Decides what to do with an exec."""


class JobRunner(Protocol):
    """Runs an exec in the gateway and returns the messages that answer it."""

    async def run(self, exec_: pb.ExecServerMessage) -> list[bytes]: ...


ExecReply = pb.ExecClientMessage


_MESSAGE_REPLY: Final = tag(pb.AgentClientMessage, "exec_client_message")
_REPLY_RESULT: Final = tag(pb.ExecClientMessage, "request_context_result")
_RESULT_SUCCESS: Final = tag(pb.RequestContextResult, "success")
_SUCCESS_CONTEXT: Final = tag(pb.RequestContextSuccess, "request_context")


def stream_close(exec_id: int) -> bytes:
    """The end of an exec's answer; the official client always sends it."""
    control = pb.ExecClientControlMessage(stream_close=pb.ExecClientStreamClose(id=exec_id))
    return pb.AgentClientMessage(exec_client_control_message=control).SerializeToString()


def heartbeat(exec_id: int) -> bytes:
    control = pb.ExecClientControlMessage(heartbeat=pb.ExecClientHeartbeat(id=exec_id))
    return pb.AgentClientMessage(exec_client_control_message=control).SerializeToString()


def throw(exec_id: int, error: str) -> bytes:
    control = pb.ExecClientControlMessage(throw=pb.ExecClientThrow(id=exec_id, error=error))
    return pb.AgentClientMessage(exec_client_control_message=control).SerializeToString()


def answer(reply: ExecReply) -> bytes:
    return pb.AgentClientMessage(exec_client_message=reply).SerializeToString()


def readdressed(messages: Sequence[bytes], exec_id: int) -> list[bytes]:
    """The answers with another exec id."""
    renamed: list[bytes] = []
    for data in messages:
        message = pb.AgentClientMessage.FromString(data)
        if message.HasField("exec_client_message"):
            message.exec_client_message.id = exec_id
        else:
            control = message.exec_client_control_message
            getattr(control, control.WhichOneof("message") or "stream_close").id = exec_id
        renamed.append(message.SerializeToString())
    return renamed


def mcp_result(exec_id: int, result: ToolResult) -> ExecReply:
    success = pb.McpSuccess(is_error=result.is_error)
    for part in result.content:
        match part:
            case Text(text=text):
                success.content.add().text.text = text
            case Image(data=data, mime_type=mime_type):
                image = success.content.add().image
                image.data, image.mime_type = data, mime_type
    return ExecReply(id=exec_id, mcp_result=pb.McpResult(success=success))


def tool_not_found(exec_id: int, name: str, available: Sequence[str]) -> ExecReply:
    missing = pb.McpToolNotFound(name=name, available_tools=available)
    return ExecReply(id=exec_id, mcp_result=pb.McpResult(tool_not_found=missing))


def mcp_approved(exec_id: int) -> ExecReply:
    """The answer to a probe: the call would be permitted. No tool runs."""
    return ExecReply(id=exec_id, mcp_result=pb.McpResult(approved=pb.McpApproved()))


def mcp_state(exec_id: int, wanted: Sequence[str], context: bytes) -> ExecReply:
    """The MCP servers with their tools from a serialised RequestContext. `wanted` names the requested servers; empty
    means all."""
    success = pb.McpStateSuccess()
    servers: dict[str, pb.McpStateServer] = {}
    for tool in pb.RequestContext.FromString(context).tools:
        name = tool.provider_identifier
        if wanted and name not in wanted:
            continue
        if name not in servers:
            servers[name] = success.servers.add(server_name=name, server_identifier=name, status="connected")
        servers[name].tools.append(tool)
    return ExecReply(id=exec_id, mcp_state_exec_result=pb.McpStateExecResult(success=success))


def context_answer(exec_id: int, context: bytes) -> bytes:
    """The answer with a serialised RequestContext, which is not parsed because an agent's tools make it large."""
    result = embed(_RESULT_SUCCESS, embed(_SUCCESS_CONTEXT, context))
    reply = ExecReply(id=exec_id).SerializeToString() + embed(_REPLY_RESULT, result)
    return embed(_MESSAGE_REPLY, reply)


def shell_rejected(args: pb.ShellArgs | pb.BackgroundShellSpawnArgs, reason: str) -> pb.ShellRejected:
    return pb.ShellRejected(command=args.command, working_directory=args.working_directory, reason=reason)


def _shell(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    return ExecReply(shell_result=pb.ShellResult(rejected=shell_rejected(exec_.shell_args, reason)))


def _shell_stream(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    return ExecReply(shell_stream=pb.ShellStream(rejected=shell_rejected(exec_.shell_stream_args, reason)))


def _background(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    rejected = shell_rejected(exec_.background_shell_spawn_args, reason)
    return ExecReply(background_shell_spawn_result=pb.BackgroundShellSpawnResult(rejected=rejected))


def _write(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    rejected = pb.WriteRejected(path=exec_.write_args.path, reason=reason)
    return ExecReply(write_result=pb.WriteResult(rejected=rejected))


def _delete(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    rejected = pb.DeleteRejected(path=exec_.delete_args.path, reason=reason)
    return ExecReply(delete_result=pb.DeleteResult(rejected=rejected))


def _grep(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    return ExecReply(grep_result=pb.GrepResult(error=pb.GrepError(error=reason)))


def _read(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    rejected = pb.ReadRejected(path=exec_.read_args.path, reason=reason)
    return ExecReply(read_result=pb.ReadResult(rejected=rejected))


def _redacted_read(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    rejected = pb.ReadRejected(path=exec_.redacted_read_args.path, reason=reason)
    return ExecReply(redacted_read_result=pb.ReadResult(rejected=rejected))


def _ls(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    return ExecReply(ls_result=pb.LsResult(rejected=pb.LsRejected(path=exec_.ls_args.path, reason=reason)))


def _diagnostics(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    rejected = pb.DiagnosticsRejected(path=exec_.diagnostics_args.path, reason=reason)
    return ExecReply(diagnostics_result=pb.DiagnosticsResult(rejected=rejected))


def _fetch(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    return ExecReply(fetch_result=pb.FetchResult(error=pb.FetchError(url=exec_.fetch_args.url, error=reason)))


def _stdin(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    error = pb.WriteShellStdinError(error=reason)
    return ExecReply(write_shell_stdin_result=pb.WriteShellStdinResult(error=error))


def _list_resources(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    error = pb.ListMcpResourcesError(error=reason)
    return ExecReply(list_mcp_resources_exec_result=pb.ListMcpResourcesExecResult(error=error))


def _read_resource(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    error = pb.ReadMcpResourceError(uri=exec_.read_mcp_resource_exec_args.uri, error=reason)
    return ExecReply(read_mcp_resource_exec_result=pb.ReadMcpResourceExecResult(error=error))


def _mcp_state(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    return ExecReply(mcp_state_exec_result=pb.McpStateExecResult(error=pb.McpStateError(error=reason)))


def _subagent(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    return ExecReply(subagent_result=pb.SubagentResult(error=pb.SubagentError(error=reason)))


_NOT_LISTED: Final = pb.AllowlistPrecheckResult(allowlisted=False)

REFUSALS: Final[dict[str, Callable[[pb.ExecServerMessage, str], ExecReply]]] = {
    "shell_args": _shell,
    "shell_stream_args": _shell_stream,
    "background_shell_spawn_args": _background,
    "write_args": _write,
    "delete_args": _delete,
    "grep_args": _grep,
    "read_args": _read,
    "redacted_read_args": _redacted_read,
    "ls_args": _ls,
    "diagnostics_args": _diagnostics,
    "fetch_args": _fetch,
    "write_shell_stdin_args": _stdin,
    "list_mcp_resources_exec_args": _list_resources,
    "read_mcp_resource_exec_args": _read_resource,
    "mcp_state_exec_args": _mcp_state,
    "subagent_args": _subagent,
    "shell_allowlist_precheck_args": lambda *_: ExecReply(shell_allowlist_precheck_result=_NOT_LISTED),
    "mcp_allowlist_precheck_args": lambda *_: ExecReply(mcp_allowlist_precheck_result=_NOT_LISTED),
    "web_fetch_allowlist_precheck_args": lambda *_: ExecReply(web_fetch_allowlist_precheck_result=_NOT_LISTED),
}
"""Exec kind -> the function that builds its refusal."""


def call_id(exec_: pb.ExecServerMessage) -> str:
    """The id of the call that the exec belongs to; empty if it has none."""
    kind = exec_.WhichOneof("message")
    return getattr(getattr(exec_, kind), "tool_call_id", "") if kind else ""


def essence(exec_: pb.ExecServerMessage) -> str:
    """A hash of the exec's arguments without its ids: equal for equivalent execs."""
    args = getattr(exec_, exec_.WhichOneof("message") or "request_context_args")
    bare = type(args)()
    bare.CopyFrom(args)
    if "tool_call_id" in bare.DESCRIPTOR.fields_by_name:
        bare.ClearField("tool_call_id")
    return hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()


def refuse(exec_: pb.ExecServerMessage, reason: str) -> list[bytes]:
    """The messages that refuse an exec request of any kind, known or not."""
    kind = exec_.WhichOneof("message")
    build = REFUSALS.get(kind) if kind else None
    if build is None:
        return [throw(exec_.id, f"this client cannot do that: {reason}"), stream_close(exec_.id)]
    reply = build(exec_, reason)
    reply.id = exec_.id
    return [answer(reply), stream_close(exec_.id)]
