"""The two halves: a request that is emptied as it is read, a response that is framed, held back and ended."""

import math

import pytest

from caretway.server.exchange import NEVER, Deadlines, Header, HttpRequest, ResponseWriter, header_text
from unit.api.parts import Written, writer


def test_nothing_is_due_at_first() -> None:
    assert Deadlines(10).due == NEVER == math.inf


def test_a_client_that_takes_nothing_is_stuck() -> None:
    story = [
        (0, 0, False),  # nothing to take
        (5, 100, False),  # the first look at it
        (14, 100, False),
        (14.5, 99, False),  # a byte is enough
        (24, 99, False),
        (24.5, 99, True),
    ]
    deadlines = Deadlines(10)
    assert [deadlines.stuck(now, unsent) for now, unsent, _ in story] == [stuck for *_, stuck in story]


def test_what_was_taken_does_not_count_against_what_comes_next() -> None:
    deadlines = Deadlines(10)
    for now, unsent in ((0, 100), (9, 0), (9.5, 300), (15, 300)):
        assert not deadlines.stuck(now, unsent)
    assert deadlines.stuck(19.5, 300)


def test_whoever_wants_to_be_woken_is_woken_once() -> None:
    deadlines, woken = Deadlines(10), list[float]()
    deadlines.wake_due(1e9)
    deadlines.wake_at(5.0, lambda: woken.append(5.0))
    for now in (4.9, 5.0, 6.0):
        deadlines.wake_due(now)
    assert woken == [5.0]


def test_whoever_is_woken_may_ask_again() -> None:
    deadlines, woken = Deadlines(10), list[float]()

    def again() -> None:
        woken.append(1)
        deadlines.wake_at(5.0 + len(woken), again)

    deadlines.wake_at(5.0, again)
    for now in (5.0, 5.5, 6.0, 6.5, 7.0):
        deadlines.wake_due(now)
    assert len(woken) == 3


def test_nobody_is_woken_any_more() -> None:
    deadlines, woken = Deadlines(10), list[int]()
    deadlines.wake_at(5.0, lambda: woken.append(1))
    deadlines.wake_at(NEVER, None)
    deadlines.wake_due(1e9)
    assert woken == []


def test_a_request_holds_its_body_until_it_is_taken() -> None:
    request = HttpRequest("POST", "/", {"a": "b"})
    request.body = b"{}"
    assert (request.take_body(), request.take_body()) == (b"{}", b"")
    request.drop_headers()
    assert not request.headers


def test_a_whole_response() -> None:
    written, response = writer()
    response.add_headers([(b"vary", b"origin")])
    response.send(200, b"{}", [(b"x-a", b"1")])
    assert written.data == (
        b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: application/json\r\ncontent-length: 2\r\nx-a: 1\r\n"
        b"vary: origin\r\n\r\n{}"
    )
    assert (response.started, response.complete, written.ended) == (True, True, 1)


def test_a_head_alone() -> None:
    written, response = writer(head_only=True)
    response.send(200, b"{}")
    assert b"content-length: 2" in written.head
    assert written.body == b""


def test_an_unknown_status_has_no_phrase() -> None:
    written, response = writer()
    response.send(529, b"")
    assert written.data.startswith(b"HTTP/1.1 529 \r\n")


@pytest.mark.parametrize(
    ("chunked", "keep_alive", "stream"),
    [
        (True, True, b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"),
        (True, False, b"chunked\r\nconnection: close\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"),
        (False, True, b"connection: close\r\n\r\nonetwothree"),
    ],
)
def test_a_stream(chunked: bool, keep_alive: bool, stream: bytes) -> None:
    written = Written()
    response = ResponseWriter(written, keep_alive=keep_alive, chunked=chunked)
    response.start([], b"one")
    response.write(b"two")
    response.write(b"")
    response.finish(b"three")
    assert written.data.endswith(stream)
    assert response.keep_alive is (keep_alive and chunked), "without chunks the end is the connection's"


def test_backpressure() -> None:
    _, response = writer()
    woken: list[str] = []
    response.on_writable(lambda: woken.append("on"))
    response.pause()
    assert response.blocked
    response.resume()
    assert (response.blocked, woken) == (False, ["on"])
    response.send(200, b"")
    response.resume()
    assert woken == ["on"], "whoever is done is not called"


def test_a_moment_is_asked_for_and_forgotten() -> None:
    written, response = writer()
    response.wake_at(7.0, lambda: None)
    response.forget()
    assert [when for when, _ in written.wakes] == [7.0, math.inf]
    assert written.wakes[-1][1] is None


def test_after_the_end_the_moment_belongs_to_the_next_request() -> None:
    written, response = writer()
    response.send(200, b"")
    response.wake_at(7.0, lambda: None)
    response.forget()
    assert written.wakes == []


@pytest.mark.parametrize(("started", "sent"), [(False, b"HTTP/1.1 100 Continue\r\n\r\n"), (True, b"3\r\n:\n\n\r\n")])
def test_a_sign_that_changes_nothing(started: bool, sent: bytes) -> None:
    written, response = writer()
    if started:
        response.start([], b"")
    assert response.probe()
    assert written.data.endswith(sent)
    response.finish() if started else response.send(200, b"")
    assert not response.probe()


class Observer:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def request_body(self, body: bytes) -> None:
        self.seen.append(body)

    def hung_up(self) -> None:
        self.seen.append("hung up")

    def head(self, status: int, headers: object) -> None:
        self.seen.append(status)

    def body(self, data: bytes, *, end: bool) -> None:
        self.seen.append((data, end))


@pytest.mark.parametrize("complete", [True, False])
def test_an_observer_sees_a_client_leave_before_the_end(complete: bool) -> None:
    _, response = writer()
    observer = Observer()
    response.observe(observer)
    response.request_body(b"ask")
    if complete:
        response.send(200, b"x")
    response.hung_up()
    assert observer.seen == ([b"ask", 200, (b"x", True)] if complete else [b"ask", "hung up"])


TEXTS: list[tuple[str, bytes]] = [("plain", b"plain"), ("a\r\nx: y", b"a??x: y"), ("é\x00", b"??"), ("", b"")]


@pytest.mark.parametrize(("text", "legal"), TEXTS)
def test_text_in_a_header(text: str, legal: bytes) -> None:
    assert header_text(text) == legal
    written, response = writer()
    header: Header = (b"x-text", header_text(text))
    response.send(200, b"", [header])
    assert b"x-text: " + legal in written.head
