"""HTTP/1.1 connections that lead nowhere. There is no PING: an append that nobody answers tells, and silence."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from caretway.core.errors import ErrorKind
from caretway.cursor.transport.dial import Dial, Dialler, Origin, P
from caretway.cursor.transport.http1_transport import Http1Transport
from caretway.cursor.transport.ports import NewRun, TransportLimits
from caretway.cursor.wire.paths import BIDI_APPEND

from .byte_proxy import ByteProxy, byte_proxy
from .http1_peer import Http1Script, Http1Site, PeerRequest, PeerRun, http1_site
from .listener import Listener, soon


@asynccontextmanager
async def behind_proxy(
    limits: TransportLimits, script: Http1Script | None = None
) -> AsyncIterator[tuple[Http1Transport, ByteProxy, Http1Site]]:
    async with http1_site(script or Http1Script()) as site, byte_proxy(site.port) as proxy:
        transport = Http1Transport(Dialler().dial(proxy.url), limits=limits)
        try:
            yield transport, proxy, site
        finally:
            await transport.aclose()


async def answered(transport: Http1Transport, name: str = "next") -> None:
    listener = Listener()
    run = await transport.open_run(NewRun(name, {}), listener)
    run.send(b"x")
    assert await listener.heard(1) == [b"x"]
    run.close()


async def test_a_black_hole_ends_the_run_in_it_and_the_next_is_answered() -> None:
    async with behind_proxy(TransportLimits(append_silence_s=0.2, sure_s=0.0)) as (transport, proxy, _):
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.send(b"x")
        await listener.heard(1)
        proxy.black_hole()
        run.send(b"into the dark")
        error = await listener.failed()
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert "neither the run nor its append" in error.message
        proxy.light()
        dead = len(proxy.links)
        await answered(transport)
        assert len(proxy.links) == dead + 2, "nothing of the old is used"
        await soon(lambda: all(link.over for link in proxy.links[:dead]))


class Holding(Http1Script):
    """Answers no append of the runs it is told of, and speaks to those that it is told to."""

    def __init__(self, *held: str, speaks: bool = False) -> None:
        self.held = held
        self.speaks = speaks
        self.appends: list[PeerRequest] = []

    def on_run(self, run: PeerRun) -> None:
        super().on_run(run)
        if self.speaks:
            self._beat(run)

    def _beat(self, run: PeerRun) -> None:
        if not run.request.connection.lost:
            run.message(b"beat")
            asyncio.get_running_loop().call_later(0.005, self._beat, run)

    def on_append(self, request: PeerRequest, number: int) -> None:
        if request.headers["x-request-id"] in self.held:
            self.appends.append(request)
        else:
            super().on_append(request, number)

    def on_message(self, run: PeerRun, payload: bytes) -> None:
        if run.request_id not in self.held:
            super().on_message(run, payload)


@pytest.mark.parametrize(
    ("speaks", "paused", "size", "kind"),
    [
        (False, False, 1, ErrorKind.UPSTREAM_DOWN),
        (True, False, 1, ErrorKind.UPSTREAM_DOWN),
        (False, True, 1, ErrorKind.UPSTREAM_DOWN),
        (False, False, 400_000, ErrorKind.TIMEOUT),
    ],
    ids=["it is silent", "it speaks", "nobody looks whether it speaks", "much is under way"],
)
async def test_an_append_without_an_answer(speaks: bool, paused: bool, size: int, kind: ErrorKind) -> None:
    limits = TransportLimits(append_silence_s=0.1, append_timeout_s=3)
    async with behind_proxy(limits, Holding("r", speaks=speaks)) as (transport, _, _site):
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        if paused:
            run.pause()
        run.send(bytes(size))
        assert (await listener.failed()).kind is kind


async def test_an_append_on_a_kept_connection_that_leads_nowhere_is_sent_again() -> None:
    limits = TransportLimits(append_silence_s=0.2)
    async with behind_proxy(limits, Holding(speaks=True)) as (transport, proxy, site):
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.send(b"1")
        await listener.until(lambda: b"1" in listener.frames)
        proxy.links[1].to_server_lost = True  # the appends' own; the run's is in order, and speaks
        run.send(b"2")
        await listener.until(lambda: b"2" in listener.frames)
        assert listener.closings == []
        assert site.runs["r"].numbers == [0, 1]
        await soon(lambda: proxy.links[1].over)


async def test_the_first_append_on_a_new_connection_that_leads_nowhere_is_sent_again() -> None:
    """The prompt itself. The run's own connection is in order, and speaks."""
    limits = TransportLimits(append_silence_s=0.2)
    async with behind_proxy(limits, Holding(speaks=True)) as (transport, proxy, site):
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        proxy.dark = True
        run.send(b"prompt")
        await soon(lambda: len(proxy.links) == 2)
        proxy.dark = False
        await listener.until(lambda: b"prompt" in listener.frames)
        assert listener.closings == []
        assert site.runs["r"].numbers == [0]
        await soon(lambda: proxy.links[1].over)


async def test_two_connections_that_lead_nowhere_cut_the_run() -> None:
    async with behind_proxy(TransportLimits(append_silence_s=0.1), Holding(speaks=True)) as (transport, proxy, _):
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        proxy.dark = True
        run.send(b"prompt")
        error = await listener.failed()
        assert (error.kind, "two connections" in error.message) == (ErrorKind.UPSTREAM_DOWN, True)
        assert len(proxy.links) == 3


@pytest.mark.parametrize("in_doubt", [True, False])
async def test_appends_of_a_run_that_is_over_hold_nobody_up(in_doubt: bool) -> None:
    limits = TransportLimits(http1_call_connections=1, append_linger_s=0.05)
    script = Holding("old")
    async with behind_proxy(limits, script) as (transport, _, site):
        listener = Listener()
        run = await transport.open_run(NewRun("old", {}), listener)
        for _ in range(3):
            run.send(b"x")
        await soon(lambda: len(script.appends) == 1)
        if in_doubt:
            run.doubt()
        run.close()
        await answered(transport, "new")
        assert listener.closings == []
        assert [request.headers["x-request-id"] for request in site.requests if request.path == BIDI_APPEND] == [
            "old",
            "new",
        ]


async def test_doubt_after_the_end_lets_the_appends_go_at_once() -> None:
    limits = TransportLimits(http1_call_connections=1, append_linger_s=1000.0)
    script = Holding("old")
    async with behind_proxy(limits, script) as (transport, _, _site):
        run = await transport.open_run(NewRun("old", {}), Listener())
        run.send(b"x")
        await soon(lambda: len(script.appends) == 1)
        run.close()
        run.doubt()
        await answered(transport, "new")


async def test_doubt_leaves_no_connection_that_was_not_heard_just_now() -> None:
    async with behind_proxy(TransportLimits(sure_s=0.0)) as (transport, proxy, _):
        await transport.call("GET", "/x", {})
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.send(b"x")
        await listener.heard(1)
        run.doubt()
        run.close()
        used = len(proxy.links)
        await soon(lambda: all(link.over for link in proxy.links))
        await answered(transport)
        assert len(proxy.links) == used + 2


async def test_a_doubted_run_that_ends_in_order_leaves_its_connection_to_nobody() -> None:
    class Ends(Http1Script):
        def on_message(self, run: PeerRun, payload: bytes) -> None:
            run.finish()

    async with behind_proxy(TransportLimits(), Ends()) as (transport, proxy, _):
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.doubt()
        run.send(b"x")
        assert await listener.ended() is None
        await soon(lambda: proxy.links[0].over)


async def test_a_run_alone_takes_no_kept_connection() -> None:
    async with behind_proxy(TransportLimits()) as (transport, proxy, _):
        await transport.call("GET", "/x", {})
        await transport.open_run(NewRun("r", {}, alone=True), Listener())
        assert len(proxy.links) == 2
        await transport.open_run(NewRun("r2", {}), Listener())
        assert len(proxy.links) == 2


async def test_a_run_takes_no_kept_connection_that_was_silent_for_long() -> None:
    async with behind_proxy(TransportLimits(sure_s=0.0)) as (transport, proxy, _):
        await transport.call("GET", "/x", {})
        await transport.open_run(NewRun("r", {}), Listener())
        assert len(proxy.links) == 2


class Hesitant:
    """A dial whose first attempt never ends."""

    def __init__(self, inner: Dial) -> None:
        self._inner = inner
        self.attempts = 0

    @property
    def origin(self) -> Origin:
        return self._inner.origin

    async def __call__(self, protocol_factory: Callable[[], P], /) -> tuple[asyncio.Transport, P]:
        self.attempts += 1
        if self.attempts == 1:
            await asyncio.Event().wait()
        return await self._inner(protocol_factory)


async def test_nobody_waits_for_an_attempt_that_leads_nowhere() -> None:
    async with http1_site(Http1Script()) as site:
        dial = Hesitant(Dialler().dial(site.url))
        transport = Http1Transport(dial, limits=TransportLimits(dial_again_s=0.02))
        first = asyncio.ensure_future(transport.call("GET", "/1", {}))
        await soon(lambda: dial.attempts == 1)
        await asyncio.sleep(0.03)  # the attempt grows old
        assert (await transport.call("GET", "/2", {})).status == 201
        assert (await first).status == 201
        await transport.aclose()
