"""SETTINGS: what a peer may set, and what it may not."""

import struct

import pytest

from caretway.cursor.transport.h2_frames import ACK, Code, H2Setting, Http2Broken, our_settings, read_settings


def setting(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">HI", name, value) for name, value in pairs)


def test_what_is_set_is_read_in_order() -> None:
    theirs = [(H2Setting.MAX_FRAME_SIZE, 1 << 20), (H2Setting.INITIAL_WINDOW_SIZE, 5), (0xFFFF, 1)]
    assert read_settings(0, 0, setting(*theirs)) == theirs, "unknown names are passed over by whoever reads on"
    assert read_settings(0, 0, b"") == []
    assert read_settings(0, ACK, b"") is None


def test_ours_can_be_read_by_the_same_rules() -> None:
    told = read_settings(0, 0, our_settings(70_000)[9:])
    assert told is not None
    assert dict(told)[H2Setting.INITIAL_WINDOW_SIZE] == 70_000
    assert dict(told)[H2Setting.ENABLE_PUSH] == 0


@pytest.mark.parametrize(
    ("stream_id", "flags", "payload", "code"),
    [
        (1, 0, b"", Code.PROTOCOL_ERROR),
        (0, 0, b"12345", Code.FRAME_SIZE_ERROR),
        (0, ACK, setting((1, 1)), Code.FRAME_SIZE_ERROR),
        (0, 0, setting((H2Setting.INITIAL_WINDOW_SIZE, 1 << 31)), Code.FLOW_CONTROL_ERROR),
        (0, 0, setting((H2Setting.MAX_FRAME_SIZE, 100)), Code.PROTOCOL_ERROR),
        (0, 0, setting((H2Setting.MAX_FRAME_SIZE, 1 << 24)), Code.PROTOCOL_ERROR),
        (0, 0, setting((H2Setting.ENABLE_PUSH, 1)), Code.PROTOCOL_ERROR),
    ],
)
def test_what_breaks_the_rules(stream_id: int, flags: int, payload: bytes, code: Code) -> None:
    with pytest.raises(Http2Broken) as broken:
        read_settings(stream_id, flags, payload)
    assert broken.value.code is code
