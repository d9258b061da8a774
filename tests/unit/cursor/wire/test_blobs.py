"""Blob ids and the JSON messages in blobs, beside the root prompts that the official client stored and gave back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.blobs import (
    blob_id,
    ids_in,
    image_part,
    reachable,
    text_part,
    tool_call_part,
    tool_result_part,
    write_message,
)
from caretway.cursor.wire.messages import pb

from .recordings import messages


def stored() -> dict[bytes, bytes]:
    """Every blob that was handed to the official client."""
    found: dict[bytes, bytes] = {}
    for row in messages():
        if row.kind == "kv_server_message.set_blob_args":
            args = pb.AgentServerMessage.FromString(row.payload or b"").kv_server_message.set_blob_args
            found[args.blob_id] = args.blob_data
    return found


def test_an_id_is_the_sha256() -> None:
    assert blob_id(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert len(blob_id(b"x")) == 32


def test_a_checkpoint_names_blobs_and_nothing_else() -> None:
    blobs = stored()
    for row in messages():
        if row.kind == "conversation_checkpoint_update":
            state = pb.AgentServerMessage.FromString(row.payload or b"").conversation_checkpoint_update
            assert state.root_prompt_messages_json
            assert state.turns
            for name in (*state.root_prompt_messages_json, *state.turns):
                assert name in blobs


def test_root_prompts_are_json_messages() -> None:
    blobs = stored()
    roles = set()
    for row in messages():
        if row.kind == "conversation_checkpoint_update":
            state = pb.AgentServerMessage.FromString(row.payload or b"").conversation_checkpoint_update
            entries = [json.loads(blobs[name]) for name in state.root_prompt_messages_json]
            roles |= {entry["role"] for entry in entries}
            assert all("content" in entry for entry in entries)
    assert {"system", "user", "assistant", "tool"} >= roles >= {"user", "assistant"}


def test_turns_are_readable_down_to_their_steps() -> None:
    blobs = stored()
    steps = set()
    for row in messages():
        if row.kind == "conversation_checkpoint_update":
            state = pb.AgentServerMessage.FromString(row.payload or b"").conversation_checkpoint_update
            for name in state.turns:
                turn = pb.ConversationTurnStructure.FromString(blobs[name]).agent_conversation_turn
                assert pb.UserMessage.FromString(blobs[turn.user_message]).text
                steps |= {pb.ConversationStep.FromString(blobs[step]).WhichOneof("message") for step in turn.steps}
    assert steps == {"assistant_message", "tool_call", "thinking_message"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", '{"content":"hi","role":"user"}'),
        ([text_part("hi")], '{"content":[{"text":"hi","type":"text"}],"role":"user"}'),
        (
            [tool_call_part("c1", "add", {"b": 1, "a": 2})],
            '{"content":[{"args":{"a":2,"b":1},"toolCallId":"c1","toolName":"add","type":"tool-call"}],"role":"user"}',
        ),
        (
            [tool_result_part("c", "t", "3")],
            '{"content":[{"isError":false,"result":"3","toolCallId":"c","toolName":"t","type":"tool-result"}],"role":"user"}',
        ),
        (
            [image_part("image/png", "iVBO")],
            '{"content":[{"image":"data:image/png;base64,iVBO","mediaType":"image/png","type":"image"}],"role":"user"}',
        ),
        ("größer ☂", '{"content":"größer ☂","role":"user"}'),
    ],
)
def test_messages_are_written_canonically(content: Any, text: str) -> None:
    assert write_message("user", content) == text.encode()


def test_the_same_history_gives_the_same_ids() -> None:
    one = write_message("assistant", [tool_call_part("c", "t", {"x": 1, "y": {"b": 1, "a": 2}})])
    two = write_message(
        "assistant", [dict(reversed(tool_call_part("c", "t", {"y": {"a": 2, "b": 1}, "x": 1}).items()))]
    )
    assert blob_id(one) == blob_id(two)


# ---- what a state leads to


def kept(store: dict[bytes, bytes], data: bytes) -> bytes:
    store[blob_id(data)] = data
    return blob_id(data)


def test_every_blob_that_a_state_leads_to() -> None:
    store: dict[bytes, bytes] = {}
    user = kept(store, pb.UserMessage(text="hello " * 40).SerializeToString())
    step = kept(store, b"step")
    inner = pb.AgentConversationTurnStructure(user_message=user, steps=[step, b"g" * 32], request_id="r" * 32)
    turn = kept(store, pb.ConversationTurnStructure(agent_conversation_turn=inner).SerializeToString())
    root = kept(store, b'{"content":"%b"}' % step)
    newer = kept(store, b"of a field that nobody knows")
    state = pb.ConversationStateStructure(root_prompt_messages_json=[root], turns=[turn]).SerializeToString()
    state += b"\xfa\x3e\x20" + newer
    assert reachable(state, store.get) == {blob_id(state): state, **store}
    assert reachable(b"", store.get) == {}


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_lead_nowhere_and_break_nothing(data: bytes) -> None:
    assert all(len(key) == 32 for key in ids_in(data))
