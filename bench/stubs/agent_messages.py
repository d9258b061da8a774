"""What the stand-in for Cursor says, as enveloped bytes, each built once."""

from functools import lru_cache
from typing import Final

from caretway.cursor.wire.embedding import write_value
from caretway.cursor.wire.envelope import pack, write_end
from caretway.cursor.wire.messages import pb

from ..script import MODEL, TOOL, piece


def _said(message: pb.AgentServerMessage) -> bytes:
    return pack(message.SerializeToString())


def _update(update: pb.InteractionUpdate) -> bytes:
    return _said(pb.AgentServerMessage(interaction_update=update))


@lru_cache(maxsize=200_000)
def delta(index: int, size: int) -> bytes:
    return _update(pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text=piece(index, size))))


HEARTBEAT: Final = _update(pb.InteractionUpdate(heartbeat=pb.HeartbeatUpdate()))

_STATE: Final = pb.ConversationStateStructure(
    root_prompt_messages_json=[bytes(range(32))], token_details=pb.ConversationTokenDetails(used_tokens=10)
)
_ENDED: Final = pb.TurnEndedUpdate(input_tokens=10, output_tokens=10, cache_read_tokens=0)

FINISH: Final = (
    _said(pb.AgentServerMessage(conversation_checkpoint_update=_STATE))
    + _update(pb.InteractionUpdate(turn_ended=_ENDED))
    + pack(write_end(None), end=True)
)
"""A checkpoint, so that the conversation is kept as it would be; the end of the turn with its usage; the end."""

MODELS: Final = pb.GetUsableModelsResponse(
    models=[pb.ModelDetails(model_id=MODEL, display_name=MODEL)]
).SerializeToString()


def call(number: int, tool: str) -> bytes:
    """One call, announced and asked for. Those of other tools than the client's differ: they are run without it, and
    no guard against repetition sees a loop."""
    args = pb.McpArgs(name=tool, tool_name=tool, provider_identifier="caretway", tool_call_id=f"call_{number}")
    if tool != TOOL:
        args.args["n"].MergeFromString(write_value(number))
    listed = pb.InteractionUpdate(tool_requests_listed=pb.ToolRequestsListedUpdate(call_count=1))
    asked = pb.ExecServerMessage(id=number, mcp_args=args)
    return _update(listed) + _said(pb.AgentServerMessage(exec_server_message=asked))


def is_result(payload: bytes) -> bool:
    return bool(pb.AgentClientMessage.FromString(payload).HasField("exec_client_message"))
