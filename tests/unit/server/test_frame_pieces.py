"""Large frames in pieces: the library reads the same messages as without, and never a large frame."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from caretway.server.frame_pieces import PIECE, FramePieces

LIMIT = 4 * PIECE
MASK = b"\x37\xfa\x21\x3d"
TWICE_WRONG = {CloseCode.PROTOCOL_ERROR, CloseCode.MESSAGE_TOO_BIG}
"""A new message in the middle of one, and too large together: either may be said."""
SIZES = (0, 1, 125, 126, 65535, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 5, LIMIT, LIMIT + 1)


def head(first: int, size: int, mask: bytes = MASK) -> bytes:
    """With the longest form of a size, which is what all large frames have."""
    return bytes([first, 0xFF if mask else 0x7F]) + struct.pack(">Q", size) + mask


def sent(opcode: Opcode, size: int, fin: bool) -> bytes:
    return Frame(opcode, (bytes(range(251)) * (size // 251 + 1))[:size], fin=fin).serialize(mask=True)


def read(portions: list[bytes]) -> tuple[list[tuple[Opcode, bytes, bool]], int | None, int]:
    """Whole frames (fragments of one message together), the close code, the longest frame that was read."""
    library = Protocol(Side.SERVER, state=State.OPEN, max_size=LIMIT)
    messages: list[tuple[Opcode, bytes, bool]] = []
    open_at = longest = 0
    for portion in portions:
        library.receive_data(portion)
        for frame in library.events_received():
            assert isinstance(frame, Frame)
            longest = max(longest, len(frame.data))
            if frame.opcode is Opcode.CONT:
                opcode, data, _ = messages[open_at]
                messages[open_at] = opcode, data + bytes(frame.data), frame.fin
            else:
                if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                    open_at = len(messages)
                messages.append((frame.opcode, bytes(frame.data), frame.fin))
    return messages, library.close_sent.code if library.close_sent else None, longest


def cut(data: bytes, at: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(mark % (len(data) + 1) for mark in at)})
    return [data[a:b] for a, b in pairwise(marks)]


FRAMES = st.lists(
    st.tuples(st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT]), st.sampled_from(SIZES), st.booleans())
    | st.tuples(st.sampled_from([Opcode.PING, Opcode.PONG]), st.sampled_from([0, 7, 125]), st.just(True)),
    max_size=4,
)


@given(FRAMES, st.lists(st.integers(0, 2**20), max_size=12))
@settings(max_examples=80)
def test_the_library_reads_the_same_messages(frames: list[tuple[Opcode, int, bool]], at: list[int]) -> None:
    data = b"".join(sent(*frame) for frame in frames)
    pieces = FramePieces(LIMIT)
    messages, code, _ = read(cut(data, at))
    ours, our_code, longest = read([pieces.feed(portion) for portion in cut(data, at)])
    assert longest <= PIECE
    assert our_code == code or {our_code, code} == TWICE_WRONG
    assert code is not None or ours == messages


def test_byte_by_byte() -> None:
    data = sent(Opcode.TEXT, PIECE + 7, True) + sent(Opcode.PING, 3, True) + sent(Opcode.BINARY, 300, True)
    pieces = FramePieces(LIMIT)
    messages, code, longest = read([pieces.feed(data[at : at + 1]) for at in range(len(data))])
    assert [(opcode, len(whole), fin) for opcode, whole, fin in messages] == [
        (Opcode.TEXT, PIECE + 7, True),
        (Opcode.PING, 3, True),
        (Opcode.BINARY, 300, True),
    ]
    assert (code, longest) == (None, PIECE)


@pytest.mark.parametrize(
    ("first", "size", "mask"),
    [
        (0x81, LIMIT + 1, MASK),
        (0x81, 2**63 + 5, MASK),
        (0x81, 2 * PIECE, b""),
    ],
    ids=["too large", "with the highest bit", "not masked"],
)
def test_what_the_library_refuses_passes_as_it_is(first: int, size: int, mask: bytes) -> None:
    assert FramePieces(LIMIT).feed(head(first, size, mask) + b"data") == head(first, size, mask) + b"data"
    _, code, _ = read([FramePieces(LIMIT).feed(head(first, size, mask) + bytes(min(size, 2 * PIECE)))])
    assert code in (1002, 1009)


@pytest.mark.parametrize("first", [0x89, 0x88, 0x83, 0xC1], ids=["a ping", "a close", "an opcode", "a reserved bit"])
def test_what_is_wrong_is_known_with_the_first_piece(first: int) -> None:
    data = head(first, 2 * PIECE) + bytes(PIECE)
    assert read([data])[1] in (None, 1002), "an opcode is refused at once, the others when all of it is there"
    assert read([FramePieces(LIMIT).feed(data)])[1] == 1002
