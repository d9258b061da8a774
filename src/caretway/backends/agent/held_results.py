"""Which tool results a checkpoint already holds, read from Cursor's own blobs (`tool-result` parts, steps of the newest
turn): those calls are not asked for again after a lost run. Pure.

The order on the wire proves nothing: a checkpoint may be made before the result and arrive after Cursor said that it
has it.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from ...cursor.wire.messages import pb

NAMELESS: Final = "exec_"
"""How the id of a call begins that came without one."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")

Held = Callable[[str], bool | None]
"""call id -> does the checkpoint hold its result? None: its pieces cannot be read."""


def held_results(
    state: pb.ConversationStateStructure | None,
    pieces: Mapping[bytes, bytes],
    older: Collection[bytes] = frozenset(),
) -> Held:
    """`pieces`: by their ids. `older`: messages that cannot hold a result that is looked for."""
    if state is None:
        return lambda _: False
    roots = [key for key in state.root_prompt_messages_json if key in pieces]
    steps = _newest_steps(state, pieces)
    if not roots and not steps:
        return lambda _: None
    messages = [pieces[key] for key in roots if key not in older]

    def held(call_id: str) -> bool | None:
        if call_id.startswith(NAMELESS):
            return None  # a name of ours, which Cursor never heard
        part = max(_PLAIN.findall(call_id), key=len, default="").encode()  # however the rest of it is spelled
        return any(_step_result(data, call_id) for data in steps if part in data) or any(
            _message_result(data, call_id) for data in messages if part in data
        )

    return held


def _newest_steps(state: pb.ConversationStateStructure, pieces: Mapping[bytes, bytes]) -> list[bytes]:
    try:
        turns = [pb.ConversationTurnStructure.FromString(pieces.get(key, b"")) for key in state.turns[-1:]]
    except DecodeError:
        return []
    return [pieces[name] for turn in turns for name in turn.agent_conversation_turn.steps if name in pieces]


def _step_result(data: bytes, call_id: str) -> bool:
    try:
        call = pb.ConversationStep.FromString(data).tool_call
    except DecodeError:
        return False
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
