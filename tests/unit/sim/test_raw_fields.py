"""Fields by number: what is written is read again, and is what the real encoder writes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.messages import pb
from caretway_sim import raw_fields


@given(st.integers(1, 5000), st.integers(1, 2**63), st.binary(max_size=300))
def test_written_is_read(field: int, value: int, data: bytes) -> None:
    written = raw_fields.number(field, value) + raw_fields.message(field, data)
    assert list(raw_fields.read(written)) == [(field, value), (field, data)]
    assert raw_fields.embedded(written, field) == data


def test_it_is_protobuf() -> None:
    message = pb.GetBlobArgs(blob_id=b"x" * 200)
    wanted = pb.AgentServerMessage(kv_server_message=pb.KvServerMessage(id=300, get_blob_args=message))
    inner = raw_fields.message(2, raw_fields.message(1, b"x" * 200))
    (field,) = [number for number, _ in raw_fields.read(wanted.SerializeToString())]
    assert raw_fields.message(field, raw_fields.number(1, 300), inner) == wanted.SerializeToString()


def test_fixed_width_fields_are_passed_over() -> None:
    assert list(raw_fields.read(b"\x09" + b"a" * 8 + b"\x15" + b"b" * 4)) == [
        (1, int.from_bytes(b"a" * 8)),
        (2, int.from_bytes(b"b" * 4)),
    ]


@pytest.mark.parametrize("broken", [b"\x08", b"\x0a\x05ab", b"\x0b", b"\xff" * 11])
def test_what_is_no_message(broken: bytes) -> None:
    with pytest.raises(DecodeError):
        list(raw_fields.read(broken))
