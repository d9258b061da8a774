"""Playbooks for the sans-I/O conversation: what the server says, what the clock says, what comes out."""

from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from caretway.backends.agent.compose import Composer, RunContext
from caretway.backends.agent.conversation import Conversation, Retry
from caretway.backends.agent.turn_clock import ConversationLimits, GivenUp, StepPace
from caretway.backends.builtin_tools.execs import Policy, Refuse
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event
from caretway.core.recovery import Loss
from caretway.core.request import Message, Role, Text, ToolChoice, ToolSpec, TurnRequest
from caretway.cursor.wire.messages import pb

LIMITS = ConversationLimits(
    client_heartbeat=5, exec_heartbeat=3, silence=30, progress=90, tool_progress=600, sibling_quiet=0.5, retries=2
)


def no_blobs(_: bytes) -> bytes | None:
    return None


def refuse(_: pb.ExecServerMessage) -> Refuse:
    return Refuse("not here")


class Story:
    """A conversation with its clock."""

    def __init__(
        self,
        *tools: str | ToolSpec,
        parallel: bool = True,
        policy: Policy = refuse,
        fetch: Callable[[bytes], bytes | None] = no_blobs,
        limits: ConversationLimits = LIMITS,
        pace: StepPace | None = None,
    ) -> None:
        self.now = 1000.0
        self.request = TurnRequest(
            "sim-auto",
            (Message(Role.USER, (Text("hello"),)),),
            tools=tuple(ToolSpec(one) if isinstance(one, str) else one for one in tools),
            tool_choice=ToolChoice(parallel=parallel),
        )
        opening = Composer(RunContext()).compose(self.request, conversation_id="conv", run_id="run")
        self.conversation = Conversation(
            opening, self.request, policy=policy, limits=limits, fetch_blob=fetch, pace=pace
        )
        self.conversation.open(self.now)

    def hear(self, *messages: pb.AgentServerMessage) -> None:
        self.conversation.feed([message.SerializeToString() for message in messages], self.now)

    def wait(self, seconds: float) -> GivenUp | None:
        self.now += seconds
        return self.conversation.tick(self.now)

    def lose(self, cause: Loss = Loss.CUT) -> Retry | None:
        return self.conversation.lost(cause, GatewayError(ErrorKind.UPSTREAM_DOWN, "cut"))

    def drop(self) -> None:
        """The connection breaks, and the next attempt begins."""
        assert self.lose() is not None
        self.conversation.outgoing.clear()
        self.conversation.open(self.now)

    def events(self) -> list[Event]:
        events, self.conversation.events = self.conversation.events, []
        return events

    def said(self) -> list[pb.AgentClientMessage]:
        messages, self.conversation.outgoing = self.conversation.outgoing, []
        return [pb.AgentClientMessage.FromString(message) for message in messages]

    def kinds(self) -> list[str]:
        return [kind_of(message) for message in self.said()]


def kind_of(message: pb.AgentClientMessage) -> str:
    outer = message.WhichOneof("message") or ""
    inner: Any = getattr(message, outer)
    for name in ("message", "result"):
        if name in inner.DESCRIPTOR.oneofs_by_name:
            return f"{outer}.{inner.WhichOneof(name)}"
    return outer


def update(**fields: Any) -> pb.AgentServerMessage:
    return pb.AgentServerMessage(interaction_update=pb.InteractionUpdate(**fields))


def text(words: str) -> pb.AgentServerMessage:
    return update(text_delta=pb.TextDeltaUpdate(text=words))


def thinking(words: str) -> pb.AgentServerMessage:
    return update(thinking_delta=pb.ThinkingDeltaUpdate(text=words))


def heartbeat() -> pb.AgentServerMessage:
    return update(heartbeat=pb.HeartbeatUpdate())


def ended(**usage: Any) -> pb.AgentServerMessage:
    return update(turn_ended=pb.TurnEndedUpdate(**usage))


def listed(count: int) -> pb.AgentServerMessage:
    return update(tool_requests_listed=pb.ToolRequestsListedUpdate(call_count=count))


def partial(call: str, name: str, arguments: str, *, inner: str = "") -> pb.AgentServerMessage:
    """`call`: the id outside; `inner`: the one that the exec will use."""
    shown = pb.ToolCall(mcp_tool_call=pb.McpToolCall(args=pb.McpArgs(tool_name=name, tool_call_id=inner)))
    return update(partial_tool_call=pb.PartialToolCallUpdate(call_id=call, tool_call=shown, args_text_delta=arguments))


def mcp(exec_id: int, call: str, name: str, **arguments: Any) -> pb.AgentServerMessage:
    args = pb.McpArgs(tool_name=name, tool_call_id=call)
    for key, value in arguments.items():
        args.args[key].CopyFrom(ParseDict(value, Value()))
    return pb.AgentServerMessage(exec_server_message=pb.ExecServerMessage(id=exec_id, mcp_args=args))


def shell(exec_id: int, call: str, command: str) -> pb.AgentServerMessage:
    args = pb.ShellArgs(command=command, tool_call_id=call)
    return pb.AgentServerMessage(exec_server_message=pb.ExecServerMessage(id=exec_id, shell_args=args))


def completed(call: str, *, inner: str = "") -> pb.AgentServerMessage:
    shown = pb.ToolCall(mcp_tool_call=pb.McpToolCall(args=pb.McpArgs(tool_call_id=inner))) if inner else None
    return update(tool_call_completed=pb.ToolCallCompletedUpdate(call_id=call, tool_call=shown))


def checkpoint(*roots: bytes, used: int = 0) -> pb.AgentServerMessage:
    state = pb.ConversationStateStructure(root_prompt_messages_json=roots)
    state.token_details.used_tokens = used
    return pb.AgentServerMessage(conversation_checkpoint_update=state)


def set_blob(number: int, key: bytes, data: bytes) -> pb.AgentServerMessage:
    kv = pb.KvServerMessage(id=number, set_blob_args=pb.SetBlobArgs(blob_id=key, blob_data=data))
    return pb.AgentServerMessage(kv_server_message=kv)


def get_blob(number: int, key: bytes) -> pb.AgentServerMessage:
    kv = pb.KvServerMessage(id=number, get_blob_args=pb.GetBlobArgs(blob_id=key))
    return pb.AgentServerMessage(kv_server_message=kv)
