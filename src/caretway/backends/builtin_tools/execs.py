"""Builds protobuf answers to execs: refusals in the type of each kind (a throw for an unknown kind), MCP results,
request context, heartbeats, stream close. Also hashes equal execs and readdresses answers. Pure.

Every exec gets an answer, because the server waits for an answer: the model sees a refusal, not a broken connection.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from google.protobuf.message import Message
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


@lru_cache(maxsize=1024)
def stream_close(exec_id: int) -> bytes:
    """The end of an exec's answer; the official client always sends it. The ids begin anew in every run."""
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


class TypedResult(Struct, frozen=True):
    """The field that answers an exec of one kind, and the names of its variants for a refusal and a failure."""

    field: str
    refused: str = "rejected"
    failed: str = "error"


RESULTS: Final[Mapping[str, TypedResult]] = {
    "shell_args": TypedResult("shell_result", failed="spawn_error"),
    "shell_stream_args": TypedResult("shell_stream", failed="rejected"),
    "background_shell_spawn_args": TypedResult("background_shell_spawn_result"),
    "write_args": TypedResult("write_result"),
    "delete_args": TypedResult("delete_result"),
    "grep_args": TypedResult("grep_result", refused="error"),
    "read_args": TypedResult("read_result"),
    "redacted_read_args": TypedResult("redacted_read_result"),
    "ls_args": TypedResult("ls_result"),
    "diagnostics_args": TypedResult("diagnostics_result"),
    "fetch_args": TypedResult("fetch_result", refused="error"),
    "write_shell_stdin_args": TypedResult("write_shell_stdin_result", refused="error"),
    "list_mcp_resources_exec_args": TypedResult("list_mcp_resources_exec_result", refused="error"),
    "read_mcp_resource_exec_args": TypedResult("read_mcp_resource_exec_result", refused="error"),
    "mcp_state_exec_args": TypedResult("mcp_state_exec_result", refused="error"),
    "subagent_args": TypedResult("subagent_result", refused="error"),
    "shell_allowlist_precheck_args": TypedResult("shell_allowlist_precheck_result", refused=""),
    "mcp_allowlist_precheck_args": TypedResult("mcp_allowlist_precheck_result", refused=""),
    "web_fetch_allowlist_precheck_args": TypedResult("web_fetch_allowlist_precheck_result", refused=""),
}
"""Exec kind -> its typed result. A precheck has no variants: an empty result denies it."""
_REASONS: Final = ("reason", "error", "client_visible_error")


def fill(result: Any, variant: str, args: Message, reason: str) -> None:
    """Set a variant of a typed result: the fields that repeat the arguments, and the field for the reason."""
    inner = getattr(result, variant) if variant else result
    inner.SetInParent()
    for name in inner.DESCRIPTOR.fields_by_name:
        if name in _REASONS:
            setattr(inner, name, reason)
        elif name in args.DESCRIPTOR.fields_by_name:
            setattr(inner, name, getattr(args, name))


def failed(exec_: pb.ExecServerMessage, reason: str) -> ExecReply:
    kind = exec_.WhichOneof("message") or ""
    return _reply(exec_, kind, RESULTS[kind].failed, reason)


def _reply(exec_: pb.ExecServerMessage, kind: str, variant: str, reason: str) -> ExecReply:
    reply = ExecReply(id=exec_.id)
    fill(getattr(reply, RESULTS[kind].field), variant, getattr(exec_, kind), reason)
    return reply


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
    kind = exec_.WhichOneof("message") or ""
    if kind not in RESULTS:
        return [throw(exec_.id, f"this client cannot do that: {reason}"), stream_close(exec_.id)]
    return [answer(_reply(exec_, kind, RESULTS[kind].refused, reason)), stream_close(exec_.id)]
