"""How an HTTP/2 run ends: in order, closed by us, refused, reset, cut, drained, dead."""

import asyncio
import struct

import pytest
from h2.errors import ErrorCodes

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import Dialler
from caretway.cursor.transport.h2_stream import Unprocessed
from caretway.cursor.transport.h2_transport import H2Transport
from caretway.cursor.transport.ports import MIB, NewRun, TransportLimits
from caretway.cursor.wire.envelope import ConnectError, pack, write_unary

from .h2_client import client, echo_twenty
from .h2_peer import PeerStream, Script, h2_site
from .listener import Listener, close_after_one, soon
from .raw_peer import raw_site


async def test_close_resets_the_stream_and_nothing_more_is_heard() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        listener = await close_after_one(transport)
        await soon(lambda: site.streams[0].reset_code == ErrorCodes.CANCEL)
        await echo_twenty(transport)  # the connection lives on, and everything before this has been read
        assert (listener.payloads, listener.closings) == ([b"x"], [])
        assert site.streams[0].messages == [b"x"]
        assert len(site.connections) == 1


async def test_close_inside_the_callback_drops_the_rest() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        listener.react = lambda frame: run.close()
        run.send(b"x")
        await soon(lambda: bool(site.streams) and site.streams[0].reset_code == ErrorCodes.CANCEL)
        assert listener.closings == []


async def test_goaway_lets_running_streams_finish_and_sends_new_ones_elsewhere() -> None:
    class Farewell(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            stream.message(payload)
            if payload == b"goaway":
                # By hand: `h2` on this side would not go on after its own GOAWAY. What follows shares the read.
                goaway = struct.pack(">HBBBIII", 0, 8, 7, 0, 0, stream.id, 0)
                stream.connection.transport.write(goaway)
                stream.message(b"after the goaway")

    async with h2_site(Farewell()) as site, client(site) as transport:
        old, new = Listener(), Listener()
        run = await transport.open_run(NewRun("old", {}), old)
        run.send(b"goaway")
        assert await old.heard(2) == [b"goaway", b"after the goaway"]
        run.send(b"still here")
        assert (await old.heard(3))[2] == b"still here"
        (await transport.open_run(NewRun("new", {}), new)).send(b"x")
        assert await new.heard(1) == [b"x"]
        assert len(site.connections) == 2
        run.send(bytes(3 * MIB))  # flow control goes on too
        assert len((await old.heard(4))[3]) == 3 * MIB
        run.close()
        await soon(lambda: site.connections[0].lost)
        assert transport.connection_count == 1
        assert old.closings == []


async def test_goaway_that_leaves_a_stream_out_ends_it_as_unprocessed() -> None:
    class Closing(Script):
        def on_open(self, stream: PeerStream) -> None:
            stream.connection.h2.close_connection(last_stream_id=0)

    async with h2_site(Closing()) as site, client(site) as transport:
        listener = Listener()
        await transport.open_run(NewRun("r", {}), listener)
        error = await listener.failed()
        assert isinstance(error, Unprocessed)
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        await soon(lambda: site.connections[0].lost)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCodes.INTERNAL_ERROR, "reset the stream (INTERNAL_ERROR)"),
        (ErrorCodes.REFUSED_STREAM, "refused"),
        (999, "999"),
    ],
)
async def test_a_reset_is_told_after_what_came_before_it(code: int, words: str) -> None:
    class Reset(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            stream.message(payload)
            stream.reset(code)

    async with h2_site(Reset()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        error = await listener.failed()
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert words in error.message
        assert listener.payloads == [b"x"]


async def test_a_cut_connection_ends_every_stream_once() -> None:
    class Cut(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            if payload == b"cut":
                stream.write(pack(b"whole") + pack(b"half of this")[:9])
                stream.connection.transport.close()

    async with h2_site(Cut()) as site, client(site) as transport:
        one, two = Listener(), Listener()
        await transport.open_run(NewRun("2", {}), two)
        (await transport.open_run(NewRun("1", {}), one)).send(b"cut")
        for listener in (one, two):
            error = await listener.failed()
            assert error.kind is ErrorKind.UPSTREAM_DOWN
            assert "127.0.0.1 was closed" in error.message
        assert one.payloads == [b"whole"]
        await echo_twenty_elsewhere(transport)
        assert len(site.connections) == 2


async def echo_twenty_elsewhere(transport: H2Transport) -> None:
    listener = Listener()
    run = await transport.open_run(NewRun("again", {}), listener)
    assert listener.closings == []
    run.close()


async def test_a_stream_that_ends_inside_a_message_was_cut() -> None:
    class Cut(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            stream.write(pack(payload)[:-1], end=True)

    async with h2_site(Cut()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        error = await listener.failed()
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert "middle of a message" in error.message


async def test_bytes_that_are_no_envelope_end_the_stream_only() -> None:
    class Garbage(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            stream.write(b"<html>")

    async with h2_site(Garbage()) as site, client(site) as transport:
        listener = Listener()
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        assert (await listener.failed()).kind is ErrorKind.UPSTREAM_PROTOCOL
        await soon(lambda: site.streams[0].reset_code is not None)
        assert not site.connections[0].lost


@pytest.mark.parametrize("own", [True, False])
async def test_a_broken_frame_ends_the_connection_and_blames_nobody_else(own: bool) -> None:
    class Broken(Script):
        def on_message(self, stream: PeerStream, payload: bytes) -> None:
            # a WINDOW_UPDATE that is too short: of the stream, or of the connection
            stream.connection.transport.write(struct.pack(">HBBBI", 0, 3, 8, 0, stream.id if own else 0) + b"abc")

    async with h2_site(Broken()) as site, client(site) as transport:
        neighbour, listener = Listener(), Listener()
        await transport.open_run(NewRun("n", {}), neighbour)
        (await transport.open_run(NewRun("r", {}), listener)).send(b"x")
        error = await listener.failed()
        assert error.kind is (ErrorKind.UPSTREAM_PROTOCOL if own else ErrorKind.UPSTREAM_DOWN)
        assert "broke HTTP/2" in error.message
        assert (await neighbour.failed()).kind is ErrorKind.UPSTREAM_DOWN
        await soon(lambda: site.connections[0].lost and transport.connection_count == 0)


async def test_a_peer_that_cannot_even_greet_is_no_cut_line() -> None:
    def garble(peer: asyncio.Transport) -> None:
        peer.write(struct.pack(">HBBBI", 0, 1, 4, 0, 0) + b"x")  # SETTINGS of one byte

    async with raw_site(on_connect=garble) as site:
        transport = H2Transport(Dialler().dial(site.url))
        with pytest.raises(GatewayError) as broken:
            await transport.open_run(NewRun("r", {}), Listener())
        assert broken.value.kind is ErrorKind.UPSTREAM_PROTOCOL
        await transport.aclose()


REFUSALS = [
    (401, "text/plain", b"", ErrorKind.SIGNED_OUT),
    (403, "text/html", b"<h1>no</h1>", ErrorKind.FORBIDDEN),
    (404, "text/plain", b"", ErrorKind.UPSTREAM_PROTOCOL),
    (429, "text/plain", b"", ErrorKind.RATE_LIMITED),
    (503, "text/plain", b"busy", ErrorKind.UPSTREAM_DOWN),
    (400, "application/json", write_unary(ConnectError("invalid_argument", error=5)), ErrorKind.MODEL_UNKNOWN),
    (500, "text/plain", b"x" * 500_000, ErrorKind.UPSTREAM_ERROR),
    (200, "text/html", b"<html>", ErrorKind.UPSTREAM_PROTOCOL),
]


@pytest.mark.parametrize(("status", "content_type", "body", "kind"), REFUSALS)
async def test_a_refused_run_ends_with_the_reason(status: int, content_type: str, body: bytes, kind: ErrorKind) -> None:
    class Refuse(Script):
        def on_open(self, stream: PeerStream) -> None:
            stream.head(status, content_type, retry_after="7")
            stream.write(body, end=True)

    async with h2_site(Refuse()) as site, client(site) as transport:
        listener = Listener()
        run = await transport.open_run(NewRun("r", {}), listener)
        run.send(b"too late")
        error = await listener.failed()
        assert error.kind is kind
        assert error.hint
        assert error.retry_after == (None if status == 200 else 7.0)
        assert not listener.frames


async def test_closing_the_transport_ends_what_is_open() -> None:
    async with h2_site(Script()) as site:
        transport = H2Transport(Dialler().dial(site.url))
        listener = Listener()
        await transport.open_run(NewRun("r", {}), listener)
        await transport.aclose()
        assert (await listener.failed()).kind is ErrorKind.CANCELLED
        await soon(lambda: site.connections[0].client_said_goodbye and site.connections[0].lost)
        with pytest.raises(GatewayError) as stopped:
            await transport.open_run(NewRun("r", {}), Listener())
        assert stopped.value.kind is ErrorKind.CANCELLED


# -- liveness ----------------------------------------------------------------------------------------------------------


async def test_pings_keep_an_answering_connection_and_end_a_dead_one() -> None:
    class Dead(Script):
        answer_pings = False

    patient = TransportLimits(ping_interval_s=0.02, ping_timeout_s=5.0)
    async with h2_site(Script()) as alive, client(alive, patient) as transport:
        listener = Listener()
        await transport.open_run(NewRun("r", {}), listener)
        await soon(lambda: alive.connections[0].pings >= 5)
        assert listener.closings == []
    strict = TransportLimits(ping_interval_s=0.02, ping_timeout_s=0.1)
    async with h2_site(Dead()) as dead, client(dead, strict) as transport:
        listener = Listener()
        await transport.open_run(NewRun("r", {}), listener)
        error = await listener.failed()
        assert error.kind is ErrorKind.UPSTREAM_DOWN
        assert "did not answer a PING" in error.message
        assert dead.connections[0].pings == 1


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with h2_site(Script()) as site, client(site, TransportLimits(idle_timeout_s=0.05)) as transport:
        run = await transport.open_run(NewRun("r", {}), Listener())
        run.close()
        await soon(lambda: site.connections[0].client_said_goodbye and site.connections[0].lost)
        await soon(lambda: transport.connection_count == 0)
