"""From bytes to requests: every cut of the same bytes gives the same requests, and every bound holds when they drip."""

from email.utils import formatdate

import httptools
import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.server.exchange import HttpRequest
from caretway.server.request_reader import (
    Bodies,
    BodyLimits,
    ConnectionLimits,
    ReadPhase,
    RequestReader,
    head_problem,
    head_size,
    http_date,
    too_slow,
    without_upgrade,
)

LIMITS_OF_BODY = BodyLimits(size=100, in_all=150, idle=3, total=30)
ANNOUNCED: list[tuple[dict[str, str], ErrorKind | None]] = [
    ({}, None),
    ({"content-length": "100"}, None),
    ({"content-length": "101"}, ErrorKind.TOO_LARGE),
    ({"content-length": "9" * 5000}, ErrorKind.TOO_LARGE),
    ({"content-encoding": "identity"}, None),
    ({"content-encoding": "gzip"}, ErrorKind.BAD_REQUEST),
    ({"content-encoding": "Identity"}, None),
]


@pytest.mark.parametrize(("headers", "kind"), ANNOUNCED)
def test_what_a_head_announces(headers: dict[str, str], kind: ErrorKind | None) -> None:
    found = None
    try:
        Bodies(LIMITS_OF_BODY).expect(headers)
    except GatewayError as error:
        found = error.kind
    assert found is kind


def test_one_body_and_all_bodies() -> None:
    bodies = Bodies(LIMITS_OF_BODY)
    bodies.take(100, 100)
    with pytest.raises(GatewayError) as one:
        Bodies(LIMITS_OF_BODY).take(101, 101)
    with pytest.raises(GatewayError) as all_of_them:
        bodies.take(51, 51)
    assert (one.value.kind, all_of_them.value.kind) == (ErrorKind.TOO_LARGE, ErrorKind.OVERLOADED)
    bodies.give_back(151)
    bodies.take(100, 100)


def test_a_slow_body_is_told_its_limits() -> None:
    assert "3 s of silence, 30 s in all" in too_slow(LIMITS_OF_BODY).message


HOST = (b"host", b"a")
PROBLEMS = [
    ("1.1", b"GET", b"/", [HOST], True),
    ("1.0", b"GET", b"/", [], True),
    ("1.1", b"GET", b"http://A/x", [HOST], True),
    ("1.1", b"OPTIONS", b"*", [HOST], True),
    ("1.1", b"POST", b"/", [HOST, (b"transfer-encoding", b" Chunked")], True),
    ("1.1", b"GET", b"/", [HOST, (b"accept", b"a"), (b"accept", b"b")], True),
    ("1.1", b"GET", b"/", [], False),
    ("2.0", b"GET", b"/", [HOST], False),
    ("0.9", b"GET", b"/", [HOST], False),
    ("1.1", b"CONNECT", b"a:1", [HOST], False),
    ("1.1", b"GET", b"/", [HOST, HOST], False),
    ("1.1", b"GET", b"http://b/x", [HOST], False),
    ("1.1", b"GET", b"http:///x", [HOST], False),
    ("1.1", b"POST", b"/", [HOST, (b"transfer-encoding", b"gzip, chunked")], False),
    ("1.0", b"POST", b"/", [HOST, (b"transfer-encoding", b"chunked")], False),
    ("1.1", b"GET", b"/", [HOST, (b"x-api-key", b"a"), (b"x-api-key", b"a")], False),
]


@pytest.mark.parametrize(("version", "method", "target", "headers", "fine"), PROBLEMS)
def test_heads(version: str, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], fine: bool) -> None:
    assert (head_problem(version, method, target, headers) is None) is fine


def test_a_head_without_the_wish_to_change_protocols() -> None:
    headers = [HOST, (b"connection", b"Upgrade, close"), (b"upgrade", b"h2c"), (b"content-length", b"3")]
    assert without_upgrade(b"POST", b"/x", "1.1", headers) == (
        b"POST /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\nupgrade: h2c\r\ncontent-length: 3\r\n\r\n"
    )
    assert b"connection" not in without_upgrade(b"GET", b"/", "1.1", [HOST, (b"connection", b"upgrade")])


@pytest.mark.parametrize(
    ("now", "told"),
    [(0, b"Thu, 01 Jan 1970 00:00:00 GMT"), (784111777, b"Sun, 06 Nov 1994 08:49:37 GMT"), (1.5e9, None)],
)
def test_dates(now: float, told: bytes | None) -> None:
    assert http_date(now) == (told or formatdate(now, usegmt=True).encode())


def test_a_head_is_counted_with_what_separates_its_headers() -> None:
    assert head_size(b"/x", []) == 2
    assert head_size(b"/x", [HOST, (b"accept", b"*")]) == 2 + len(b"host: a\r\naccept: *\r\n")


Read = tuple[str, str, dict[str, str], bytes, str, bool]


class Sink:
    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.read: list[Read] = []
        self.refused: list[GatewayError] = []
        self.ended = 0
        self.free = True
        self._head: tuple[HttpRequest, str, bool]
        self.bodies = Bodies(BodyLimits(size=100))
        self.reader = RequestReader(self, limits or ConnectionLimits(), self.bodies, "http")

    def may_begin(self) -> bool:
        return self.free

    def head_read(self, request: HttpRequest, version: str, *, keep_alive: bool) -> None:
        self._head = request, version, keep_alive

    def body_refused(self, error: GatewayError) -> None:
        self.refused.append(error)
        self.reader.wanted = False

    def body_read(self, body: bytes) -> None:
        request, version, keep_alive = self._head
        self.read.append((request.method, request.path, dict(request.headers), body, version, keep_alive))
        self.reader.wanted = False

    def request_ended(self) -> None:
        self.ended += 1


POST = b"POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nCONTENT-Type: b\r\nX-Odd: \xe9\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\nX-Api-Key: k\r\n\r\n"
)
GET = b"GET /a%20b/ HTTP/1.0\r\n\r\n"
UPGRADE = b"GET /w HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
REQUESTS: list[tuple[bytes, Read]] = [
    (
        POST,
        (
            "POST",
            "/v1/x",
            {"host": "a", "content-type": "b", "x-odd": "é", "content-length": "4"},
            b"body",
            "1.1",
            True,
        ),
    ),
    (CHUNKED, ("POST", "/c", {"host": "a", "transfer-encoding": "chunked"}, b"body", "1.1", True)),
    (GET, ("GET", "/a b", {}, b"", "1.0", False)),
    (UPGRADE, ("GET", "/w", {"host": "a", "upgrade": "websocket"}, b"", "1.1", True)),
    (b"GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n", ("GET", "/x", {"host": "a"}, b"", "1.1", True)),
    (b"GET /%ff// HTTP/1.1\r\nHost: a\r\n\r\n", ("GET", "/\ufffd", {"host": "a"}, b"", "1.1", True)),
]


@pytest.mark.parametrize(("data", "expected"), REQUESTS)
def test_requests_however_they_are_cut(data: bytes, expected: Read) -> None:
    for cut in range(len(data)):
        sink = Sink()
        sink.reader.feed(data[:cut])
        sink.reader.feed(data[cut:])
        assert sink.read == [expected], cut
    sink = Sink()
    for byte in data:
        sink.reader.feed(bytes([byte]))
    assert sink.read == [expected]
    assert (sink.reader.phase, sink.reader.unseen) == (ReadPhase.BETWEEN, 0)


def test_two_requests_in_one_piece() -> None:
    sink = Sink()
    sink.reader.feed(POST + CHUNKED)
    assert [each[1] for each in sink.read] == ["/v1/x", "/c"]


def test_several_requests_to_change_the_protocol_in_one_piece() -> None:
    sink = Sink()
    sink.reader.feed(UPGRADE + UPGRADE + POST + UPGRADE + POST[:-2])
    sink.reader.feed(POST[-2:] + UPGRADE)
    assert [each[1] for each in sink.read] == ["/w", "/w", "/v1/x", "/w", "/v1/x", "/w"]


def test_a_request_that_comes_too_early_is_not_read() -> None:
    sink = Sink()
    sink.reader.feed(POST)
    sink.free = False
    with pytest.raises(httptools.HttpParserError):
        sink.reader.feed(POST)
    assert len(sink.read) == 1
    assert sink.reader.refusal is None, "nothing was wrong with it"


LIMITS = ConnectionLimits(head_bytes=200, headers=5)
TOO_MUCH = {
    "many headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 7,
    "a long header": b"GET / HTTP/1.1\r\nHost: a\r\nx: " + b"y" * 300,
    "a long path": b"GET /" + b"x" * 300,
    "a long name of a header": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x" * 300,
}


@pytest.mark.parametrize("name", TOO_MUCH)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_head_that_is_too_large_also_when_it_drips(name: str, step: int) -> None:
    sink, data = Sink(LIMITS), TOO_MUCH[name]
    for at in range(0, len(data), step):
        try:
            sink.reader.feed(data[at : at + step])
        except httptools.HttpParserError:
            break
        if sink.reader.refusal is not None:
            break
    assert sink.reader.refusal is not None
    assert sink.reader.refusal.kind is ErrorKind.HEAD_TOO_LARGE


def test_a_head_that_two_readers_could_read_differently() -> None:
    sink = Sink()
    with pytest.raises(httptools.HttpParserError):
        sink.reader.feed(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    assert sink.reader.refusal is not None
    assert "host" in sink.reader.refusal.message


def test_a_body_that_is_too_large_is_refused_once_and_the_rest_is_dropped() -> None:
    sink = Sink()
    sink.reader.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n")
    for _ in range(3):
        sink.reader.feed(b"x" * 100)
    assert [error.kind for error in sink.refused] == [ErrorKind.TOO_LARGE]
    assert (sink.read, sink.ended) == ([], 1)
    sink.reader.feed(POST)
    assert len(sink.read) == 1, "the connection is in step again"


def test_what_all_bodies_take_is_given_back() -> None:
    sink = Sink()
    sink.bodies.limits = BodyLimits(size=100, in_all=100)
    for _ in range(5):
        sink.reader.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 80\r\n\r\n" + b"x" * 80)
    assert (len(sink.read), sink.refused) == (5, [])
    sink.reader.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 80\r\n\r\n" + b"x" * 79)
    sink.reader.drop_body()
    sink.bodies.take(100, 100)
