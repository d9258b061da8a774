"""HTTP/2 SETTINGS: ours (no push, window, header list size) as a frame, and the peer's checked: a window or frame size
out of range, push, a wrong length. Unknown names are ignored. Pure.

What a peer may not set raises `Http2Broken`.
"""

import struct

from .h2_fields import MAX_FIELDS_BYTES
from .h2_frames import ACK, FRAME_BYTES, MAX_WINDOW, Code, H2Setting, Http2Broken, settings


def our_settings(stream_window_bytes: int) -> bytes:
    """The frame that greets the peer."""
    return settings(
        (
            (H2Setting.ENABLE_PUSH, 0),
            (H2Setting.INITIAL_WINDOW_SIZE, stream_window_bytes),
            (H2Setting.MAX_HEADER_LIST_SIZE, MAX_FIELDS_BYTES),
        )
    )


def read_settings(stream_id: int, flags: int, payload: bytes) -> list[tuple[int, int]] | None:
    """(name, value) in order; None when the frame only says that ours were seen."""
    if stream_id:
        raise Http2Broken(Code.PROTOCOL_ERROR, f"SETTINGS on stream {stream_id}")
    if len(payload) % 6 or (flags & ACK and payload):
        raise Http2Broken(Code.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    if flags & ACK:
        return None
    theirs: list[tuple[int, int]] = list(struct.iter_unpack(">HI", payload))
    for name, value in theirs:
        if name == H2Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Http2Broken(Code.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
        if name == H2Setting.MAX_FRAME_SIZE and not FRAME_BYTES <= value < 1 << 24:
            raise Http2Broken(Code.PROTOCOL_ERROR, f"frames of {value} bytes")
        if name == H2Setting.ENABLE_PUSH and value:
            raise Http2Broken(Code.PROTOCOL_ERROR, "a server that wants pushes")
    return theirs
