"""When a client is given up, and when it is not: a connection on a fake socket, with the time in the test's hands."""

import asyncio
from typing import Any

import httptools
import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.server.connection import LINGER_S, MAX_AT_ONCE, ClientConnection, RequestHandler, early_error, not_http
from caretway.server.exchange import HttpRequest, ResponseWriter, Successor
from caretway.server.request_reader import Bodies, BodyLimits, ConnectionLimits


def refuse(path: str, response: ResponseWriter, error: GatewayError) -> None:
    response.wake_at(1.0, lambda: None)
    response.send(400, f"{path} {error.message}".encode())


def test_the_bytes_of_a_refusal() -> None:
    error = GatewayError(ErrorKind.BAD_REQUEST, "no")
    data = early_error(refuse, b"/v1/messages?a=\xe9", error)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ndate: ")
    assert head.endswith(b"\r\nconnection: close")
    assert body == b"/v1/messages no"
    alone = early_error(refuse, b"/v1/messages", error, head_only=True)
    assert b"content-length: 15" in alone and alone.endswith(b"connection: close\r\n\r\n")


def test_a_reason_of_the_parser_is_told_and_one_of_a_callback_is_not() -> None:
    class Callbacks:
        def on_url(self, url: bytes) -> None:
            raise ValueError("a secret")

    with pytest.raises(httptools.HttpParserError) as broken:
        httptools.HttpRequestParser(object()).feed_data(b"\x00rubbish\r\n\r\n")
    told = not_http(broken.value, b"\x00rubbish")
    assert told.code == "invalid_http"
    assert len(told.message) > len("This is not valid HTTP.")
    with pytest.raises(httptools.HttpParserError) as raised:
        httptools.HttpRequestParser(Callbacks()).feed_data(b"GET / HTTP/1.1\r\n\r\n")
    assert not_http(raised.value, b"GET /").message == "This is not valid HTTP."


def test_tls_on_the_plain_port_is_recognised() -> None:
    with pytest.raises(httptools.HttpParserError) as broken:
        httptools.HttpRequestParser(object()).feed_data(b"\x16\x03\x01\x02\x00\x01")
    told = not_http(broken.value, b"\x16\x03\x01\x02\x00\x01")
    assert told.code == "tls_on_plain_port" and "http:// instead of https://" in told.hint


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LIMITS = ConnectionLimits(head_timeout=20, drain_timeout=30, send_timeout=120, keep_alive=75)


class Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.unsent = 0
        self.end: str = ""

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: Any) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return bool(self.end)

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = self.end or "aborted"


class House:
    """A server and a handler in one; `answer` waits until it is told to."""

    limits = LIMITS
    scheme = "http"
    stopping = False

    def __init__(self) -> None:
        self.handler: RequestHandler = self
        self.bodies = Bodies(BodyLimits(size=100, idle=30, total=300))
        self.inside = 0
        self.asked: list[ResponseWriter] = []

    def joined(self, connection: ClientConnection) -> bool:
        return True

    def left(self, connection: ClientConnection | Successor) -> None: ...

    def switched(self, old: ClientConnection, new: Successor) -> None: ...

    def date(self) -> bytes:
        return b"now"

    def accept(self, request: HttpRequest, response: ResponseWriter) -> "Pending":
        return Pending(self, response)

    def refuse(
        self, path: str, response: ResponseWriter, error: GatewayError, request: HttpRequest | None = None
    ) -> None:
        response.send(400, error.message.encode())


class Pending:
    def __init__(self, house: House, response: ResponseWriter) -> None:
        self._house = house
        self._response = response
        self._begun = False

    def begin(self) -> None:
        self._begun = True
        self._house.inside += 1

    def leave(self) -> None:
        self._house.inside -= self._begun
        self._begun = False

    async def answer(self) -> None:
        self._house.asked.append(self._response)
        await asyncio.Event().wait()


@pytest.fixture
async def line() -> tuple[House, Socket, ClientConnection]:
    house, socket = House(), Socket()
    connection = ClientConnection(house, asyncio.get_running_loop())
    connection.connection_made(socket)
    return house, socket, connection


Line = tuple[House, Socket, ClientConnection]


async def ask(line: Line, data: bytes = GET) -> ResponseWriter:
    house, _, connection = line
    connection.data_received(data)
    await asyncio.sleep(0)
    return house.asked[-1]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_an_answer_that_is_complete_counts_no_more(line: Line) -> None:
    house, _, _ = line
    (await ask(line)).send(200, b"one")
    assert house.inside == 0  # though its task has not ended: the client may ask again at once
    (await ask(line)).send(200, b"two")
    assert house.inside == 0


async def test_a_client_that_takes_nothing_is_given_up(line: Line) -> None:
    _, socket, connection = line
    (await ask(line)).send(200, b"much")
    socket.unsent, begin = 50_000, now()
    for seconds, unsent in ((0, 50_000), (100, 40_000), (200, 39_999), (319, 39_999)):
        socket.unsent = unsent  # slowly, and less each time it is looked at
        connection.check(begin + seconds)
        assert not socket.end, seconds
    connection.check(begin + 321)
    assert socket.end == "aborted"


async def test_what_was_taken_late_does_not_count_against_the_next_answer(line: Line) -> None:
    _, socket, connection = line
    (await ask(line)).send(200, b"much")
    socket.unsent, begin = 50_000, now()
    connection.check(begin)
    socket.unsent = 0
    connection.check(begin + 60)
    await ask(line)
    socket.unsent = 70_000
    connection.check(begin + 119)
    connection.check(begin + 125)
    assert not socket.end


async def test_an_unused_connection_is_closed_when_its_last_answer_is_taken(line: Line) -> None:
    _, socket, connection = line
    (await ask(line)).send(200, b"much")
    begin = now()
    for seconds in (0, 40, 80, 110):
        socket.unsent = 100_000 - seconds
        connection.check(begin + seconds)
        assert not socket.end
    socket.unsent = 0
    connection.check(begin + 111)
    assert socket.end == "closed"


async def test_a_new_answer_is_held_back_while_the_last_one_is_not_taken(line: Line) -> None:
    _, _, connection = line
    (await ask(line)).send(200, b"much")
    connection.pause_writing()
    second = await ask(line)
    assert second.blocked
    woken: list[bool] = []
    second.on_writable(lambda: woken.append(second.blocked))
    connection.resume_writing()
    assert woken == [False]


async def test_rubbish_behind_an_answer_that_is_still_taken_does_not_cut_it(line: Line) -> None:
    _, socket, connection = line
    (await ask(line)).send(200, b"much")
    socket.unsent, begin = 50_000, now()
    connection.data_received(b"\x00rubbish\r\n\r\n")
    connection.check(begin + LINGER_S + 1)
    assert socket.end == ""
    socket.unsent = 0
    connection.check(begin + LINGER_S + 2)
    assert socket.end == "aborted"


async def test_a_body_that_turns_malformed_after_its_refusal_gets_no_second_one(line: Line) -> None:
    _, socket, connection = line
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.data_received(head + b"5\r\nhelloXX\r\nZZZ\r\n")
    assert socket.said.count(b"HTTP/1.1 ") == 1
    connection.check(now() + LINGER_S + 1)
    assert socket.end == "aborted"


@pytest.mark.parametrize(("version", "length", "expected"), [("1.1", 5, b"100"), ("1.0", 5, b""), ("1.1", 500, b"400")])
async def test_a_client_that_asks_before_it_sends(line: Line, version: str, length: int, expected: bytes) -> None:
    _, socket, connection = line
    head = f"POST / HTTP/{version}\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    connection.data_received(head.encode())
    assert socket.said[9:12] == expected
    assert (b"connection: close" in socket.said) == (expected == b"400")


async def test_a_flood_of_requests_that_are_refused_at_once_ends_soon(line: Line) -> None:
    """They are answered within the callback that read them, which nobody else can do anything in."""
    _, socket, connection = line
    refused = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n\r\n"
    connection.data_received(refused * MAX_AT_ONCE)
    assert socket.said.count(b"HTTP/1.1 400 ") == MAX_AT_ONCE
    assert b"connection: close" not in socket.said
    connection.data_received(refused * 1000)
    assert socket.said.count(b"HTTP/1.1 400 ") == 2 * MAX_AT_ONCE + 1
    assert socket.said.endswith(f"More than {MAX_AT_ONCE} requests came in one piece.".encode())
    connection.data_received(refused)
    assert socket.said.count(b"HTTP/1.1 400 ") == 2 * MAX_AT_ONCE + 1
    connection.check(now() + LINGER_S + 1)
    assert socket.end == "aborted"


WITHOUT_HOST = [
    # the method, what it may bring behind it, whether it gets the words
    (b"GET", b"", True),
    (b"HEAD", b"", False),
    (b"HEAD", b"x: " + b"a" * LIMITS.head_bytes, False),
    (b"HEAD\x00", b"", True),
    (b"HEADER", b"", True),
]


@pytest.mark.parametrize(("method", "more", "worded"), WITHOUT_HOST)
async def test_a_head_that_cannot_be_read_gets_no_body_when_it_asks_for_none(
    line: Line, method: bytes, more: bytes, worded: bool
) -> None:
    _, socket, connection = line
    connection.data_received(method + b" / HTTP/1.1\r\n" + more + b"\r\n\r\n")
    head, _, body = socket.said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"content-length: 0" not in head
    assert bool(body) == worded


async def test_a_head_that_comes_too_slowly_gets_no_body_when_it_asks_for_none(line: Line) -> None:
    _, socket, connection = line
    connection.data_received(b"HEAD / HTTP/1.1\r\nHost: a\r\n")
    connection.check(now() + LIMITS.head_timeout + 1)
    assert socket.said.startswith(b"HTTP/1.1 400 ") and socket.said.endswith(b"\r\n\r\n")


async def test_no_content_has_no_length(line: Line) -> None:
    _, socket, _ = line
    (await ask(line)).send(204, b"", [(b"vary", b"origin")])
    assert socket.said == b"HTTP/1.1 204 No Content\r\ndate: now\r\nvary: origin\r\n\r\n"


class Observer:
    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bool]] = []

    def request_body(self, body: bytes) -> None: ...

    def hung_up(self) -> None: ...

    def head(self, status: int, headers: object) -> None: ...

    def body(self, data: bytes, *, end: bool) -> None:
        self.seen.append((data, end))


async def test_an_observer_sees_every_piece_once(line: Line) -> None:
    _, socket, _ = line
    response, observer = await ask(line), Observer()
    response.observe(observer)
    response.start([], b"one")
    response.write(b"two")
    response.finish(b"three")
    assert observer.seen == [(b"one", False), (b"two", False), (b"three", True)]
    assert socket.said.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n")
    assert socket.said.count(b"\r\n\r\n") == 2


async def test_http_1_0_may_keep_its_connection(line: Line) -> None:
    house, socket, connection = line
    connection.data_received(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    await asyncio.sleep(0)
    house.asked[-1].send(200, b"x")
    assert b"connection: keep-alive\r\n" in socket.said
    connection.data_received(b"GET / HTTP/1.0\r\n\r\n")
    await asyncio.sleep(0)
    house.asked[-1].send(200, b"x")
    assert b"connection: close\r\n" in socket.said
    assert socket.end == "closed"


async def test_a_stream_for_http_1_0_ends_with_its_connection(line: Line) -> None:
    house, socket, connection = line
    connection.data_received(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    await asyncio.sleep(0)
    house.asked[-1].start([], b"data: 1\n\n")
    house.asked[-1].finish(b"data: 2\n\n")
    assert socket.said.endswith(b"connection: close\r\n\r\ndata: 1\n\ndata: 2\n\n")
    assert socket.end == "closed"


async def test_a_client_that_closed_its_half_is_probed_and_answered(line: Line) -> None:
    _, socket, connection = line
    response = await ask(line)
    assert connection.eof_received()
    assert socket.said == b"HTTP/1.1 100 Continue\r\n\r\n"
    response.send(200, b"answer")
    assert socket.said.endswith(b"connection: close\r\n\r\nanswer")
    assert socket.end == "closed"


async def test_a_stream_is_probed_with_a_comment(line: Line) -> None:
    _, socket, connection = line
    (await ask(line)).start([], b"data: 1\n\n")
    assert connection.eof_received()
    assert socket.said.endswith(b"3\r\n:\n\n\r\n")


async def test_a_client_that_closed_before_it_asked_is_gone(line: Line) -> None:
    _, _, connection = line
    assert not connection.eof_received()
    connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    assert not connection.eof_received()
