"""Where frames and messages end, as a table, and over several connections."""

import pytest

from faults.boundaries import PREFACE, Tape
from faults.plan import Direction

FRAME = b"\x00\x00\x03\x00\x00\x00\x00\x00\x01abc"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"

CASES = [
    ("frames", FRAME + FRAME, [12, 24]),
    ("a frame that is not complete", FRAME + FRAME[:-1], [12]),
    ("the greeting", PREFACE + FRAME, [24, 36]),
    ("a body", PLAIN + b"ok", [len(PLAIN), len(PLAIN) + 2]),
    ("a body that is not complete", PLAIN + b"o", [len(PLAIN)]),
    (
        "chunks, then the next message",
        CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + PLAIN,
        [len(CHUNKED), len(CHUNKED) + 7, len(CHUNKED) + 12, len(CHUNKED) + 12 + len(PLAIN)],
    ),
]


@pytest.mark.parametrize(("name", "stream", "ends"), CASES, ids=[case[0] for case in CASES])
def test_ends(name: str, stream: bytes, ends: list[int]) -> None:
    whole, dripped = Tape(), Tape()
    whole.note(0, Direction.UP, stream)
    for at in range(len(stream)):
        dripped.note(0, Direction.UP, stream[at : at + 1])
    assert whole.boundaries(Direction.UP) == dripped.boundaries(Direction.UP) == ends
    assert whole.boundaries(Direction.DOWN) == []


def test_connections_take_turns() -> None:
    tape = Tape()
    for connection, data in ((1, FRAME[:5]), (2, FRAME), (1, FRAME[5:] + FRAME)):
        tape.note(connection, Direction.DOWN, data)
    assert tape.size(Direction.DOWN) == 36
    assert tape.boundaries(Direction.DOWN) == [17, 24, 36]
