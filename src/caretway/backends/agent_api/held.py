"""Which tool results a checkpoint holds, read from the pieces that Cursor stored with us. Pure.

Looked at only when a run is lost: a call whose result is in the checkpoint will not be asked for again, and one whose
result is not there will. The pieces are JSON messages (`tool-result` parts) and the steps of the newest turn.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from ...wire.messages import pb

NAMELESS: Final = "exec_"
"""How the id of a call begins that came without one."""


def held_results(checkpoint: bytes | None, pieces: Mapping[bytes, bytes]) -> Callable[[str], bool | None]:
    """call id -> does the checkpoint hold its result? None: its pieces cannot be read. `pieces`: by their ids."""
    if checkpoint is None:
        return lambda _: False
    state = pb.ConversationStateStructure.FromString(checkpoint)
    messages = [pieces[key] for key in state.root_prompt_messages_json if key in pieces]
    steps = _newest_steps(state, pieces)
    if not messages and not steps:
        return lambda _: None

    def held(call_id: str) -> bool | None:
        if call_id.startswith(NAMELESS):
            return None  # a name of ours, which Cursor never heard
        spelled = call_id.encode()
        return any(_step_result(step, call_id) for step in steps) or any(
            _message_result(data, call_id)
            for data in messages
            if spelled in data or not call_id.isprintable() or not call_id.isascii()
        )

    return held


def _newest_steps(state: pb.ConversationStateStructure, pieces: Mapping[bytes, bytes]) -> list[pb.ConversationStep]:
    try:
        turns = [pb.ConversationTurnStructure.FromString(pieces.get(key, b"")) for key in state.turns[-1:]]
        names = [name for turn in turns for name in turn.agent_conversation_turn.steps if name in pieces]
        return [pb.ConversationStep.FromString(pieces[name]) for name in names]
    except DecodeError:
        return []


def _step_result(step: pb.ConversationStep, call_id: str) -> bool:
    call = step.tool_call
    kind = call.WhichOneof("tool")
    if kind is None:
        return False
    inner = getattr(call, kind)
    ids = (call.tool_call_id, getattr(getattr(inner, "args", None), "tool_call_id", ""))
    return call_id in ids and "result" in inner.DESCRIPTOR.fields_by_name and inner.HasField("result")


def _message_result(data: bytes, call_id: str) -> bool:
    try:
        message: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "tool-result" and part.get("toolCallId") == call_id
        for part in content
    )
