"""TurnRequest -> the first message of a run. Pure: ids are handed in.

The history travels as the conversation state: one content-addressed JSON blob for each earlier message, so that the
same history always has the same ids and the upstream cache stays warm. The newest user message is the run's action.
A history that ends with tool results has no new user message: its action is `resume_action`, as after a drop.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from ...core.estimate import prompt_chars
from ...core.request import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult, ToolSpec, TurnRequest
from ...wire.blobs import blob_id, image_part, text_part, tool_call_part, tool_result_part, write_message
from ...wire.messages import pb

PROVIDER = "caretway"
"""The MCP server name under which the client's tools are offered."""

GO_ON = "Continue."
"""A run needs words of the user. A history that ends with the assistant's own says only this."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the gateway says about itself in a run: nothing about the client's machine that the client did not say."""

    os_version: str = ""
    shell: str = ""
    time_zone: str = ""
    workspace: str | None = None
    """Only set when tools run here, inside this directory."""
    system_delivery: Literal["rule", "root"] = "rule"
    history_carrier: Literal["root", "typed"] = "root"


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything needed to open (and, after a drop, to reopen) one run."""

    conversation_id: str
    state: bytes
    """Serialised ConversationStateStructure."""
    action: pb.ConversationAction
    context: pb.RequestContext
    model: pb.RequestedModel
    tools: tuple[pb.McpToolDefinition, ...]
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    prompt_chars: int = 0
    """Length of everything that was sent as prompt; for usage estimates only."""

    def run_request(self, run_id: str, checkpoint: bytes | None = None) -> bytes:
        """The serialised AgentClientMessage that opens an attempt; with a checkpoint it resumes from there."""
        request = pb.AgentRunRequest(
            conversation_id=self.conversation_id, requested_model=self.model, run_id=run_id, next_interaction_query_id=0
        )
        # Present even when empty: without the field the server says "Conversation state is required".
        request.conversation_state.SetInParent()
        request.mcp_tools.SetInParent()
        request.mcp_tools.mcp_tools.extend(self.tools)
        if checkpoint is None:
            request.conversation_state.ParseFromString(self.state)
            request.action.CopyFrom(self.action)
        else:
            request.conversation_state.ParseFromString(checkpoint)
            request.action.resume_action.request_context.CopyFrom(self.context)
        return pb.AgentClientMessage(run_request=request).SerializeToString()


def tool_definitions(tools: Iterable[ToolSpec]) -> tuple[pb.McpToolDefinition, ...]:
    return tuple(
        pb.McpToolDefinition(
            name=tool.name,
            description=tool.description,
            input_schema=ParseDict(_plain(tool.schema) or {"type": "object"}, Value()),
            provider_identifier=PROVIDER,
            tool_name=tool.name,
        )
        for tool in tools
    )


def _plain(value: Any) -> Any:
    """A JSON schema as protobuf's Value can hold it: integers beyond 2**53 and the like become floats anyway."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def request_context(
    surroundings: Surroundings, tools: Sequence[pb.McpToolDefinition], system: str
) -> pb.RequestContext:
    context = pb.RequestContext(tools=tools, rules_info_complete=True, env_info_complete=True, mcp_info_complete=True)
    context.env.os_version = surroundings.os_version
    context.env.shell = surroundings.shell
    context.env.time_zone = surroundings.time_zone
    if surroundings.workspace is not None:
        context.env.workspace_paths.append(surroundings.workspace)
        context.env.process_working_directory = surroundings.workspace
    if system and surroundings.system_delivery == "rule":
        context.cloud_rule = system
    return context


def requested_model(request: TurnRequest) -> pb.RequestedModel:
    model = pb.RequestedModel(model_id=request.model)
    for name, value in request.parameters:
        model.parameters.add(id=name, value=value)
    return model


def compose(
    request: TurnRequest,
    *,
    conversation_id: str,
    surroundings: Surroundings,
    checkpoint: bytes | None = None,
) -> Opening:
    """The opening of a run. With a checkpoint only what follows the last assistant message travels."""
    offered = request.tools if request.tool_choice.mode != "none" else ()
    tools = tool_definitions(offered)
    history, newest = split_newest(request.messages)
    instructions = request.system if any(message.role is not Role.SYSTEM for message in request.messages) else ""
    system = "\n\n".join(part for part in (instructions, _tool_rule(request)) if part)
    context = request_context(surroundings, tools, system)
    blobs: dict[bytes, bytes] = {}
    action = pb.ConversationAction()
    if newest is None:
        action.resume_action.request_context.CopyFrom(context)
    else:
        action.user_message_action.user_message.CopyFrom(_user_message(newest))
        action.user_message_action.request_context.CopyFrom(context)
    if checkpoint is not None:
        state = checkpoint
    else:
        structure = pb.ConversationStateStructure()
        root: list[bytes] = []
        if system and surroundings.system_delivery == "root":
            root.append(write_message("system", system))
        if surroundings.history_carrier == "typed" and newest is not None:
            action.user_message_action.conversation_history.CopyFrom(typed_history(history))
        else:
            root.extend(root_messages(history))
        for data in root:
            key = blob_id(data)
            blobs[key] = data
            structure.root_prompt_messages_json.append(key)
        state = structure.SerializeToString()
    return Opening(
        conversation_id=conversation_id,
        state=state,
        action=action,
        context=context,
        model=requested_model(request),
        tools=tools,
        blobs=blobs,
        prompt_chars=prompt_chars(request),
    )


def split_newest(messages: Sequence[Message]) -> tuple[list[Message], Message | None]:
    """(history without system messages, the user's newest words or None when the history ends with tool results).

    What the user said since the last assistant or tool message is one new message: clients split it as they like.
    """
    talk = [message for message in messages if message.role is not Role.SYSTEM]
    if not talk:  # instructions and nothing else: they are what is to be answered
        return [], _joined(messages)
    cut = len(talk)
    while cut and talk[cut - 1].role is Role.USER:
        cut -= 1
    history, fresh = talk[:cut], talk[cut:]
    if fresh:
        return history, _joined(fresh)
    if history and history[-1].role is Role.TOOL:
        return history, None
    return history, Message(Role.USER, (Text(GO_ON),))


def _joined(messages: Sequence[Message]) -> Message:
    if len(messages) == 1:
        return messages[0]
    parts: list[Any] = []
    for message in messages:
        if parts and message.text:
            parts.append(Text("\n\n"))
        parts.extend(message.parts)
    return Message(Role.USER, tuple(parts))


def _tool_rule(request: TurnRequest) -> str:
    """`tool_choice` has no field on the wire: it is a rule to the model, checked when the step ends."""
    match request.tool_choice.mode:
        case "required" if request.tools:
            return "You must call at least one of the offered tools before you answer in text."
        case "named":
            return f"You must call the tool `{request.tool_choice.name}` before you answer in text."
        case _:
            return ""


def _user_message(message: Message) -> pb.UserMessage:
    user = pb.UserMessage(text=message.text)
    for number, image in enumerate(part for part in message.parts if isinstance(part, Image)):
        user.selected_context.selected_images.add(
            uuid=f"{blob_id(image.data).hex()[:32]}-{number}", mime_type=image.mime_type, data=image.data
        )
    return user


def root_messages(history: Sequence[Message]) -> list[bytes]:
    """One JSON message for each message of the history; consecutive tool messages stay one each."""
    names: dict[str, str] = {}
    written: list[bytes] = []
    for message in history:
        parts: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text(text=text):
                    if text:
                        parts.append(text_part(text))
                case Image(data=data, mime_type=mime_type):
                    parts.append(image_part(mime_type, base64.b64encode(data).decode()))
                case ToolCall(id=call, name=name, arguments=arguments):
                    names[call] = name
                    parts.append(tool_call_part(call, name, read_arguments(arguments)))
                case ToolResult(call_id=call, is_error=failed):
                    parts.append(tool_result_part(call, names.get(call, ""), result_text(part), is_error=failed))
                    parts.extend(
                        image_part(image.mime_type, base64.b64encode(image.data).decode())
                        for image in part.content
                        if isinstance(image, Image)
                    )
                case Reasoning():
                    pass  # a client's copy of old thinking has no signature Cursor would accept
        written.append(write_message(message.role.value, parts))
    return written


def typed_history(history: Sequence[Message]) -> pb.ConversationHistory:
    """The same history in the typed fields of newer clients; unverified against the real service."""
    typed = pb.ConversationHistory()
    names: dict[str, str] = {}
    for message in history:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
        match message.role:
            case Role.USER:
                user = typed.messages.add().user
                for part in message.parts:
                    if isinstance(part, Text):
                        user.content.add().text.text = part.text
                    elif isinstance(part, Image):
                        image = user.content.add().image
                        image.data, image.mime_type = base64.b64encode(part.data).decode(), part.mime_type
            case Role.ASSISTANT:
                assistant = typed.messages.add().assistant
                for part in message.parts:
                    if isinstance(part, Text):
                        assistant.content.add().text.text = part.text
                    elif isinstance(part, ToolCall):
                        call = assistant.content.add().tool_call
                        call.tool_call_id, call.tool_name, call.args_json = part.id, part.name, part.arguments
            case Role.TOOL:
                for part in message.parts:
                    if isinstance(part, ToolResult):
                        tool = typed.messages.add().tool
                        tool.tool_call_id, tool.tool_name = part.call_id, names.get(part.call_id, "")
                        tool.is_error = part.is_error
                        tool.content.add().text.text = result_text(part)
            case Role.SYSTEM:
                pass
    return typed


def read_arguments(arguments: str) -> Any:
    """What an earlier call was made with; a model's broken JSON is told as it was, it must not end the conversation."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return arguments


def result_text(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, Text))
