"""`Run` over HTTP/2 on real sockets: full duplex, many streams, backpressure."""

import asyncio
import gzip
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import socket_dial
from caretway.cursor.transport.h2_transport import H2Transport
from caretway.cursor.transport.ports import MIB, NewRun, TransportLimits
from caretway.cursor.wire.envelope import COMPRESSED, pack, write_end
from caretway.cursor.wire.paths import RUN
from caretway.processes.tasks import spawn

from .h2_client import HEADERS, client, echo_twenty
from .h2_peer import H2Site, PeerStream, Script, h2_site, in_process
from .listener import Listener, count_down, soon

# -- full duplex -------------------------------------------------------------------------------------------------------


async def test_each_message_is_answered_before_the_next_is_sent() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        listener = await echo_twenty(transport)
        assert listener.reads == [1] * 20
        assert site.streams[0].headers == {
            ":method": "POST",
            ":scheme": "http",
            ":authority": f"127.0.0.1:{site.port}",
            ":path": RUN,
            "content-type": "application/connect+proto",
            "connect-protocol-version": "1",
            "connect-accept-encoding": "gzip",
            "x-request-id": "r-1",
            "authorization": "Bearer t",
            "x-cursor-client-type": "sdk",
        }


async def test_a_run_that_need_not_wait() -> None:
    limits = TransportLimits(streams_per_connection=2, max_connections=1)
    async with h2_site(Script()) as site, client(site, limits) as transport:
        listener = Listener()
        assert transport.open_run_now(NewRun("r-1", HEADERS), listener) is None, "there is no connection yet"
        first = await transport.open_run(NewRun("r-1", HEADERS), listener)
        second = transport.open_run_now(NewRun("r-2", HEADERS, "r-1"), listener)
        assert second is not None
        second.send(b"x")
        assert await listener.heard(1) == [b"x"]
        one, other = site.streams[0].headers, site.streams[1].headers
        assert other == one | {"x-request-id": "r-2", "x-original-request-id": "r-1"}
        assert transport.open_run_now(NewRun("r-3", HEADERS), listener) is None, "the connection is full"
        waiting = spawn(transport.open_run(NewRun("r-3", HEADERS), listener), "waits")
        await asyncio.sleep(0)
        first.close()
        assert transport.open_run_now(NewRun("r-4", HEADERS), listener) is None, "somebody else waited for the place"
        (await waiting).close()
        for request_id, headers in (("r\n5", HEADERS), ("r-5", {"authorization": "a\nb"})):
            with pytest.raises(GatewayError) as unsendable:
                transport.open_run_now(NewRun(request_id, headers), listener)
            assert unsendable.value.kind is ErrorKind.BAD_REQUEST
        assert transport.open_run_now(NewRun("r-5", HEADERS), listener) is not None


def update(number: int) -> bytes:
    """A message in the shape of an update; what wants an answer would be told alone."""
    return b"\x0a\x04%04d" % number


def on_uvloop(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def test_duplex_on_uvloop() -> None:
    async def work() -> None:
        async with h2_site(Script()) as site, client(site) as transport:
            await echo_twenty(transport)

    on_uvloop(work())


async def echo_in_process() -> None:
    site = H2Site()
    transport = H2Transport(socket_dial(in_process(Script(), site)))
    await echo_twenty(transport)
    assert site.streams[0].headers[":authority"] == "in-process"
    await transport.aclose()
    await soon(lambda: site.connections[0].lost)


async def test_a_socketpair_is_a_connection_too() -> None:
    await echo_in_process()


def test_a_socketpair_on_uvloop() -> None:
    on_uvloop(echo_in_process())


async def test_an_answer_given_inside_the_callback_leaves_at_once() -> None:
    class Countdown(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            if payload == b"0":
                stream.finish()
            else:
                stream.message(payload)

    async with h2_site(Countdown()) as site, client(site) as transport:
        await count_down(transport)
        await soon(lambda: site.streams[0].half_closed)  # we end our half when the server ended its own


async def test_messages_sent_together_arrive_in_few_reads() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.send(b"first")
        await listener.heard(1)
        before = site.connections[0].reads
        for number in range(200):
            run.send(update(number))
        assert (await listener.heard(201))[1:] == [update(number) for number in range(200)]
        assert site.connections[0].reads - before <= 3
        assert len(listener.reads) < 50


async def test_frames_of_one_read_come_in_one_call() -> None:
    class Burst(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            stream.write(b"".join(pack(update(number)) for number in range(500)))

    async with h2_site(Burst()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"go")
        assert await listener.heard(500) == [update(number) for number in range(500)]
        assert len(listener.reads) <= 3


async def test_compressed_frames_are_unpacked() -> None:
    class Gzip(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            packed = gzip.compress(payload * 1000)
            stream.write(struct.pack(">BI", COMPRESSED, len(packed)) + packed)

    async with h2_site(Gzip()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"abc")
        assert await listener.heard(1) == [b"abc" * 1000]


# -- many streams ------------------------------------------------------------------------------------------------------


async def test_a_hundred_streams_share_one_connection() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        listeners = [Listener() for _ in range(100)]
        runs = await asyncio.gather(
            *(transport.open_run(NewRun(f"r{n}", {}), each) for n, each in enumerate(listeners))
        )
        for round_ in range(5):
            for number, run in enumerate(runs):
                run.send(b"%d/%d" % (number, round_))
        for number, listener in enumerate(listeners):
            assert await listener.heard(5) == [b"%d/%d" % (number, round_) for round_ in range(5)]
        assert len(site.connections) == 1
        late = Listener()
        (await transport.open_run(NewRun("late", {}), late)).send(b"x")
        assert await late.heard(1) == [b"x"]
        assert len(site.connections) == 2


async def test_the_peers_stream_limit_opens_more_connections_and_then_makes_wait() -> None:
    class OneAtATime(Script):
        settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 1}  # noqa: RUF012  # never written to

    limits = TransportLimits(max_connections=2, slot_timeout_s=0.2)
    async with h2_site(OneAtATime()) as site, client(site, limits) as transport:
        first, second = [await transport.open_run(NewRun("r", {}), Listener()) for _ in range(2)]
        assert len(site.connections) == 2
        with pytest.raises(GatewayError) as full:
            await transport.open_run(NewRun("r", {}), Listener())
        assert full.value.kind is ErrorKind.OVERLOADED
        waiting = asyncio.gather(*(transport.open_run(NewRun("r", {}), Listener()) for _ in range(2)))
        await asyncio.sleep(0)
        first.close()
        second.close()
        await waiting
        assert len(site.connections) == 2


async def test_a_place_given_to_a_cancelled_waiter_goes_to_the_next() -> None:
    limits = TransportLimits(max_connections=1, streams_per_connection=1)
    async with h2_site(Script()) as site, client(site, limits) as transport, asyncio.TaskGroup() as group:
        first = await transport.open_run(NewRun("r", {}), Listener())
        gone = group.create_task(transport.open_run(NewRun("gone", {}), Listener()))
        stays = group.create_task(transport.open_run(NewRun("stays", {}), Listener()))
        await asyncio.sleep(0)
        first.close()
        gone.cancel()
        (await stays).send(b"x")
        await soon(lambda: site.streams[-1].messages == [b"x"])


async def test_a_paused_stream_stops_alone_and_its_memory_is_bounded() -> None:
    total, window = 24 * MIB, 1 * MIB

    class Flood(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            if payload == b"flood":
                stream.write(pack(bytes(64 * 1024)) * (total // (64 * 1024)))
                stream.finish()
            else:
                stream.message(payload)

    limits = TransportLimits(stream_window_bytes=window, connection_window_bytes=2 * window)
    async with h2_site(Flood()) as site, client(site, limits) as transport:
        slow, quick = Listener(), Listener()
        slow_run = await transport.open_run(NewRun("slow", {}), slow)
        quick_run = await transport.open_run(NewRun("quick", {}), quick)
        slow.react = lambda frame: slow_run.pause()
        slow_run.send(b"flood")
        await slow.heard(1)
        for number in range(50):
            quick_run.send(bytes(100_000))
            await quick.heard(number + 1)
        assert slow.bytes <= window
        assert len(site.connections) == 1
        slow.react = None
        slow_run.resume()
        assert await slow.ended() is None
        assert slow.bytes == total + len(write_end())


async def test_payloads_larger_than_the_windows_pass_both_ways() -> None:
    limits = TransportLimits(stream_window_bytes=256 * 1024, connection_window_bytes=512 * 1024)
    payload = bytes(range(256)) * (5 * MIB // 256)
    async with h2_site(Script()) as site, client(site, limits) as transport:
        one, two = Listener(), Listener()
        (await transport.open_run(NewRun("1", {}), one)).send(payload)
        (await transport.open_run(NewRun("2", {}), two)).send(payload)
        assert await one.heard(1) == [payload]
        assert await two.heard(1) == [payload]
        assert len(site.connections) == 1


async def test_a_peer_that_takes_nothing_fails_the_stream_and_not_the_connection() -> None:
    class Deaf(Script):
        acknowledge = False

    limits = TransportLimits(max_unsent_bytes=1 * MIB)
    async with h2_site(Deaf()) as site, client(site, limits) as transport:
        listener, other = Listener(), Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        for _ in range(20):
            run.send(bytes(100_000))
        assert listener.closings == []  # never from within send()
        error = await listener.failed()
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert "bytes are waiting" in error.message
        await soon(lambda: site.streams[0].reset_code == ErrorCodes.CANCEL)
        await transport.open_run(NewRun("r2", {}), other)
        assert other.closings == []
        assert len(site.connections) == 1


async def test_a_bug_in_one_handler_does_not_reach_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fall(frame: bytes) -> None:
        raise KeyError("a bug")

    async with h2_site(Script()) as site, client(site) as transport:
        bad, good = Listener(fall), Listener()
        bad_run, good_run = (
            await transport.open_run(NewRun("b", {}), bad),
            await transport.open_run(NewRun("g", {}), good),
        )
        bad_run.send(b"x")
        assert (await bad.failed()).kind is ErrorKind.INTERNAL
        good_run.send(b"y")
        assert await good.heard(1) == [b"y"]
        assert len(site.connections) == 1
        assert "a bug" in caplog.text
