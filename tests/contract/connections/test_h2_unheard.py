"""HTTP/2 connections that are no longer heard, or lead nowhere: found out, left alone, replaced."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import Dialler
from caretway.cursor.transport.h2_transport import H2Transport
from caretway.cursor.transport.ports import NewRun, TransportLimits

from .byte_proxy import ByteProxy, byte_proxy
from .h2_peer import H2Site, PeerStream, Script, h2_site
from .listener import Listener, soon

LONG_S = 1000.0
QUICK = TransportLimits(ping_interval_s=0.1, ping_quiet_s=0.05, ping_timeout_s=0.2)
ASKED_ONLY_IN_DOUBT = TransportLimits(ping_interval_s=LONG_S, ping_quiet_s=LONG_S, sure_s=LONG_S, doubt_timeout_s=0.2)


class Chatty(Script):
    """Says something every few milliseconds, whether it hears anything or not."""

    def on_open(self, stream: PeerStream) -> None:
        super().on_open(stream)
        self._beat(stream)

    def _beat(self, stream: PeerStream) -> None:
        if stream.reset_code is None and not stream.connection.lost:
            stream.message(b"beat")
            asyncio.get_running_loop().call_later(0.005, self._beat, stream)


@asynccontextmanager
async def behind_proxy(
    limits: TransportLimits, script: Script | None = None
) -> AsyncIterator[tuple[H2Transport, ByteProxy, H2Site]]:
    async with h2_site(script or Script()) as site, byte_proxy(site.port) as proxy:
        transport = H2Transport(Dialler().dial(proxy.url), limits=limits)
        try:
            yield transport, proxy, site
        finally:
            await transport.aclose()


async def answered(transport: H2Transport) -> None:
    listener = Listener()
    run = await transport.open_run(NewRun("next", {}), listener)
    run.send(b"x")
    await listener.until(lambda: b"x" in listener.frames or bool(listener.closings))
    assert not listener.closings
    run.close()


async def test_a_peer_that_talks_and_hears_nothing_is_found_out() -> None:
    async with behind_proxy(QUICK, Chatty()) as (transport, proxy, _):
        one, two = Listener(), Listener()
        await transport.open_run(NewRun("1", {}), one)
        await transport.open_run(NewRun("2", {}), two)
        await one.heard(1)
        proxy.links[0].to_server_lost = True
        said = len(one.frames)
        for listener in (one, two):
            error = await listener.failed()
            assert error.kind is ErrorKind.UPSTREAM_DOWN
            assert "did not answer a PING" in error.message
        assert len(one.frames) > said, "it talked all the time"
        await soon(lambda: proxy.links[0].over)
        await answered(transport)
        assert len(proxy.links) == 2


async def test_a_black_hole_ends_the_runs_in_it_and_the_next_is_answered() -> None:
    async with behind_proxy(QUICK, Chatty()) as (transport, proxy, _):
        listener = Listener()
        await transport.open_run(NewRun("1", {}), listener)
        await listener.heard(1)
        proxy.links[0].lose_everything()
        assert (await listener.failed()).kind is ErrorKind.UPSTREAM_DOWN
        await answered(transport)


async def test_a_peer_that_answers_its_pings_may_say_nothing_else() -> None:
    async with behind_proxy(replace(QUICK, ping_timeout_s=10.0)) as (transport, _, site):
        listener = Listener()
        await transport.open_run(NewRun("1", {}), listener)
        await soon(lambda: site.connections[0].pings >= 5)
        assert listener.closings == []


async def test_a_loop_that_was_held_up_blames_nobody() -> None:
    limits = TransportLimits(ping_interval_s=0.02, ping_quiet_s=0.02, ping_timeout_s=0.8)
    async with behind_proxy(limits) as (transport, _, site):
        listener = Listener()
        await transport.open_run(NewRun("1", {}), listener)
        await soon(lambda: site.connections[0].pings >= 2)
        for _ in range(2):
            time.sleep(0.9)  # noqa: ASYNC251  # longer than an answer may take
            await asyncio.sleep(0.03)
        await soon(lambda: site.connections[0].pings >= 4)
        assert listener.closings == []


async def test_who_begins_on_a_connection_that_died_while_it_was_idle_soon_knows() -> None:
    limits = TransportLimits(sure_s=0.05, doubt_timeout_s=0.2, ping_interval_s=LONG_S, ping_quiet_s=LONG_S)
    async with behind_proxy(limits) as (transport, proxy, _):
        await answered(transport)
        proxy.links[0].lose_everything()
        await asyncio.sleep(0.06)  # nothing happens in an idle connection: the silence is the point
        listener = Listener()
        await transport.open_run(NewRun("1", {}), listener)
        assert (await listener.failed()).kind is ErrorKind.UPSTREAM_DOWN
        await answered(transport)
        assert len(proxy.links) == 2


# -- doubt -------------------------------------------------------------------------------------------------------------


async def test_doubt_keeps_new_runs_away_until_the_connection_has_answered() -> None:
    async with behind_proxy(replace(ASKED_ONLY_IN_DOUBT, doubt_timeout_s=10.0)) as (transport, proxy, site):
        listener = Listener()
        run = await transport.open_run(NewRun("1", {}), listener)
        run.doubt()
        run.close()
        assert transport.open_run_now(NewRun("2", {}), Listener()) is None
        await soon(lambda: site.connections[0].pings == 1)
        await soon(lambda: transport.open_run_now(NewRun("3", {}), Listener()) is not None)
        assert (len(proxy.links), listener.closings) == (1, [])


async def test_doubt_that_is_right_retires_the_connection() -> None:
    async with behind_proxy(ASKED_ONLY_IN_DOUBT, Chatty()) as (transport, proxy, _):
        neighbour, listener = Listener(), Listener()
        await transport.open_run(NewRun("1", {}), neighbour)
        run = await transport.open_run(NewRun("2", {}), listener)
        await listener.heard(1)
        proxy.links[0].to_server_lost = True
        run.close()
        run.doubt()
        await answered(transport)
        assert len(proxy.links) == 2
        assert (await neighbour.failed()).kind is ErrorKind.UPSTREAM_DOWN
        await soon(lambda: proxy.links[0].over)
        assert transport.connection_count == 1
        run.doubt()  # of what is gone already
        await answered(transport)
        assert len(proxy.links) == 2


async def test_a_call_that_was_in_vain_is_a_doubt() -> None:
    class Deaf(Script):
        def on_end(self, stream: PeerStream) -> None:
            """Never answers a call."""

    async with behind_proxy(replace(ASKED_ONLY_IN_DOUBT, call_timeout_s=0.1), Deaf()) as (transport, proxy, _):
        await answered(transport)
        proxy.links[0].lose_everything()
        with pytest.raises(GatewayError) as late:
            await transport.call("GET", "/x", {})
        assert late.value.kind is ErrorKind.TIMEOUT
        await soon(lambda: transport.connection_count == 0)
        await answered(transport)


async def test_who_waits_for_a_place_gets_it_when_the_doubt_is_over() -> None:
    limits = replace(ASKED_ONLY_IN_DOUBT, doubt_timeout_s=600.0, max_connections=1)
    async with behind_proxy(limits) as (transport, _, _site):
        run = await transport.open_run(NewRun("1", {}), Listener())
        run.doubt()
        async with asyncio.timeout(60):
            await asyncio.gather(*(answered(transport) for _ in range(5)))
        assert transport.connection_count == 1


# -- connecting --------------------------------------------------------------------------------------------------------


async def test_nobody_waits_for_an_attempt_that_leads_nowhere() -> None:
    limits = TransportLimits(ready_timeout_s=LONG_S, dial_again_s=0.05)
    async with behind_proxy(limits) as (transport, proxy, _):
        proxy.black_hole()
        waiting = asyncio.ensure_future(answered(transport))
        await soon(lambda: len(proxy.links) == 2)  # the second attempt, beside the first
        proxy.light()
        await answered(transport)
        await waiting
        assert len(proxy.links) <= 5


async def test_attempts_are_bounded_and_end_with_the_first_of_them() -> None:
    limits = TransportLimits(ready_timeout_s=0.3, dial_again_s=0.02)
    async with behind_proxy(limits) as (transport, proxy, _):
        proxy.black_hole()
        failures = await asyncio.gather(*(answered(transport) for _ in range(20)), return_exceptions=True)
        assert {error.kind for error in failures if isinstance(error, GatewayError)} == {ErrorKind.UPSTREAM_DOWN}
        assert len(failures) == 20
        assert len(proxy.links) <= 8
        proxy.light()
        await answered(transport)
