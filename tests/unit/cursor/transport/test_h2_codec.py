"""Our HTTP/2 against the `h2` library as the server: a second opinion on every frame, in any chunking."""

import struct

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived as ServerData
from h2.events import RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as some

from caretway.cursor.transport import h2_frames as f
from caretway.cursor.transport.h2_codec import H2Codec
from caretway.cursor.transport.h2_frames import Code, FrameType, Http2Broken, frame

FIELDS = (
    (":method", "POST"),
    (":scheme", "https"),
    (":authority", "example.com"),
    (":path", "/agent.v1.AgentService/Run"),
    ("authorization", "Bearer " + "t" * 300),
    ("x-long", "v" * 200),
)


class Pair:
    """Our client and their server, with the wire between them in our hands."""

    def __init__(self, stream_window: int = 1 << 20, connection_window: int = 1 << 20) -> None:
        self.ours = H2Codec(stream_window, connection_window)
        self.theirs = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.theirs.initiate_connection()
        self.ours.greet()
        self.carry()

    def said(self) -> bytes:
        """What our side wants to send now."""
        data = b"".join(self.ours.outgoing)
        self.ours.outgoing.clear()
        return data

    def carry(self) -> list[f.Heard]:
        """Everything either side has to say, until both are silent."""
        heard: list[f.Heard] = []
        self.events = []
        while True:
            there, back = self.said(), self.theirs.data_to_send()
            if there:
                self.events += self.theirs.receive_data(there)
            if back:
                heard += self.ours.receive(back)
            if not there and not back:
                return heard

    events: list[object]


def ready(**windows: int) -> tuple[Pair, int]:
    """A pair with one open stream whose answer has begun."""
    pair = Pair(**windows)
    stream = pair.ours.open(f.field_block(FIELDS), end=False)
    pair.carry()
    pair.theirs.send_headers(stream, [(":status", "200"), ("content-type", "x/y")])
    pair.carry()
    return pair, stream


def test_a_request_arrives_as_it_was_meant() -> None:
    pair = Pair()
    stream = pair.ours.open(f.field_block(FIELDS), end=False)
    pair.carry()
    request = next(event for event in pair.events if isinstance(event, RequestReceived))
    assert [(name.decode(), value.decode()) for name, value in request.headers or ()] == list(FIELDS)
    pair.ours.send(stream, b"hello", end=False)
    pair.ours.send(stream, b"", end=True)
    pair.carry()
    assert [event.data for event in pair.events if isinstance(event, ServerData) and event.data] == [b"hello"]
    assert any(isinstance(event, StreamEnded) for event in pair.events)


def test_fields_larger_than_a_frame_are_continued() -> None:
    pair = Pair()
    large = (*FIELDS, ("x-large", "w" * 40_000))
    pair.theirs.max_inbound_frame_size = f.FRAME_BYTES
    pair.theirs.update_settings({SettingCodes.MAX_HEADER_LIST_SIZE: 100_000})
    pair.carry()
    pair.ours.open(f.field_block(large), end=True)
    pair.carry()
    request = next(event for event in pair.events if isinstance(event, RequestReceived))
    assert dict(request.headers or ())[b"x-large"] == b"w" * 40_000


def test_an_answer_with_padding_trailers_and_an_informational_head() -> None:
    pair = Pair()
    stream = pair.ours.open(f.field_block(FIELDS), end=True)
    pair.carry()
    pair.theirs.send_headers(stream, [(":status", "103")])
    pair.theirs.send_headers(stream, [(":status", "200"), ("content-length", "5")])
    pair.theirs.send_data(stream, b"12345", pad_length=7)
    pair.theirs.send_headers(stream, [("x-trailer", "t")], end_stream=True)
    heard = pair.carry()
    assert [type(each).__name__ for each in heard] == ["HeadReceived", "DataReceived", "StreamEnded"]
    assert heard[1] == f.DataReceived(stream, b"12345", 13)


def test_an_answer_shorter_than_announced_is_a_reset_stream() -> None:
    pair = Pair()
    stream = pair.ours.open(f.field_block(FIELDS), end=True)
    pair.carry()
    head = f.frame(FrameType.HEADERS, f.END_HEADERS, stream, b"\x88\x0f\x0d\x0210")
    heard = pair.ours.receive(head + frame(FrameType.DATA, f.END_STREAM, stream, b"123"))
    assert heard[-1] == f.StreamReset(stream, Code.PROTOCOL_ERROR)


def test_windows_are_kept_on_both_sides() -> None:
    pair, stream = ready(stream_window=70_000, connection_window=70_000)
    pair.theirs.send_data(stream, b"x" * 16_000)
    pair.carry()
    assert pair.theirs.local_flow_control_window(stream) == 54_000
    pair.ours.take_more(16_000, stream)
    pair.ours.take_more(16_000)
    pair.carry()
    assert pair.theirs.local_flow_control_window(stream) == 70_000
    room = pair.ours.room(stream)
    pair.ours.send(stream, b"y" * room, end=False)
    assert pair.ours.room(stream) == min(f.FRAME_BYTES, f.FIRST_WINDOW - room)
    pair.carry()
    pair.theirs.increment_flow_control_window(room, stream)
    pair.theirs.increment_flow_control_window(room)
    assert {type(each).__name__ for each in pair.carry()} == {"WindowOpened"}


def test_a_message_goes_in_one_frame_or_waits() -> None:
    pair, stream = ready()
    assert not pair.ours.send_whole(stream, b"x" * (f.FRAME_BYTES + 1))
    for _ in range(f.FIRST_WINDOW // 16_000):
        assert pair.ours.send_whole(stream, b"x" * 16_000)
    left = f.FIRST_WINDOW % 16_000
    assert not pair.ours.send_whole(stream, b"x" * (left + 1))
    assert pair.ours.room(stream) == left  # what did not fit took nothing
    assert pair.ours.send_whole(stream, b"x" * left)
    pair.carry()  # their windows held
    assert not pair.ours.send_whole(stream + 2, b"x")


def test_a_smaller_initial_window_holds_for_open_streams_too() -> None:
    pair, stream = ready()
    pair.ours.send(stream, b"x" * 1000, end=False)
    pair.theirs.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 500})
    pair.carry()
    assert pair.ours.room(stream) < 0


def test_resets_go_both_ways_and_late_frames_are_nobodys() -> None:
    pair, stream = ready()
    pair.ours.reset(stream)
    pair.carry()
    assert any(isinstance(event, StreamReset) for event in pair.events)
    late = frame(FrameType.DATA, 0, stream, b"late")
    assert pair.ours.receive(late) == [f.DataReceived(stream, b"", 4)]  # the connection's window has to know
    assert pair.ours.receive(frame(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 9))) == []
    other = pair.ours.open(f.field_block(FIELDS), end=False)
    pair.carry()
    pair.theirs.reset_stream(other, 7)
    assert pair.carry() == [f.StreamReset(other, Code.REFUSED_STREAM)]
    assert pair.ours.room(other) == 0


def test_pings_and_goodbyes() -> None:
    pair, _ = ready()
    pair.theirs.ping(b"12345678")
    pair.carry()
    pair.ours.ping(b"abcdefgh")
    assert pair.carry() == [f.PingAnswered(b"abcdefgh")]
    pair.theirs.close_connection(last_stream_id=1)
    assert pair.carry() == [f.GoAway(1)]


@settings(max_examples=40)
@given(some.lists(some.binary(min_size=1, max_size=900), min_size=1, max_size=8), some.data())
def test_any_chunking_says_the_same(messages: list[bytes], data: some.DataObject) -> None:
    pair, stream = ready()
    for message in messages:
        pair.theirs.send_data(stream, message)
    pair.theirs.end_stream(stream)
    raw = pair.theirs.data_to_send()
    heard: list[f.Heard] = []
    at = 0
    while at < len(raw):
        step = data.draw(some.integers(1, 400))
        heard += pair.ours.receive(raw[at : at + step])
        at += step
    said = [each.data for each in heard if isinstance(each, f.DataReceived)]
    assert b"".join(said) == b"".join(messages)
    assert heard[-1] == f.StreamEnded(stream)


OPEN = 1
BROKEN = {
    "a frame that is too large": (struct.pack(">IBI", 20_000 << 8, 0, OPEN), Code.FRAME_SIZE_ERROR),
    "DATA on a stream that never was": (frame(FrameType.DATA, 0, 9, b"x"), Code.PROTOCOL_ERROR),
    "DATA on the connection": (frame(FrameType.DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
    "a stream opened by the server": (frame(FrameType.HEADERS, f.END_HEADERS, 2, b"\x88"), Code.PROTOCOL_ERROR),
    "a push": (frame(FrameType.PUSH_PROMISE, f.END_HEADERS, OPEN, b"\0\0\0\2"), Code.PROTOCOL_ERROR),
    "padding longer than the frame": (frame(FrameType.DATA, f.PADDED, OPEN, b"\x09x"), Code.PROTOCOL_ERROR),
    "fields that are none": (frame(FrameType.HEADERS, f.END_HEADERS, OPEN, b"\xff\xff\xff"), Code.COMPRESSION_ERROR),
    "a second head": (frame(FrameType.HEADERS, f.END_HEADERS, OPEN, b"\x88"), Code.PROTOCOL_ERROR),
    "a frame inside a head": (
        frame(FrameType.HEADERS, 0, OPEN, b"\x88") + frame(FrameType.PING, 0, 0, bytes(8)),
        Code.PROTOCOL_ERROR,
    ),
    "CONTINUATION of nothing": (frame(FrameType.CONTINUATION, f.END_HEADERS, OPEN, b"\x88"), Code.PROTOCOL_ERROR),
    "a short RST_STREAM": (frame(FrameType.RST_STREAM, 0, OPEN, b"\0"), Code.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (frame(FrameType.SETTINGS, 0, OPEN), Code.PROTOCOL_ERROR),
    "SETTINGS of an odd size": (frame(FrameType.SETTINGS, 0, 0, b"\0" * 5), Code.FRAME_SIZE_ERROR),
    "a window that is too large": (frame(FrameType.SETTINGS, 0, 0, b"\0\4\xff\xff\xff\xff"), Code.FLOW_CONTROL_ERROR),
    "frames that are too small": (frame(FrameType.SETTINGS, 0, 0, b"\0\5\0\0\0\1"), Code.PROTOCOL_ERROR),
    "a short PING": (frame(FrameType.PING, 0, 0, b"1"), Code.FRAME_SIZE_ERROR),
    "a short GOAWAY": (frame(FrameType.GOAWAY, 0, 0, b"1"), Code.FRAME_SIZE_ERROR),
    "a window opened by nothing": (frame(FrameType.WINDOW_UPDATE, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
    "a window opened too far": (frame(FrameType.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), Code.FLOW_CONTROL_ERROR),
    "a head that never ends": (
        frame(FrameType.HEADERS, 0, OPEN, b"\x88") + frame(FrameType.CONTINUATION, 0, OPEN) * 100,
        Code.ENHANCE_YOUR_CALM,
    ),
    "a window opened too far by a setting": (
        frame(FrameType.WINDOW_UPDATE, 0, OPEN, b"\x7f\xff\0\0") + frame(FrameType.SETTINGS, 0, 0, b"\0\4\0\2\0\0"),
        Code.FLOW_CONTROL_ERROR,
    ),
    "more than the window": (frame(FrameType.DATA, 0, OPEN, b"x" * 16_000) * 5, Code.FLOW_CONTROL_ERROR),
}


def last_frame(data: bytes) -> int:
    """Where the frame begins that broke the rules: in each case the last one that was looked at."""
    at = 0
    while (after := at + 9 + int.from_bytes(data[at : at + 3], "big")) < len(data):
        at = after
    return at


@pytest.fixture(params=BROKEN, ids=list(BROKEN))
def broken(request: pytest.FixtureRequest) -> tuple[bytes, Code]:
    return BROKEN[request.param]


def test_a_peer_that_breaks_the_rules_is_told_which(broken: tuple[bytes, Code]) -> None:
    data, code = broken
    pair, _ = ready(stream_window=70_000, connection_window=70_000)
    with pytest.raises(Http2Broken) as caught:
        pair.ours.receive(data)
    assert caught.value.code is code
    assert caught.value.stream_id == struct.unpack(">I", data[last_frame(data) + 5 :][:4])[0]
    assert pair.said().endswith(frame(FrameType.GOAWAY, 0, 0, struct.pack(">II", 0, code)))


def test_data_before_the_head_is_refused() -> None:
    pair = Pair()
    stream = pair.ours.open(f.field_block(FIELDS), end=False)
    with pytest.raises(Http2Broken):
        pair.ours.receive(frame(FrameType.DATA, 0, stream, b"x"))


def test_unknown_frames_are_ignored() -> None:
    pair, stream = ready()
    assert pair.ours.receive(frame(0xBE, 0xFF, stream, b"grease")) == []
    assert pair.ours.receive(frame(FrameType.PRIORITY, 0, stream, bytes(5))) == []


READS = some.one_of(
    some.builds(
        lambda flags, of, size: frame(FrameType.DATA, flags, of, bytes(size)),
        some.sampled_from([0, 0, 0, f.END_STREAM, f.PADDED]),
        some.sampled_from([1, 1, 1, 0, 3, 2**31 + 1]),
        some.sampled_from([0, 1, 2, 100, f.FRAME_BYTES, f.FRAME_BYTES + 1]),
    ),
    some.builds(
        lambda kind, size: frame(kind, 0, 1, bytes(size)), some.sampled_from(list(FrameType)), some.integers(0, 9)
    ),
    some.binary(max_size=20),
    some.just(frame(FrameType.DATA, 0, 1, b"a") * 2),
    some.just(frame(FrameType.DATA, 0, 1, b"cut")[:-1]),
)


@given(some.lists(READS, max_size=8))
def test_the_short_way_for_a_lone_piece_is_the_long_way_in_short(reads: list[bytes]) -> None:
    """Two of us hear the same; one takes the short way wherever it is offered."""
    (short, stream), (long, _) = ready(stream_window=70_000), ready(stream_window=70_000)
    for data in reads:
        piece = short.ours.piece(data)
        try:
            expected = long.ours.receive(data)
        except Http2Broken:
            assert piece is None
            with pytest.raises(Http2Broken):
                short.ours.receive(data)
            return
        if piece is not None:
            assert expected == [f.DataReceived(piece[0], piece[1], len(piece[1]))]
        else:
            assert short.ours.receive(data) == expected
        assert short.ours.outgoing == long.ours.outgoing
    assert short.ours.room(stream) == long.ours.room(stream)
