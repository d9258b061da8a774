"""Connect framing: recorded payloads in every chunking, compression, caps, and streams that end badly."""

import base64
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.envelope import (
    COMPRESSED,
    DETAILS_TYPE,
    END_OF_STREAM,
    HEADER_BYTES,
    ConnectError,
    End,
    EnvelopeError,
    EnvelopeReader,
    ErrorSyntax,
    pack,
    read_end,
    read_unary,
    write_end,
    write_unary,
)
from caretway.cursor.wire.messages import ai

from .recordings import NAMES, Run, all_runs, messages, rows, runs

ERRORS: Final = {
    "a bare code": ConnectError("unavailable"),
    "with a message": ConnectError("internal", "it broke"),
    "usage limit": ConnectError(
        "resource_exhausted", "Error", error=10, title="Usage limit", detail="Upgrade or wait.", retryable=False
    ),
    "rate limit": ConnectError(
        "resource_exhausted", error=50, retryable=True, info=(("retryAfterMs", "1500"), ("scope", "user"))
    ),
    "retryable without a number": ConnectError("unavailable", retryable=True),
    "a number that no schema names": ConnectError("unknown", error=99_999),
    "more than ASCII": ConnectError("internal", "größer ☂", title="日本", detail="\u0000\n\U0001f600"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_round_trip(error: ConnectError) -> None:
    assert read_end(write_end(error)) == error
    assert read_unary(write_unary(error)) == error


@pytest.mark.seed("C16")
def test_the_end_of_stream_frame_carries_the_error() -> None:
    """In bytes: flag 2, the length, JSON."""
    body = b'{"error":{"code":"unavailable","message":"try again later"}}'
    frame = b"\x02\x00\x00\x00\x3c" + body
    for cut in range(len(frame)):
        reader = EnvelopeReader()
        (end,) = [*reader.feed(frame[:cut]), *reader.feed(frame[cut:])]
        assert type(end) is End
        assert read_end(end) == ConnectError("unavailable", "try again later")
    assert pack(write_end(ConnectError("unavailable", "try again later")), end=True) == frame
    (word,) = EnvelopeReader().feed(b"\x00" + frame[1:])
    assert type(word) is not End


TEXT_OF_ERRORS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    st.builds(
        ConnectError,
        TEXT_OF_ERRORS.filter(bool),
        TEXT_OF_ERRORS,
        st.integers(0, 2**31 - 1),
        TEXT_OF_ERRORS,
        TEXT_OF_ERRORS,
        st.none() | st.booleans(),
        st.dictionaries(TEXT_OF_ERRORS, TEXT_OF_ERRORS, max_size=4).map(lambda info: tuple(sorted(info.items()))),
    )
)
def test_any_error_round_trips(error: ConnectError) -> None:
    assert read_end(write_end(error)) == error
    assert read_unary(write_unary(error)) == error


def test_success_round_trips() -> None:
    assert write_end() == b"{}"
    assert read_end(write_end()) is None


def test_recorded_ends_are_successes() -> None:
    ends = [row.json for name in NAMES for row in rows(name) if row.kind == "end_of_stream"]
    assert len(ends) == 13
    assert [read_end(json.dumps(end).encode()) for end in ends] == [None] * 13


def detailed(value: str, kind: str = DETAILS_TYPE) -> bytes:
    return json.dumps({"error": {"code": "internal", "details": [{"type": kind, "value": value}]}}).encode()


@pytest.mark.parametrize("title", ["", "a", "ab", "abc"])
def test_base64_with_and_without_padding(title: str) -> None:
    """Connect writes it unpadded; a proxy or another server may pad. Four lengths: every remainder occurs."""
    details = ai.ErrorDetails(error=ai.ErrorDetails.ERROR_BAD_MODEL_NAME)
    details.details.title = title
    padded = base64.b64encode(details.SerializeToString()).decode()
    for value in (padded, padded.rstrip("=")):
        read = read_end(detailed(value))
        assert read is not None
        assert (read.name, read.title) == ("BAD_MODEL_NAME", title)


def test_what_we_write_is_unpadded() -> None:
    for error in ERRORS.values():
        for item in json.loads(write_unary(error)).get("details", []):
            assert "=" not in item["value"]
            assert item["type"] == "aiserver.v1.ErrorDetails"


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, ""), (2, "NOT_LOGGED_IN"), (5, "BAD_MODEL_NAME"), (43, "CONVERSATION_TOO_LONG"), (99_999, "")],
)
def test_names(number: int, name: str) -> None:
    assert ConnectError("internal", error=number).name == name


PLAIN: Final = ConnectError("internal")

USELESS_DETAILS: Final = {
    "another type": detailed("CAU", "google.rpc.RetryInfo"),
    "no base64": detailed("*"),
    "one character": detailed("C"),
    "not ASCII": detailed("é"),
    "no protobuf": detailed("/////w"),
    "not a list": b'{"error":{"code":"internal","details":{"type":1}}}',
    "not objects": b'{"error":{"code":"internal","details":[null,1,"x",[],{}]}}',
    "no string": b'{"error":{"code":"internal","details":[{"type":"aiserver.v1.ErrorDetails","value":7}]}}',
}


@pytest.mark.parametrize("payload", USELESS_DETAILS.values(), ids=USELESS_DETAILS.keys())
def test_details_only_refine(payload: bytes) -> None:
    assert read_end(payload) == PLAIN


def test_the_first_readable_details_count() -> None:
    good = json.loads(write_unary(ConnectError("internal", error=5)))["details"]
    broken = [{"type": DETAILS_TYPE, "value": "*"}, {"type": "other", "value": "CAU"}]
    body = json.dumps({"code": "internal", "details": broken + good}).encode()
    assert read_unary(body) == ConnectError("internal", error=5)


ENDS: Final[dict[str, tuple[bytes, ConnectError | None]]] = {
    "empty": (b"", None),
    "blank": (b" \n", None),
    "null": (b'{"error":null}', None),
    "metadata only": (b'{"metadata":{"a":["b"]}}', None),
    "no code": (b'{"error":{}}', ConnectError("unknown")),
    "empty code": (b'{"error":{"code":""}}', ConnectError("unknown")),
    "code of another kind": (b'{"error":{"code":{"a":[1]},"message":["x"]}}', ConnectError("unknown")),
    "repeated key": (b'{"error":{"code":"a","code":"b"}}', ConnectError("b")),
}


@pytest.mark.parametrize(("payload", "outcome"), ENDS.values(), ids=ENDS.keys())
def test_odd_ends(payload: bytes, outcome: ConnectError | None) -> None:
    assert read_end(payload) == outcome


HOSTILE: Final = {
    "half": b'{"error":{"code":"internal"',
    "deep": b'{"error":' + b"[" * 100_000,
    "deep and whole": b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not UTF-8": b'{"error":{"code":"\xff\xfe"}}',
    "lone surrogate": b'{"error":{"code":"\\ud800"}}',
    "huge number": b'{"error":' + b"9" * 10_000 + b"}",
    "huge exponent": b'{"error":1e99999}',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "error is text": b'{"error":"internal"}',
    "error is true": b'{"error":true}',
    "HTML": b"<html></html>",
    "byte order mark": b"\xef\xbb\xbf{}",
    "zero bytes": bytes(64),
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile(payload: bytes) -> None:
    with pytest.raises(ErrorSyntax, match="end-of-stream"):
        read_end(payload)
    assert read_unary(payload) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT_OF_ERRORS,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["error", "code", "message", "details", "type", "value", "x"]), inner, max_size=5
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_an_outcome_or_a_syntax_error(value: Any) -> None:
    body = json.dumps(value).encode()
    try:
        outcome = read_end(body)
    except ErrorSyntax:
        outcome = None
    assert outcome is None or isinstance(outcome.code, str)
    unary = read_unary(body)
    assert unary is None or unary.code


PAYLOADS: Final = sorted({row.payload for row in messages() if row.payload is not None})
TEXT: Final = runs("text-h2")[0]


def stream_of(run: Run) -> tuple[bytes, list[bytes]]:
    """What the client of a recorded run read: its messages, then the end-of-stream frame."""
    payloads = [row.payload or b"" for row in run.heard]
    return b"".join(map(pack, payloads)) + pack(b"{}", end=True), [*payloads, End(b"{}")]


def feed_all(reader: EnvelopeReader, chunks: Iterable[bytes]) -> list[bytes]:
    return [frame for chunk in chunks for frame in reader.feed(chunk)]


def feed_into(frames: list[bytes], reader: EnvelopeReader, chunks: Iterable[bytes]) -> None:
    """As `feed_all`, for readers that are going to raise: what came before is kept."""
    for chunk in chunks:
        frames += reader.feed(chunk)


def framed(flags: int, payload: bytes) -> bytes:
    return bytes([flags]) + len(payload).to_bytes(4, "big") + payload


def dripped(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.seed("E02")
def test_the_layout_is_connects() -> None:
    assert pack(b"abc") == b"\x00\x00\x00\x00\x03abc"
    assert pack(b"{}", end=True) == b"\x02\x00\x00\x00\x02{}"
    assert pack(b"") == b"\x00\x00\x00\x00\x00"


@pytest.mark.parametrize("run", all_runs(), ids=str)
def test_whole(run: Run) -> None:
    data, frames = stream_of(run)
    reader = EnvelopeReader()
    assert reader.feed(data) == frames
    assert not reader.mid_frame


@pytest.mark.parametrize("run", all_runs(), ids=str)
def test_drip_fed(run: Run) -> None:
    data, frames = stream_of(run)
    assert feed_all(EnvelopeReader(), dripped(data)) == frames


@given(data=st.data())
def test_any_split(data: st.DataObject) -> None:
    whole, frames = stream_of(data.draw(st.sampled_from(all_runs())))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=40)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    reader = EnvelopeReader()
    assert feed_all(reader, chunks) == frames
    assert not reader.mid_frame


@pytest.mark.parametrize("recording", NAMES)
def test_gzipped(recording: str) -> None:
    for run in runs(recording):
        _, frames = stream_of(run)
        packed = [
            framed(COMPRESSED | (END_OF_STREAM if isinstance(frame, End) else 0), gzip.compress(frame))
            for frame in frames
        ]
        assert feed_all(EnvelopeReader(), packed) == frames
        assert EnvelopeReader().feed(b"".join(packed)) == frames


@given(st.lists(st.tuples(st.sampled_from(PAYLOADS) | st.binary(max_size=300), st.booleans())), st.integers(1, 50))
def test_plain_and_compressed_mixed(parts: list[tuple[bytes, bool]], size: int) -> None:
    data = b"".join(framed(COMPRESSED, gzip.compress(body)) if zipped else pack(body) for body, zipped in parts)
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert feed_all(EnvelopeReader(), chunks) == [body for body, _ in parts]


def test_an_empty_payload_may_carry_the_compressed_flag() -> None:
    assert EnvelopeReader().feed(framed(COMPRESSED, b"")) == [b""]


def test_cut_anywhere() -> None:
    """`mid_frame` is true exactly between the first byte of a frame and its last."""
    data, frames = stream_of(TEXT)
    edges = {0}
    for frame in frames:
        edges.add(max(edges) + HEADER_BYTES + len(frame))
    reader = EnvelopeReader()
    for at, byte in enumerate(dripped(data)):
        assert reader.mid_frame is (at not in edges)
        reader.feed(byte)
    assert not reader.mid_frame


BROKEN: Final = {
    "an unknown flag": (b"\x04\x00\x00\x00\x00", "unknown frame flags 0x04"),
    "a grpc-web trailer": (framed(0x80, b"grpc-status: 0\r\n"), "unknown frame flags 0x80"),
    "an HTML page": (b"<html><body>502 Bad Gateway</body></html>", "unknown frame flags 0x3c"),
    "a length over the cap": (b"\x00\x00\x00\x04\x01", "1025 bytes is over the limit of 1024"),
    "a compressed length over the cap": (b"\x01\xff\xff\xff\xff", "over the limit"),
    "an end-of-stream frame over the cap": (b"\x02\xff\xff\xff\xff", "over the limit"),
    "no gzip": (framed(COMPRESSED, b"plain"), "is broken"),
    "deflate without gzip's header": (framed(COMPRESSED, zlib.compress(b"x")), "is broken"),
    "half a gzip": (framed(COMPRESSED, gzip.compress(b"hello" * 9)[:-9]), "cut short"),
    "a gzip without its checksum": (framed(COMPRESSED, gzip.compress(b"hello")[:-8]), "cut short"),
    "a gzip with a wrong checksum": (framed(COMPRESSED, gzip.compress(b"hello")[:-8] + b"\0" * 8), "is broken"),
    "junk behind a gzip": (framed(COMPRESSED, gzip.compress(b"hello") + b"junk"), "bytes behind its end"),
    "a bomb": (framed(COMPRESSED, gzip.compress(bytes(100_000))), "unpacks to more than 1024 bytes"),
    "one byte over the cap": (framed(COMPRESSED, gzip.compress(bytes(1025))), "unpacks to more than 1024 bytes"),
    "a byte after the end": (pack(b"{}", end=True) + b"\0", "after the end-of-stream"),
    "a frame after the end": (pack(b"{}", end=True) + pack(b"late"), "after the end-of-stream"),
    "two ends": (pack(b"{}", end=True) * 2, "after the end-of-stream"),
}


@pytest.mark.parametrize(("data", "words"), BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("cut", [1, 2, 7, 10_000])
def test_broken(data: bytes, words: str, cut: int) -> None:
    """Good frames in front come out, then the fault; the same for every chunking, and final."""
    good = [b"one", b"two"]
    data = b"".join(map(pack, good)) + data
    reader = EnvelopeReader(max_frame_bytes=1024)
    frames: list[bytes] = []
    chunks = [data[at : at + cut] for at in range(0, len(data), cut)] + [b""]
    with pytest.raises(EnvelopeError, match=words):
        feed_into(frames, reader, chunks)
    assert [frame for frame in frames if not isinstance(frame, End)] == good
    assert reader.mid_frame
    for _ in range(3):
        with pytest.raises(EnvelopeError, match=words):
            reader.feed(pack(b"more"))


@pytest.mark.parametrize("size", [0, 1, 1023, 1024])
def test_up_to_the_cap(size: int) -> None:
    body = bytes(size)
    for data in (pack(body), framed(COMPRESSED, gzip.compress(body))):
        assert EnvelopeReader(max_frame_bytes=1024).feed(data) == [body]


def test_an_announced_length_over_the_cap_is_refused_on_the_header_alone() -> None:
    reader = EnvelopeReader(max_frame_bytes=1 << 20)
    header = b"\x00" + (1 << 20 | 1).to_bytes(4, "big")
    assert reader.feed(header[:-1]) == []
    with pytest.raises(EnvelopeError):
        reader.feed(header[-1:])


def test_a_bomb_is_never_unpacked() -> None:
    bomb = framed(COMPRESSED, gzip.compress(bytes(200 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(EnvelopeError, match="unpacks to more than"):
            EnvelopeReader(max_frame_bytes=1 << 20).feed(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_nothing_is_buffered_after_a_fault() -> None:
    reader = EnvelopeReader()
    with pytest.raises(EnvelopeError):
        reader.feed(b"\xff" * HEADER_BYTES)
    tracemalloc.start()
    try:
        for _ in range(100):
            with pytest.raises(EnvelopeError):
                reader.feed(bytes(1 << 16))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20


BIG = {
    "one frame dripped": lambda: dripped(pack(bytes(1 << 20))),
    "many frames at once": lambda: [pack(b"x") * (1 << 18)],
    "many frames dripped": lambda: dripped(pack(b"x" * 5) * (1 << 16)),
}


@pytest.mark.parametrize("shape", BIG)
def test_a_lot_of_bytes_in_any_shape(shape: str) -> None:
    """A second's work when it is linear; quadratic work would not end within the time limit of a test."""
    reader = EnvelopeReader()
    chunks = BIG[shape]()
    frames = sum(len(reader.feed(chunk)) for chunk in chunks)
    assert frames == {"one frame dripped": 1, "many frames at once": 1 << 18, "many frames dripped": 1 << 16}[shape]
