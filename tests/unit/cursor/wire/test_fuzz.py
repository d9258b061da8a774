"""Any bytes into any reader: a value or the reader's own exception, never another one."""

from collections.abc import Callable
from typing import Final

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from caretway.cursor.wire.embedding import AppendSyntax, AppendWriter, read_append
from caretway.cursor.wire.envelope import (
    ConnectError,
    End,
    EnvelopeError,
    EnvelopeReader,
    ErrorSyntax,
    pack,
    read_end,
    read_unary,
    write_end,
)
from caretway.cursor.wire.messages import pb

from .recordings import messages

CAP: Final = 4096
SEEDS: Final = sorted({row.payload or b"" for row in messages()}, key=len)[::40]


def mutated(wrap: Callable[[bytes], bytes]) -> st.SearchStrategy[bytes]:
    """Well-formed bytes with a few of them changed, cut out or put in: gets deeper than noise does."""

    def spoil(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
        for at, length, new in edits:
            start = at % (len(body) + 1)
            body = body[:start] + new + body[start + length :]
        return body

    edits = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 4), st.binary(max_size=4)), max_size=4)
    return st.builds(spoil, st.sampled_from(SEEDS).map(wrap), edits) | st.binary(max_size=600)


def outcome(read: Callable[[bytes], object], body: bytes, documented: type[Exception]) -> object:
    try:
        return read(body)
    except documented:
        return None


@given(mutated(lambda payload: pack(payload) + pack(payload) + pack(b"{}", end=True)), st.integers(1, 64))
@example(b"\x01\x00\x00\x00\x02\x1f\x8b", 1)
def test_envelopes(body: bytes, size: int) -> None:
    """The frames and the fault are the same for every chunking, and no frame is larger than the cap."""

    def read(chunks: list[bytes]) -> tuple[list[tuple[bytes, bool]], str]:
        reader = EnvelopeReader(max_frame_bytes=CAP)
        frames: list[tuple[bytes, bool]] = []
        try:
            for chunk in [*chunks, b""]:
                frames += [(frame, isinstance(frame, End)) for frame in reader.feed(chunk)]
        except EnvelopeError as fault:
            return frames, str(fault)
        return frames, "cut" if reader.mid_frame else ""

    whole = read([body])
    assert read([body[at : at + size] for at in range(0, len(body), size)]) == whole
    assert all(len(payload) <= CAP for payload, _ in whole[0])
    assert [end for _, end in whole[0]].count(True) <= 1


ERROR: Final = write_end(ConnectError("internal", "m", error=5, title="t", retryable=True, info=(("a", "b"),)))


@given(mutated(lambda _: ERROR))
def test_ends(body: bytes) -> None:
    assert isinstance(outcome(read_end, body, ErrorSyntax), ConnectError | None)


@given(mutated(lambda _: ERROR.removeprefix(b'{"error":').removesuffix(b"}")))
def test_unary_errors_never_raise(body: bytes) -> None:
    assert isinstance(read_unary(body), ConnectError | None)


@given(mutated(AppendWriter("r").write))
def test_appends(body: bytes) -> None:
    value = outcome(read_append, body, AppendSyntax)
    if value is not None:
        request_id, number, message = read_append(body)
        assert isinstance(request_id, str)
        assert -(2**63) <= number < 2**63
        assert len(message) <= len(body)


@given(mutated(bytes))
def test_messages(body: bytes) -> None:
    for kind in (pb.AgentServerMessage, pb.AgentClientMessage):
        outcome(kind.FromString, body, DecodeError)


def test_nesting_is_bounded() -> None:
    """A value in a list in a value ... a thousand times: refused by the parser, not by the stack."""
    body = b""
    for _ in range(1000):
        inner = b"\x0a" + varint(len(body)) + body
        body = b"\x32" + varint(len(inner)) + inner
    body = b"\x1a" + varint(len(body)) + body
    with pytest.raises(DecodeError):
        pb.McpToolDefinition.FromString(body)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
