"""Converts the bridge's frames into AgentServerMessages (deltas, calls, execs, blobs, checkpoints), and a turn's
answers into plain values for the SDK, with markers for 64-bit numbers and bytes. Pure.

A turn therefore treats a run of the SDK as a run on the wire: the same table of calls, end of a step and redirection of
built-in tools.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ...core.errors import KEYS_PAGE, ErrorKind, GatewayError, said
from ...cursor.transport.faults import BY_CODE, BY_STATUS, HINTS, fault_from_connect
from ...cursor.transport.refusals import AskedRun
from ...cursor.wire.embedding import write_value
from ...cursor.wire.envelope import ConnectError
from ...cursor.wire.messages import pb
from ...installation import install_command
from ...processes.lines import Line

PROVIDER: Final = "custom-user-tools"
"""The name of the MCP server under which the SDK offers custom tools."""
_WIDE: Final = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})
_COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_BRACKETED: Final = re.compile(r"^\[(\w+)\]\s*(.*)$", re.DOTALL)
_WHOSE: Final = re.compile(rb'\{(?:"t":"reply",)?"n":(\d+)')
"""The start of a line, with the number of its run or question."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One line of the bridge. `t` determines which fields are used."""

    t: str
    n: int = -1
    id: int = 0
    s: str = ""
    c: int = 0
    name: str = ""
    call: str = ""
    args: dict[str, Any] | None = None
    kind: str = ""
    key: str = ""
    data: bytes = b""
    usage: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    status: str = ""
    message: str = ""
    code: str | None = ""
    http: int = 0
    thrown: bool = False
    value: Any = None


SdkMessage = tuple[Frame, bytes | None]
"""(frame, the equivalent AgentServerMessage or None if there is none)."""
_DECODER: Final = msgspec.json.Decoder(Frame)


def read_frame(line: Line) -> SdkMessage:
    """Read one line. An unreadable line ends only its own run. Raises ValueError if its run is unknown."""
    try:
        frame = _DECODER.decode(line if isinstance(line, bytes) else b"")
        return frame, server_message(frame)
    except (ValueError, DecodeError, RecursionError) as broken:
        head, why = (line, str(broken)) if isinstance(line, bytes) else (line.head, str(line))
    if (found := _WHOSE.match(head)) is None:
        raise ValueError(why)
    words = f"the SDK sent something that cannot be read: {why}"
    return Frame(t="over", n=int(found[1]), status="error", thrown=True, code="unreadable", message=words), None


def server_message(frame: Frame) -> bytes | None:
    say = _UPDATES.get(frame.kind, _UPDATES["step-started"]) if frame.t == "update" else _MESSAGES.get(frame.t)
    return None if say is None else say(frame).SerializeToString()


def _call(frame: Frame) -> pb.AgentServerMessage:
    args = pb.McpArgs(name=frame.name, tool_call_id=frame.call, provider_identifier=PROVIDER, tool_name=frame.name)
    for name, value in (frame.args or {}).items():
        args.args[name].MergeFromString(write_value(value))
    return pb.AgentServerMessage(exec_server_message=pb.ExecServerMessage(id=frame.id, mcp_args=args))


def _update(**fields: Any) -> pb.AgentServerMessage:
    return pb.AgentServerMessage(interaction_update=pb.InteractionUpdate(**fields))


def _exec(frame: Frame) -> pb.AgentServerMessage:
    exec_ = pb.ExecServerMessage(id=frame.id)
    getattr(exec_, f"{frame.kind}_args").MergeFromString(frame.data)
    getattr(exec_, f"{frame.kind}_args").SetInParent()
    return pb.AgentServerMessage(exec_server_message=exec_)


def _ended(frame: Frame) -> pb.AgentServerMessage:
    counts = {name: (frame.usage or {}).get(_camel(name)) for name in _COUNTS}
    known: Any = {name: int(count) for name, count in counts.items() if isinstance(count, int) and count >= 0}
    return _update(turn_ended=pb.TurnEndedUpdate(**known))


def _set(frame: Frame) -> pb.AgentServerMessage:
    blob = pb.SetBlobArgs(blob_id=bytes.fromhex(frame.key), blob_data=frame.data)
    return pb.AgentServerMessage(kv_server_message=pb.KvServerMessage(id=0, set_blob_args=blob))


_UPDATES: Final[Mapping[str, Callable[[Frame], pb.AgentServerMessage]]] = {
    "text-delta": lambda frame: _update(text_delta=pb.TextDeltaUpdate(text=frame.s)),
    "thinking-delta": lambda frame: _update(thinking_delta=pb.ThinkingDeltaUpdate(text=frame.s)),
    "token-delta": lambda frame: _update(token_delta=pb.TokenDeltaUpdate(tokens=frame.c)),
    "tool-call-started": lambda _: _update(tool_call_started=pb.ToolCallStartedUpdate()),
    "partial-tool-call": lambda _: _update(tool_call_delta=pb.ToolCallDeltaUpdate()),
    "tool-call-completed": lambda frame: _update(tool_call_completed=pb.ToolCallCompletedUpdate(call_id=frame.call)),
    "tool-requests-listed": lambda frame: _update(tool_requests_listed=pb.ToolRequestsListedUpdate(call_count=frame.c)),
    "turn-ended": _ended,
    "step-started": lambda _: _update(step_started=pb.StepStartedUpdate()),
}
"""The SDK's name of an update -> its message. Other updates count as `step-started`, a sign of life."""
_MESSAGES: Final[Mapping[str, Callable[[Frame], pb.AgentServerMessage]]] = {
    "beat": lambda _: _update(heartbeat=pb.HeartbeatUpdate()),
    "call": _call,
    "exec": _exec,
    "set": _set,
    "state": lambda frame: pb.AgentServerMessage(
        conversation_checkpoint_update=pb.ConversationStateStructure.FromString(frame.data)
    ),
}


def code_and_words(frame: Frame) -> tuple[str, str]:
    """Split the SDK's text `[code] words`."""
    found = _BRACKETED.match(frame.message)
    return (found[1], found[2]) if found else (frame.code or "unknown", frame.message)


def end_of(frame: Frame) -> bytes:
    """The end of a stream from Cursor's report, or from the SDK's text."""
    code, message = code_and_words(frame)
    return msgspec.json.encode(frame.end or {"error": {"code": code, "message": message}})


# ---- answers to the SDK


def exec_answer(message: bytes) -> tuple[int, Any] | None:
    """(exec id, return value of the SDK's callback) from an AgentClientMessage; None if the SDK needs no answer."""
    sent = pb.AgentClientMessage.FromString(message)
    control, reply = sent.exec_client_control_message, sent.exec_client_message
    if control.HasField("throw"):
        return control.throw.id, _failed(control.throw.error)
    kind = reply.WhichOneof("message")
    if kind is None:
        return None
    result = getattr(reply, kind)
    return reply.id, _tool_result(result) if kind == "mcp_result" else plain(result)


def _failed(reason: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": reason}], "isError": True}


def _tool_result(result: pb.McpResult) -> dict[str, Any]:
    if result.WhichOneof("result") != "success":
        missing = result.tool_not_found
        return _failed(f"There is no tool `{missing.name}`. There are: {', '.join(missing.available_tools)}.")
    content: list[dict[str, Any]] = []
    for part in result.success.content:
        if part.HasField("image"):
            content.append({"type": "image", "data": part.image.data, "mimeType": part.image.mime_type})
        else:
            content.append({"type": "text", "text": part.text.text})
    return {"content": content or [{"type": "text", "text": ""}], "isError": result.success.is_error}


def plain(message: Message) -> dict[str, Any]:
    """A message in the form of the SDK's library: `{"result": {"case": "success", "value": {...}}}`."""
    out: dict[str, Any] = {}
    for field, value in message.ListFields():
        shown = _plain(field, value)
        oneof = field.containing_oneof
        if oneof is not None and not oneof.name.startswith("_"):
            out[_camel(oneof.name)] = {"case": _camel(field.name), "value": shown}
        else:
            out[_camel(field.name)] = shown
    return out


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _one(inner, each) for key, each in value.items()}
    if field.is_repeated:
        return [_one(field, each) for each in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return plain(value)
    if field.cpp_type in _WIDE:
        return {"$int": str(value)}
    return {"$bytes": value} if isinstance(value, bytes) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


# ---- Converts the SDK's exceptions before a run into GatewayErrors by class, code and text; also the errors for an
# unusable SDK and for a process that ended during a turn.
#
# The refusal of a running run comes from Cursor and is read like the Agent API's refusals.

BROKEN: Final = re.compile(
    r"network request failed|fetch failed|socket hang up|^terminated$|econn|enotfound|eai_again", re.IGNORECASE
)
"""Node's messages about a broken connection."""

BY_NAME: Final[Mapping[str, ErrorKind]] = {
    "usage_limit_exceeded": ErrorKind.QUOTA,
    "rate_limit_exceeded": ErrorKind.RATE_LIMITED,
    "rate_limited": ErrorKind.RATE_LIMITED,
    "invalid_model": ErrorKind.MODEL_UNKNOWN,
    "agent_not_found": ErrorKind.TURN_GONE,
    "agent_busy": ErrorKind.TURN_GONE,
    "timeout": ErrorKind.TIMEOUT,
    "unreadable": ErrorKind.UPSTREAM_PROTOCOL,
    "AuthenticationError": ErrorKind.SIGNED_OUT,
    "NetworkError": ErrorKind.UPSTREAM_DOWN,
}
"""The SDK's own codes and classes; Connect's codes and texts are in `BY_CODE` and `fault_from_connect`."""

_HINTS: Final[Mapping[ErrorKind, str]] = {
    **HINTS,
    ErrorKind.SIGNED_OUT: f"Set CURSOR_API_KEY to a key from {KEYS_PAGE}.",
    ErrorKind.UPSTREAM_DOWN: f"{HINTS[ErrorKind.UPSTREAM_DOWN]} The SDK ignores proxies; --backend agent does not.",
    ErrorKind.TURN_GONE: "",
}


def fault_of(frame: Frame) -> GatewayError:
    """The error for an exception of the SDK."""
    code, message = code_and_words(frame)
    kind = BY_NAME.get(frame.code or "") or BY_STATUS.get(frame.http) or BY_NAME.get(frame.name)
    words = ConnectError(code if code in BY_CODE else "unknown", message)
    kind = kind or (ErrorKind.UPSTREAM_DOWN if BROKEN.search(message) else fault_from_connect(words, AskedRun()).kind)
    return GatewayError(kind, f"Cursor: {said(' '.join(message.split()))}", hint=_HINTS.get(kind, ""))


def bridge_lost() -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        "The Cursor SDK's bridge process ended in the middle of the turn.",
        hint="Send the request again: a new bridge is started for it.",
    )


def sdk_unfit(what: str) -> GatewayError:
    return GatewayError(
        ErrorKind.UNSUPPORTED,
        f"The installed cursor-sdk cannot be used: {said(what)}.",
        hint=f"Reinstall it with `{install_command('sdk', again=True)}`, or use --backend agent.",
    )
