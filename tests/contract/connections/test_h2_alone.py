"""A run with an HTTP/2 connection of its own: nobody's trouble reaches it, and its own reaches nobody."""

import ssl
import struct
from pathlib import Path

import pytest
import trustme

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import Dialler
from caretway.cursor.transport.h2_transport import H2Transport
from caretway.cursor.transport.ports import NewRun, TransportLimits

from .h2_client import client
from .h2_peer import Script, h2_site
from .listener import Listener, soon
from .raw_peer import raw_site

GREETING_AND_GOODBYE = struct.pack(">HBBBI", 0, 0, 4, 0, 0) + struct.pack(">HBBBIII", 0, 8, 7, 0, 0, 0, 0)
"""SETTINGS and GOAWAY, both without a word."""


async def test_a_run_alone_shares_its_connection_with_nobody_while_it_lives() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        shared, own, other = Listener(), Listener(), Listener()
        (await transport.open_run(NewRun("shared", {}), shared)).send(b"1")
        alone = await transport.open_run(NewRun("own", {}, alone=True), own)
        alone.send(b"2")
        late = transport.open_run_now(NewRun("other", {}), other)
        assert late is not None
        late.send(b"3")
        for listener, said in ((shared, b"1"), (own, b"2"), (other, b"3")):
            assert await listener.heard(1) == [said]
        first, second = site.connections
        assert [stream.headers["x-request-id"] for stream in first.streams.values()] == ["shared", "other"]
        assert [stream.headers["x-request-id"] for stream in second.streams.values()] == ["own"]
        alone.close()
        first.transport.abort()
        assert (await other.failed()).kind is ErrorKind.UPSTREAM_DOWN
        again = Listener()
        (await transport.open_run(NewRun("again", {}), again)).send(b"4")
        assert await again.heard(1) == [b"4"]
        assert len(site.connections) == 2, "what is over leaves its connection to the others"


async def test_each_of_many_gets_its_own() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        for number in range(5):
            await transport.open_run(NewRun(f"{number}", {}, alone=True), Listener())
        await soon(lambda: len(site.streams) == 5)
        assert [len(connection.streams) for connection in site.connections] == [1] * 5


async def test_when_there_may_be_no_more_connections_a_run_shares_one() -> None:
    async with h2_site(Script()) as site, client(site, TransportLimits(max_connections=2)) as transport:
        await transport.open_run(NewRun("shared", {}), Listener())
        await transport.open_run(NewRun("own", {}, alone=True), Listener())
        listener = Listener()
        (await transport.open_run(NewRun("third", {}, alone=True), listener)).send(b"x")
        assert await listener.heard(1) == [b"x"]
        assert [len(connection.streams) for connection in site.connections] == [2, 1]


async def test_nobody_there_for_it() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        await transport.open_run(NewRun("shared", {}), Listener())
        site.stop_listening()
        with pytest.raises(GatewayError) as nobody:
            await transport.open_run(NewRun("own", {}, alone=True), Listener())
        assert nobody.value.kind is ErrorKind.UPSTREAM_DOWN
        await transport.open_run(NewRun("shared too", {}), Listener())


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("over_tls", [True, False])
async def test_a_peer_that_greets_and_says_goodbye_in_one_breath(over_tls: bool, alone: bool, tmp_path: Path) -> None:
    """What its connection has shut before anybody could use it is nobody's connection."""
    authority, server = trustme.CA(), None
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    if over_tls:  # closing takes a handshake there, so a shut connection is not closed yet
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(server)
        server.set_alpn_protocols(["h2"])
    async with raw_site(on_connect=lambda to: to.write(GREETING_AND_GOODBYE), tls=server) as site:
        url = site.url.replace("http:", "https:") if over_tls else site.url
        dial = Dialler(ca_file=str(tmp_path / "ca.pem") if over_tls else None).dial(url, alpn=("h2",))
        transport = H2Transport(dial)
        try:
            with pytest.raises(GatewayError) as gone:
                await transport.open_run(NewRun("own", {}, alone=alone), Listener())
            assert gone.value.kind is ErrorKind.UPSTREAM_DOWN
            assert "closed the connection at once" in gone.value.message
            assert transport.connection_count == 0
        finally:
            await transport.aclose()
