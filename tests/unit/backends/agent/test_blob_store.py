"""The pieces Cursor keeps with us: answers as the real encoder writes them, and a limit that nothing slips under."""

import os

import pytest

from caretway.backends.agent.blob_store import PIECE_BYTES, BlobStore
from caretway.backends.agent.snapshots import no_blobs
from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.wire.messages import pb

LIMIT = 100_000


def desk(own: dict[bytes, bytes] | None = None) -> BlobStore:
    return BlobStore(own if own is not None else {}, no_blobs, LIMIT)


def set_blob(key: bytes, data: bytes, number: int = 1) -> pb.KvServerMessage:
    return pb.KvServerMessage(id=number, set_blob_args=pb.SetBlobArgs(blob_id=key, blob_data=data))


def get_blob(key: bytes, number: int = 1) -> pb.KvServerMessage:
    return pb.KvServerMessage(id=number, get_blob_args=pb.GetBlobArgs(blob_id=key))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000, 3_000_000])
@pytest.mark.parametrize("number", [0, 1, 300])
def test_an_answer_is_what_the_real_encoder_writes(size: int, number: int) -> None:
    data = os.urandom(size)
    reply = pb.KvClientMessage(id=number, get_blob_result=pb.GetBlobResult(blob_data=data))
    got = desk({b"k": data}).answer(get_blob(b"k", number))
    assert got is not None
    assert pb.AgentClientMessage.FromString(got) == pb.AgentClientMessage(kv_client_message=reply)


def test_what_is_gone_is_never_answered_with_nothing() -> None:
    with pytest.raises(GatewayError) as gone:
        desk().answer(get_blob(b"k"))
    assert gone.value.kind is ErrorKind.TURN_GONE


HOSTILE = {
    "large pieces": (set_blob(bytes([n]), bytes(10_000)) for n in range(20)),
    "large ids": (set_blob(bytes([n]) * 10_000, b"") for n in range(20)),
    "many of nothing": (set_blob(b"%d" % n, b"") for n in range(1000)),
    "a piece that grows": (set_blob(b"k", bytes(n * 10_000)) for n in range(20)),
}


@pytest.mark.parametrize("story", HOSTILE)
def test_what_cursor_stores_is_bounded(story: str) -> None:
    blobs = desk()
    with pytest.raises(GatewayError, match="stores more") as refused:
        any(blobs.answer(each) is None for each in HOSTILE[story])
    assert refused.value.kind is ErrorKind.UPSTREAM_PROTOCOL
    assert sum(len(key) + len(data) + PIECE_BYTES for key, data in blobs.own.items()) <= LIMIT


def test_a_piece_that_is_set_again_counts_once() -> None:
    blobs = desk()
    for _ in range(100):
        assert blobs.answer(set_blob(b"k", bytes(50_000))) is not None


def test_what_the_turn_brings_does_not_count() -> None:
    blobs = desk({b"mine": bytes(10 * LIMIT)})
    assert blobs.answer(set_blob(b"k", bytes(LIMIT // 2))) is not None
