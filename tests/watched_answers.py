"""Watches every answer that a test gets of a gateway, whoever the client is, and lets the SDKs' own types read it
(`strict_types`). A pytest plugin: a new test is covered without being listed.

A gateway in this process is watched where it hands bytes to its connections, WebSockets too. One in a process of its
own is watched by its clients here: HTTPX, which the SDKs use, and the clients of `tests/faults`. Answers are judged
after the test, so that nothing a test measures depends on it; when much was written, as soon as an answer ends.
"""

import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import httpx2
import pytest

from caretway.api import socket_responses
from caretway.api.application import AccessLayer
from caretway.api.socket_responses import MessageWriter, ResponsesSocket
from caretway.server.exchange import Header, HttpRequest, ResponseWriter, TrafficObserver
from caretway.server.socket import text_frame

NOT_WATCHED: Final = {
    "contract/hostile": "measures how long the gateway is held and what memory it takes, in a process of its own; its "
    "client reads raw bytes",
    "clients/test_mistakes.py": "real clients talk to a gateway in another process; nothing of it passes through here",
    "clients/test_launch_opencode.py": "the same",
}
"""Where answers are not seen, and why."""
MAX_KEPT: Final = 16 * 2**20
"""Bytes of answers that wait for the end of their test."""
SHOWN: Final = 20


@dataclass(slots=True)
class Told:
    """One answer, as it was written."""

    path: str
    anthropic: bool = False
    beta: bool = False
    message: bool = False
    """Of a WebSocket: each piece is an event."""
    elsewhere: bool = False
    """Seen by the client: the gateway may be in this process all the same."""
    status: int = 0
    kind: bytes = b""
    request_id: bytes = b""
    pieces: list[bytes] = field(default_factory=list)
    ended: bool = False
    also: TrafficObserver | None = None
    """Whoever else observes the exchange."""

    # ---- what the writer of an answer tells its observer

    def request_body(self, body: bytes) -> None:
        if self.also is not None:
            self.also.request_body(body)

    def hung_up(self) -> None:
        if self.also is not None:
            self.also.hung_up()

    def head(self, status: int, headers: Sequence[Header]) -> None:
        given = dict(headers)
        self.status, self.kind = status, given.get(b"content-type", b"")
        self.request_id = given.get(b"x-request-id", b"")
        if self.also is not None:
            self.also.head(status, headers)

    def body(self, data: bytes, *, end: bool) -> None:
        self.pieces.append(data)
        self.ended = end
        if end:
            WATCH.ended(self)
        if self.also is not None:
            self.also.body(data, end=end)


def told(path: str, headers: Mapping[str, str], query: str = "") -> Told:
    return Told(path, "anthropic-version" in headers, "beta=true" in query or "anthropic-beta" in headers)


@dataclass(slots=True)
class Watch:
    answers: list[Told] = field(default_factory=list)
    kept: int = 0
    wrong: dict[str, None] = field(default_factory=dict)
    here: set[bytes] = field(default_factory=set)
    """Ids of requests that a gateway of this process answered."""
    on: bool = False
    """A test run, not a program of the tests."""
    judged: int = 0
    seconds: float = 0.0

    def saw(
        self,
        path: str,
        headers: Mapping[str, str],
        status: int,
        answered: Mapping[str, str],
        body: bytes,
        *,
        whole: bool,
    ) -> None:
        """For a client that is not HTTPX. Names of headers in lower case. `whole`: it was not cut."""
        if not self.on:
            return
        answer = told(path, headers)
        answer.elsewhere = True
        self.answers.append(answer)
        answer.head(status, [(name.encode(), value.encode()) for name, value in answered.items()])
        answer.body(body, end=whole)

    def ended(self, answer: Told) -> None:
        self.kept += sum(map(len, answer.pieces))
        if self.kept > MAX_KEPT:
            self.judge(whole=True)

    def judge(self, *, whole: bool) -> None:
        """`whole`: only what has ended; a test still runs."""
        began = time.thread_time()
        if not self.answers:
            return
        from strict_types import mistakes

        ready = [answer for answer in self.answers if answer.ended or not whole]
        self.answers = [answer for answer in self.answers if whole and not answer.ended]
        self.kept = 0
        self.here |= {answer.request_id for answer in ready if not answer.elsewhere}
        self.wrong |= dict.fromkeys(mistakes([one for one in ready if not self._seen_twice(one)]))
        self.judged += len(ready)
        self.seconds += time.thread_time() - began

    def _seen_twice(self, answer: Told) -> bool:
        return answer.elsewhere and answer.request_id in self.here


WATCH: Final = Watch()


# ---- a gateway in this process


def _watch_gateways() -> None:
    accept, refuse, observe = AccessLayer.accept, AccessLayer.refuse, ResponseWriter.observe
    frame, say = text_frame, ResponsesSocket.say

    def watched(path: str, headers: Mapping[str, str], query: str, response: ResponseWriter) -> None:
        if response._observer is None and not isinstance(response, MessageWriter):
            WATCH.answers.append(told(path, headers, query))
            response._observer = WATCH.answers[-1]  # not by a call: those of the gateway are counted

    def accepted(self: AccessLayer, request: HttpRequest, response: ResponseWriter) -> Any:
        watched(request.path, request.headers, request.query, response)
        return accept(self, request, response)

    def refused(
        self: AccessLayer, path: str, response: ResponseWriter, error: Any, request: HttpRequest | None = None
    ) -> None:
        watched(path, request.headers if request else {}, request.query if request else "", response)
        refuse(self, path, response, error, request)

    def observed(self: ResponseWriter, observer: TrafficObserver) -> None:
        if isinstance(self._observer, Told):
            self._observer.also = observer
        else:
            observe(self, observer)

    def seen(payload: bytes) -> bytes:
        answer = Told("/v1/responses", message=True, pieces=[payload], ended=True)
        WATCH.answers.append(answer)
        WATCH.ended(answer)
        return payload

    AccessLayer.accept, AccessLayer.refuse = accepted, refused  # type: ignore[method-assign]
    ResponseWriter.observe = observed  # type: ignore[method-assign]
    socket_responses.text_frame = lambda payload: frame(seen(payload))  # type: ignore[attr-defined]
    ResponsesSocket.say = lambda self, payload: say(self, seen(payload))  # type: ignore[method-assign]


# ---- a gateway elsewhere, seen by its client


def _watch_clients() -> None:
    for library in (httpx, httpx2):
        _watch_async(library)
        _watch_sync(library)


def _watch_async(library: Any) -> None:
    send = library.AsyncHTTPTransport.handle_async_request

    class Seen(library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any, answer: Told) -> None:
            self.stream, self.answer = stream, answer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self.stream:
                self.answer.body(piece, end=False)
                yield piece
            self.answer.body(b"", end=True)

        async def aclose(self) -> None:
            await self.stream.aclose()

    async def sent(self: Any, request: Any) -> Any:
        return _seen(request, await send(self, request), Seen)

    library.AsyncHTTPTransport.handle_async_request = sent


def _watch_sync(library: Any) -> None:
    send = library.HTTPTransport.handle_request

    class Seen(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any, answer: Told) -> None:
            self.stream, self.answer = stream, answer

        def __iter__(self) -> Iterator[bytes]:
            for piece in self.stream:
                self.answer.body(piece, end=False)
                yield piece
            self.answer.body(b"", end=True)

        def close(self) -> None:
            self.stream.close()

    def sent(self: Any, request: Any) -> Any:
        return _seen(request, send(self, request), Seen)

    library.HTTPTransport.handle_request = sent


def _seen(request: Any, response: Any, stream: Callable[[Any, Told], Any]) -> Any:
    if "x-request-id" in response.headers:  # a gateway's
        answer = told(request.url.path, request.headers, request.url.query.decode())
        answer.elsewhere = True
        answer.head(response.status_code, [(name.lower(), value) for name, value in response.headers.raw])
        WATCH.answers.append(answer)
        response.stream = stream(response.stream, answer)
    return response


# ---- pytest


def pytest_configure(config: pytest.Config) -> None:
    WATCH.on = True
    _watch_gateways()
    _watch_clients()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    WATCH.judge(whole=False)
    wrong, WATCH.wrong, WATCH.here = list(WATCH.wrong), {}, set()
    if wrong:
        pytest.fail("\n".join(["an answer does not fit the SDKs' types:", *wrong[:SHOWN]]), pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of `-n 2` tells the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["judged"] = [WATCH.judged, WATCH.seconds]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    judged, seconds = getattr(node, "workeroutput", {}).get("judged", (0, 0.0))
    WATCH.judged += judged
    WATCH.seconds += seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if WATCH.judged:
        terminalreporter.write_line(f"{WATCH.judged} answers read by the SDKs' types in {WATCH.seconds:.1f} s of CPU")
