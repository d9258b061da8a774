"""Builds the simulated server's messages as enveloped bytes: deltas, calls, checkpoints, execs, KV, the end of the
stream; splits text into words; a template for fast streams. No state."""

from collections.abc import Sequence
from typing import Final

from caretway.cursor.wire.envelope import ConnectError, pack, write_end
from caretway.cursor.wire.messages import pb

from .script import ScriptStream


def _update(update: pb.InteractionUpdate) -> bytes:
    return pack(pb.AgentServerMessage(interaction_update=update).SerializeToString())


HEARTBEAT: Final = _update(pb.InteractionUpdate(heartbeat=pb.HeartbeatUpdate()))


def text(words: str) -> bytes:
    return _update(pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text=words)))


def thinking(words: str) -> bytes:
    return _update(pb.InteractionUpdate(thinking_delta=pb.ThinkingDeltaUpdate(text=words)))


def thinking_completed(milliseconds: int) -> bytes:
    done = pb.ThinkingCompletedUpdate(thinking_duration_ms=milliseconds)
    return _update(pb.InteractionUpdate(thinking_completed=done))


def tokens(count: int) -> bytes:
    return _update(pb.InteractionUpdate(token_delta=pb.TokenDeltaUpdate(tokens=count)))


def partial_call(call_id: str, call: pb.ToolCall, args_delta: str, model_call_id: str) -> bytes:
    partial = pb.PartialToolCallUpdate(
        call_id=call_id, tool_call=call, args_text_delta=args_delta, model_call_id=model_call_id
    )
    return _update(pb.InteractionUpdate(partial_tool_call=partial))


def call_started(call_id: str, call: pb.ToolCall, model_call_id: str) -> bytes:
    started = pb.ToolCallStartedUpdate(call_id=call_id, tool_call=call, model_call_id=model_call_id)
    return _update(pb.InteractionUpdate(tool_call_started=started))


def call_completed(call_id: str, call: pb.ToolCall, model_call_id: str) -> bytes:
    completed = pb.ToolCallCompletedUpdate(call_id=call_id, tool_call=call, model_call_id=model_call_id)
    return _update(pb.InteractionUpdate(tool_call_completed=completed))


def calls_listed(count: int) -> bytes:
    return _update(pb.InteractionUpdate(tool_requests_listed=pb.ToolRequestsListedUpdate(call_count=count)))


def turn_ended(ended: pb.TurnEndedUpdate) -> bytes:
    return _update(pb.InteractionUpdate(turn_ended=ended))


def checkpoint(state: pb.ConversationStateStructure) -> bytes:
    return pack(pb.AgentServerMessage(conversation_checkpoint_update=state).SerializeToString())


def execute(message: pb.ExecServerMessage) -> bytes:
    return pack(pb.AgentServerMessage(exec_server_message=message).SerializeToString())


def get_blob(number: int, name: bytes) -> bytes:
    kv = pb.KvServerMessage(id=number, get_blob_args=pb.GetBlobArgs(blob_id=name))
    return pack(pb.AgentServerMessage(kv_server_message=kv).SerializeToString())


def set_blob(number: int, name: bytes, data: bytes) -> bytes:
    kv = pb.KvServerMessage(id=number, set_blob_args=pb.SetBlobArgs(blob_id=name, blob_data=data))
    return pack(pb.AgentServerMessage(kv_server_message=kv).SerializeToString())


def query(message: pb.InteractionQuery) -> bytes:
    return pack(pb.AgentServerMessage(interaction_query=message).SerializeToString())


def end(error: ConnectError | None = None) -> bytes:
    return pack(write_end(error), end=True)


def words(text: str) -> Sequence[str]:
    """The text in the pieces that a model streams: a word with the white space after it."""
    pieces: list[str] = []
    start, size = 0, len(text)
    while start < size:
        stop = start
        while stop < size and text[stop].isspace():
            stop += 1
        while stop < size and not text[stop].isspace():
            stop += 1
        while stop < size and text[stop].isspace():
            stop += 1
        pieces.append(text[start:stop])
        start = stop
    return pieces


class StreamTemplate:
    """Text deltas of one size. They differ in their text only, so only the text is inserted."""

    def __init__(self, step: ScriptStream) -> None:
        sample = text("x" * step.size)
        self._head = sample[: len(sample) - step.size]
        self._step = step

    def delta(self, index: int) -> bytes:
        return self._head + self._step.delta(index).encode("ascii")
