"""`RunSSE` + `BidiAppend` over HTTP/1.1 on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import Dialler
from caretway.cursor.transport.http1_transport import Http1Transport
from caretway.cursor.transport.ports import KIB, MIB, NewRun, Transport, TransportLimits
from caretway.cursor.wire.envelope import ConnectError, pack, write_unary
from caretway.cursor.wire.paths import BIDI_APPEND, RUN_SSE

from .http1_peer import Http1Script, Http1Site, PeerRequest, PeerRun, http1_site
from .listener import Listener, close_after_one, count_down, soon


@asynccontextmanager
async def client(site: Http1Site, limits: TransportLimits | None = None) -> AsyncIterator[Http1Transport]:
    transport = Http1Transport(Dialler().dial(site.url), limits=limits or TransportLimits())
    _fits_the_port(transport)
    try:
        yield transport
    finally:
        await transport.aclose()


def _fits_the_port(transport: Http1Transport) -> Transport:
    return transport


async def test_each_message_is_answered_before_the_next_is_sent() -> None:
    async with http1_site(Http1Script()) as site, client(site) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r-1", {"Authorization": "Bearer t"}), listener)
        for number in range(20):
            run.send(b"message %d" % number)
            assert (await listener.heard(number + 1))[-1] == b"message %d" % number
        assert site.runs["r-1"].numbers == list(range(20))
        assert len(site.connections) == 2  # one listens, one carries all appends in turn
        for request in site.requests:
            assert request.headers["host"] == f"127.0.0.1:{site.port}"
            assert request.headers["authorization"] == "Bearer t"
            assert request.headers["x-request-id"] == "r-1"
            assert request.headers["x-cursor-streaming"] == "true"
            assert request.headers["connect-protocol-version"] == "1"
        by_path = {request.path: request.headers for request in site.requests}
        assert by_path[RUN_SSE]["content-type"] == "application/connect+proto"
        assert by_path[BIDI_APPEND]["content-type"] == "application/proto"
        assert by_path[BIDI_APPEND]["connect-timeout-ms"] == "60000"


class Holding(Http1Script):
    """Answers appends only when told to."""

    def __init__(self) -> None:
        self.held: list[PeerRequest] = []
        self.most_held = 0

    def on_append(self, request: PeerRequest, number: int) -> None:
        self.held.append(request)
        self.most_held = max(self.most_held, len(self.held))

    def release(self) -> None:
        held, self.held = self.held, []
        for request in reversed(held):  # the last one first: nothing may depend on the order
            request.answer(200, b"")


async def test_sixteen_appends_are_under_way_and_each_number_arrives_once() -> None:
    script = Holding()
    async with http1_site(script) as site, client(site) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        messages = [b"%d" % number for number in range(300)]
        for message in messages:
            run.send(message)
        released = 0
        while released < len(messages):
            full = min(16, len(messages) - released)
            await soon(lambda full=full: len(script.held) == full)  # type: ignore[misc]  # mypy cannot infer the default
            script.release()
            released += full
        await listener.heard(len(messages))
        assert listener.payloads == messages
        assert sorted(site.runs["r"].numbers) == list(range(300))
        assert script.most_held == 16
        assert len(site.connections) == 17


async def test_runs_share_a_bounded_number_of_append_connections() -> None:
    limits = TransportLimits(http1_call_connections=4)
    async with http1_site(Http1Script()) as site, client(site, limits) as transport:
        listeners = [Listener() for _ in range(20)]
        runs = [await transport.open_run(NewRun(f"r{n}", {}), each) for n, each in enumerate(listeners)]
        for number in range(10):
            for run in runs:
                run.send(b"%d" % number)
        for listener in listeners:
            assert await listener.heard(10) == [b"%d" % number for number in range(10)]
        assert len(site.connections) == 24


async def test_an_answer_given_inside_the_callback_leaves_at_once() -> None:
    class Countdown(Http1Script):
        def on_message(self, run: PeerRun, payload: bytes) -> None:
            if payload == b"0":
                run.finish()
            else:
                run.message(payload)

    async with http1_site(Countdown()) as site, client(site) as transport:
        await count_down(transport)
        again = Listener()
        await transport.open_run(NewRun("r2", {}), again)
        assert len(site.connections) == 2  # both were kept


async def test_large_payloads_pass_both_ways() -> None:
    payload = bytes(range(256)) * (3 * MIB // 256)
    async with http1_site(Http1Script()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(payload)
        assert await listener.heard(1) == [payload]


async def test_a_paused_run_stops_alone() -> None:
    total = 24 * MIB

    class Flood(Http1Script):
        def on_message(self, run: PeerRun, payload: bytes) -> None:
            if payload == b"flood":
                run.request.write(pack(bytes(64 * KIB)) * (total // (64 * KIB)))
            else:
                run.message(payload)

    async with http1_site(Flood()) as site, client(site) as transport:
        slow, quick = Listener(), Listener()
        slow_run = await transport.open_run(NewRun("slow", {}), slow)
        quick_run = await transport.open_run(NewRun("quick", {}), quick)
        slow.react = lambda frame: slow_run.pause()
        slow_run.send(b"flood")
        await slow.heard(1)
        at_pause = slow.bytes
        for number in range(20):
            quick_run.send(b"x")
            await quick.heard(number + 1)
        assert slow.bytes == at_pause < total // 2
        slow.react = None
        slow_run.resume()
        await slow.until(lambda: slow.bytes == total)


async def test_close_drops_the_response_and_nothing_more_is_heard() -> None:
    async with http1_site(Http1Script()) as site, client(site) as transport:
        listener = await close_after_one(transport)
        await soon(lambda: site.runs["r"].request.connection.lost)
        assert (listener.payloads, listener.closings) == ([b"x"], [])
        assert site.runs["r"].numbers == [0]


REFUSALS = [
    (401, b"", ErrorKind.SIGNED_OUT),
    (429, b"", ErrorKind.RATE_LIMITED),
    (502, b"<h1>bad gateway</h1>", ErrorKind.UPSTREAM_DOWN),
    (400, write_unary(ConnectError("invalid_argument", error=43)), ErrorKind.CONTEXT_TOO_LONG),
]


@pytest.mark.parametrize(("status", "body", "kind"), REFUSALS)
async def test_a_refused_run_ends_with_the_reason(status: int, body: bytes, kind: ErrorKind) -> None:
    class Refuse(Http1Script):
        def on_run(self, run: PeerRun) -> None:
            run.request.answer(status, body, "application/json", retry_after="3")

    async with http1_site(Refuse()) as site, client(site) as transport:
        listener = Listener()
        await transport.open_run(NewRun("r", {}), listener)
        error = await listener.failed()
        assert (error.kind, error.retry_after) == (kind, 3.0)


@pytest.mark.parametrize(("status", "body", "kind"), REFUSALS)
async def test_a_failed_append_fails_the_run(status: int, body: bytes, kind: ErrorKind) -> None:
    class Refuse(Http1Script):
        def on_append(self, request: PeerRequest, number: int) -> None:
            if number == 2:
                request.answer(status, body, "application/json", retry_after="3")
            else:
                request.answer(200, b"")

    async with http1_site(Refuse()) as site, client(site) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        for _ in range(5):
            run.send(b"x")
        error = await listener.failed()
        assert (error.kind, error.retry_after) == (kind, 3.0)
        await soon(lambda: site.runs["r"].request.connection.lost)


async def test_an_append_that_is_not_answered_in_time_fails_the_run() -> None:
    async with http1_site(Holding()) as site, client(site, TransportLimits(append_timeout_s=0.05)) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        error = await listener.failed()
        assert error.kind is ErrorKind.TIMEOUT
        assert site.requests[-1].headers["connect-timeout-ms"] == "50"


async def test_a_peer_that_takes_nothing_fails_the_run() -> None:
    limits = TransportLimits(max_unsent_bytes=1 * MIB)
    async with http1_site(Holding()) as site, client(site, limits) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        for _ in range(40):
            run.send(bytes(50_000))
        assert listener.closings == []  # never from within send()
        error = await listener.failed()
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert "bytes are waiting" in error.message


@pytest.mark.parametrize(("body", "words"), [(pack(b"whole"), "was closed"), (pack(b"cut")[:-1], "was closed")])
async def test_a_cut_run_is_told_after_what_came_before_it(body: bytes, words: str) -> None:
    class Cut(Http1Script):
        def on_message(self, run: PeerRun, payload: bytes) -> None:
            run.request.write(body)
            run.request.cut()

    async with http1_site(Cut()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        error = await listener.failed()
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert words in error.message
        assert listener.payloads == ([b"whole"] if b"whole" in body else [])


async def test_a_run_that_ends_inside_a_message_was_cut() -> None:
    class Cut(Http1Script):
        def on_message(self, run: PeerRun, payload: bytes) -> None:
            run.request.write(pack(b"cut")[:-1])
            run.request.end()

    async with http1_site(Cut()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        assert "middle of a message" in (await listener.failed()).message


async def test_a_bug_in_a_handler_is_an_error_and_not_silence(caplog: pytest.LogCaptureFixture) -> None:
    def fall(frame: bytes) -> None:
        raise KeyError("a bug")

    async with http1_site(Http1Script()) as site, client(site) as transport:
        listener = Listener(fall)
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        assert (await listener.failed()).kind is ErrorKind.INTERNAL
        assert "a bug" in caplog.text
        assert len(site.runs) == 1


# -- kept connections --------------------------------------------------------------------------------------------------


class DropsSecond(Http1Script):
    """Closes each connection on its second request, before a byte of an answer: what a stale connection looks like."""

    def __init__(self) -> None:
        self.dropped = 0

    def drops(self, request: PeerRequest) -> bool:
        second = request.connection.served == 1
        self.dropped += second
        return second


async def test_stale_connections_cost_a_second_try_and_no_message() -> None:
    script = DropsSecond()
    async with http1_site(script) as site, client(site) as transport:
        assert (await transport.call("POST", "/x", {}, b"warm")).body == b"warm"
        listener = Listener()
        # the kept connection, which is stale, is left
        run = await transport.open_run(NewRun("r", {}, alone=True), listener)
        for number in range(30):
            run.send(b"%d" % number)
        assert await listener.heard(30) == [b"%d" % number for number in range(30)]
        assert script.dropped >= 2
        assert sorted(site.runs["r"].numbers) == list(range(30))


async def test_a_run_whose_kept_connection_breaks_is_told_and_not_sent_again() -> None:
    script = DropsSecond()
    async with http1_site(script) as site, client(site) as transport:
        await transport.call("POST", "/x", {}, b"warm")
        listener = Listener()
        await transport.open_run(NewRun("r", {}), listener)
        assert (await listener.failed()).kind is ErrorKind.UPSTREAM_DOWN
        assert [request.path for request in site.requests] == ["/x", RUN_SSE]
        again = Listener()
        (await transport.open_run(NewRun("r2", {}, alone=True), again)).send(b"x")
        assert await again.heard(1) == [b"x"]


@pytest.mark.parametrize(
    ("status", "kind"), [(400, ErrorKind.UPSTREAM_DOWN), (409, ErrorKind.UPSTREAM_DOWN), (401, ErrorKind.SIGNED_OUT)]
)
async def test_an_append_that_was_sent_twice_and_is_refused_is_a_broken_connection(
    status: int, kind: ErrorKind
) -> None:
    class Strict(DropsSecond):
        """Takes the message, loses the connection, and does not want to hear the number again."""

        def on_append(self, request: PeerRequest, number: int) -> None:
            if number == 1:
                request.answer(status, b"seen")
            else:
                request.answer(200, b"")

    async with http1_site(Strict()) as site, client(site) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.send(b"0")
        await listener.heard(1)
        run.send(b"1")  # on the connection of the first, which is dropped now
        assert (await listener.failed()).kind is kind
        assert len(site.connections) == 3


async def test_a_connection_that_closed_while_idle_is_not_used() -> None:
    async with http1_site(Http1Script()) as site, client(site) as transport:
        await transport.call("GET", "/x", {})
        site.connections[0].transport.close()
        await soon(lambda: transport.connection_count == 0)
        assert (await transport.call("POST", "/x", {}, b"b")).status == 201
        assert len(site.connections) == 2


async def test_a_fresh_connection_that_is_dropped_is_not_tried_again() -> None:
    class Drops(Http1Script):
        def on_call(self, request: PeerRequest) -> None:
            request.connection.transport.abort()

    async with http1_site(Drops()) as site, client(site) as transport:
        with pytest.raises(GatewayError) as dropped:
            await transport.call("POST", "/x", {}, b"b")
        assert dropped.value.kind is ErrorKind.UPSTREAM_DOWN
        assert len(site.requests) == 1


async def test_idle_connections_are_closed_after_a_while() -> None:
    async with http1_site(Http1Script()) as site, client(site, TransportLimits(http1_idle_timeout_s=0.05)) as transport:
        await transport.call("GET", "/x", {})
        await soon(lambda: site.connections[0].lost and transport.connection_count == 0)


# -- calls, limits, ends -----------------------------------------------------------------------------------------------


async def test_calls_are_whole_and_bounded() -> None:
    class Mixed(Http1Script):
        def on_call(self, request: PeerRequest) -> None:
            if request.path == "/large":
                request.answer(200, bytes(5000))
            elif request.path == "/close-delimited":
                request.connection.transport.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end")
                request.connection.transport.close()
            elif request.path != "/mute":
                super().on_call(request)

    limits = TransportLimits(max_call_bytes=4096, call_timeout_s=0.2)
    async with http1_site(Mixed()) as site, client(site, limits) as transport:
        answer = await transport.call("POST", "/a/B", {"content-type": "application/proto"}, b"body")
        assert (answer.status, answer.headers["x-got"], answer.body) == (201, "4", b"body")
        assert (await transport.call("GET", "/close-delimited", {})).body == b"until the end"
        empty = await transport.call("POST", "/a/B", {})
        assert (empty.body, site.requests[-1].headers["content-length"]) == (b"", "0")
        with pytest.raises(GatewayError) as large:
            await transport.call("GET", "/large", {})
        assert large.value.kind is ErrorKind.UPSTREAM_PROTOCOL
        with pytest.raises(GatewayError) as late:
            await transport.call("GET", "/mute", {})
        assert late.value.kind is ErrorKind.TIMEOUT


async def test_the_number_of_runs_is_bounded() -> None:
    limits = TransportLimits(http1_run_connections=2)
    async with http1_site(Http1Script()) as site, client(site, limits) as transport:
        runs = [await transport.open_run(NewRun(f"r{n}", {}), Listener()) for n in range(2)]
        with pytest.raises(GatewayError) as full:
            await transport.open_run(NewRun("r3", {}), Listener())
        assert full.value.kind is ErrorKind.OVERLOADED
        await soon(lambda: len(site.runs) == 2)
        runs[0].close()
        await soon(lambda: site.runs["r0"].request.connection.lost)
        await transport.open_run(NewRun("r3", {}), Listener())


async def test_nobody_there() -> None:
    async with http1_site(Http1Script()) as site:
        url, port = site.url, site.port
    transport = Http1Transport(Dialler().dial(url))
    for attempt in (transport.open_run(NewRun("r", {}), Listener()), transport.call("GET", "/x", {})):
        with pytest.raises(GatewayError) as down:
            await attempt
        assert down.value.kind is ErrorKind.UPSTREAM_DOWN
        assert f"cannot connect to 127.0.0.1:{port}" in down.value.message
    await transport.aclose()


async def test_closing_the_transport_ends_what_is_open() -> None:
    class Mute(Holding):
        def on_call(self, request: PeerRequest) -> None: ...

    async with http1_site(Mute()) as site:
        transport = Http1Transport(Dialler().dial(site.url))
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.send(b"x")
        async with asyncio.TaskGroup() as group:
            call = group.create_task(_outcome(transport))
            await soon(lambda: len(site.requests) == 3)
            await transport.aclose()
            assert await call is ErrorKind.CANCELLED
        assert (await listener.failed()).kind is ErrorKind.CANCELLED
        with pytest.raises(GatewayError) as stopped:
            await transport.open_run(NewRun("r", {}), Listener())
        assert stopped.value.kind is ErrorKind.CANCELLED


async def _outcome(transport: Http1Transport) -> ErrorKind | None:
    try:
        await transport.call("GET", "/x", {})
    except GatewayError as error:
        return error.kind
    return None
