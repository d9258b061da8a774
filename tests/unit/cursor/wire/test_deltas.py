"""The short way to read a delta never says anything that the real decoder would not."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as some

from caretway.cursor.wire.deltas import TEXT, THINKING, read_delta
from caretway.cursor.wire.messages import pb


def written(kind: int, words: str) -> bytes:
    update = (
        pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text=words))
        if kind == TEXT
        else pb.InteractionUpdate(thinking_delta=pb.ThinkingDeltaUpdate(text=words))
    )
    return bytes(pb.AgentServerMessage(interaction_update=update).SerializeToString())


def slowly(payload: bytes) -> tuple[int, str] | None:
    """What the real decoder finds, when it is a delta of words and nothing else."""
    try:
        message = pb.AgentServerMessage.FromString(payload)
    except DecodeError:
        return None
    update = message.interaction_update
    match update.WhichOneof("message"):
        case "text_delta":
            found = (TEXT, str(update.text_delta.text))
        case "thinking_delta":
            found = (THINKING, str(update.thinking_delta.text))
        case _:
            return None
    return found if written(*found) == payload else None


@settings(max_examples=200)
@given(some.sampled_from([TEXT, THINKING]), some.text(max_size=140))
def test_deltas_are_read_as_the_decoder_reads_them(kind: int, words: str) -> None:
    payload = written(kind, words)
    short = len(payload) < 130 and words != ""
    assert read_delta(payload) == ((kind, words) if short else None)


@settings(max_examples=300)
@given(some.text(min_size=1, max_size=20), some.data())
def test_a_changed_byte_is_read_as_the_decoder_reads_it_or_left_to_it(words: str, data: some.DataObject) -> None:
    payload = bytearray(written(TEXT, words))
    at = data.draw(some.integers(0, len(payload) - 1))
    payload[at] = data.draw(some.integers(0, 255))
    found = read_delta(bytes(payload))
    assert found is None or found == slowly(bytes(payload))


@settings(max_examples=200)
@given(some.binary(max_size=140))
def test_any_bytes(payload: bytes) -> None:
    found = read_delta(payload)
    assert found is None or found == slowly(payload)


OTHERS = [
    pb.InteractionUpdate(heartbeat=pb.HeartbeatUpdate()),
    pb.InteractionUpdate(token_delta=pb.TokenDeltaUpdate(tokens=7)),
    pb.InteractionUpdate(text_delta=pb.TextDeltaUpdate(text="notice", is_server_notice=True)),
    pb.InteractionUpdate(turn_ended=pb.TurnEndedUpdate(input_tokens=1)),
]


@pytest.mark.parametrize("update", OTHERS, ids=lambda update: str(update.WhichOneof("message")))
def test_everything_else_is_left_to_the_decoder(update: pb.InteractionUpdate) -> None:
    assert read_delta(pb.AgentServerMessage(interaction_update=update).SerializeToString()) is None
