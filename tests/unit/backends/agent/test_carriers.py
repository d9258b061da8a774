"""The pure parts under the carriers: addresses, request heads, outboxes, the reader of a run's answer."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import Dialler, Origin, read_origin
from caretway.cursor.transport.h2_connection import speaks_http2
from caretway.cursor.transport.h2_stream import Outbox
from caretway.cursor.transport.identity import RUN_HEADERS, head, read_fields
from caretway.cursor.transport.ports import TransportLimits
from caretway.cursor.transport.run_reader import RunReader
from caretway.cursor.wire.envelope import ConnectError, pack, write_unary


@pytest.mark.parametrize(
    ("url", "origin", "authority"),
    [
        ("https://api2.cursor.sh", Origin("https", "api2.cursor.sh", 443), "api2.cursor.sh"),
        ("https://api2.cursor.sh:443/", Origin("https", "api2.cursor.sh", 443), "api2.cursor.sh"),
        ("http://127.0.0.1:8080", Origin("http", "127.0.0.1", 8080), "127.0.0.1:8080"),
        ("http://[::1]:80/base/", Origin("http", "::1", 80, "/base"), "[::1]"),
    ],
)
def test_addresses(url: str, origin: Origin, authority: str) -> None:
    assert read_origin(url) == origin
    assert origin.authority == authority


@pytest.mark.parametrize(
    "url", ["", "api2.cursor.sh", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x/?q=1", "http://[x"]
)
def test_unusable_addresses(url: str) -> None:
    with pytest.raises(GatewayError) as broken:
        read_origin(url)
    assert broken.value.kind is ErrorKind.BAD_REQUEST
    assert repr(url) in broken.value.message


def test_a_ca_file_that_is_none(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("not a certificate")
    for path in (str(junk), str(tmp_path / "missing.pem")):
        with pytest.raises(GatewayError) as broken:
            Dialler(ca_file=path).dial("https://x")
        assert path in broken.value.message
        assert "--agent-ca" in broken.value.hint


def test_heads_merge_with_the_callers_word_last() -> None:
    fields = dict(head(RUN_HEADERS, {"Content-Type": "x/y", "Host": "evil", "Connection": "close", "A": " b "}))
    assert fields == {
        "content-type": "x/y",
        "connect-protocol-version": "1",
        "connect-accept-encoding": "gzip",
        "a": "b",
    }


@pytest.mark.parametrize(
    ("name", "value"), [("authorization", "a\nb"), ("x", "\x00"), ("b ad", "x"), ("", "x"), ("x", "€")]
)
def test_heads_that_cannot_be_sent(name: str, value: str) -> None:
    with pytest.raises(GatewayError) as broken:
        head({}, {name: value})
    assert repr(name) in broken.value.message


def test_repeated_response_fields_are_joined() -> None:
    assert read_fields([(b"A", b"1"), (b"b", b"\xe9"), (b"a", b"2")]) == {"a": "1, 2", "b": "é"}


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 50), min_size=1, max_size=6))
def test_an_outbox_gives_back_what_went_in(messages: list[bytes], sizes: list[int]) -> None:
    box, taken = Outbox(), b""
    for message in messages:
        box.add(message)
    assert box.size == sum(map(len, messages))
    for size in [*sizes, 1000]:
        before = box.size
        piece = box.take(size)
        assert len(piece) == min(size, before)
        assert box.size == before - len(piece)
        taken += piece
    assert taken == b"".join(messages)


@pytest.mark.parametrize(
    ("first", "verdict"),
    [(b"", None), (b"\x00\x00\x12", None), (b"\x00\x00\x12\x04", True), (b"HTTP/1.1 400", False), (b"HTT", None)],
)
def test_the_first_bytes_of_a_peer(first: bytes, verdict: bool | None) -> None:
    assert speaks_http2(first) is verdict


STREAM = pack(b"one") + pack(b"") + pack(b"two" * 50) + pack(b"{}", end=True)


class Heard:
    """Whoever opened a run, and how it was told about it."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.closings: list[GatewayError | None] = []

    def on_messages(self, messages: list[bytes]) -> None:
        self.messages += messages

    def on_closed(self, error: GatewayError | None) -> None:
        self.closings.append(error)

    def failure(self) -> GatewayError:
        (error,) = self.closings
        assert error is not None
        return error


def reader() -> tuple[RunReader, Heard]:
    heard = Heard()
    return RunReader(heard, TransportLimits(max_frame_bytes=1000, max_refusal_bytes=100)), heard


def test_a_runs_answer_in_any_chunking() -> None:
    for size in (len(STREAM), *range(1, 12)):
        drip, heard = reader()
        drip.on_head(200, {"content-type": "application/connect+proto"} if size % 2 else {})
        for start, stop in pairwise([*range(0, len(STREAM), size), len(STREAM)]):
            drip.on_data(STREAM[start:stop])
        drip.on_end(None)
        assert heard.messages == [b"one", b"", b"two" * 50, b"{}"]
        assert heard.closings == [None]


def test_answers_that_are_none() -> None:
    silent, heard = reader()
    silent.on_end(None)
    assert heard.failure().kind is ErrorKind.UPSTREAM_PROTOCOL
    with pytest.raises(GatewayError, match="text/html"):
        reader()[0].on_head(200, {"content-type": "text/html"})
    large, _ = reader()
    large.on_head(200, {})
    with pytest.raises(GatewayError, match="over the limit"):
        large.on_data(b"\x00\x00\x01\x00\x00\x0a")
    cut, heard = reader()
    cut.on_head(200, {})
    cut.on_data(pack(b"abc")[:-1])
    cut.on_end(None)
    assert not heard.messages
    assert heard.failure().kind is ErrorKind.UPSTREAM_DOWN


def test_a_refusal_is_read_up_to_its_limit() -> None:
    small, heard = reader()
    small.on_head(400, {"retry-after": "2"})
    small.on_data(write_unary(ConnectError("unavailable")))
    small.on_end(None)
    error = heard.failure()
    assert not heard.messages
    assert (error.kind, error.retry_after) == (ErrorKind.UPSTREAM_DOWN, 2.0)
    large, _ = reader()
    large.on_head(403, {})
    with pytest.raises(GatewayError) as refused:
        large.on_data(b"x" * 5000)
    assert refused.value.kind is ErrorKind.FORBIDDEN
