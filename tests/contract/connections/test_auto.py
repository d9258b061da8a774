"""Which carrier is chosen, and that the choice is remembered."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import Dialler
from caretway.cursor.transport.h2_connection import NotHttp2
from caretway.cursor.transport.h2_transport import AutoTransport, open_transport
from caretway.cursor.transport.ports import NewRun, Transport

from .h2_peer import PeerStream, Script, h2_site
from .http1_peer import Http1Script, http1_site
from .listener import Listener
from .raw_peer import raw_site


class Unary(Script):
    def on_end(self, stream: PeerStream) -> None:
        stream.head(201, "application/proto")
        stream.write(bytes(stream.body), end=True)


async def echo(transport: AutoTransport) -> None:
    listener = Listener()
    run = await _fits_the_port(transport).open_run(NewRun("r", {}), listener)
    run.send(b"x")
    assert await listener.heard(1) == [b"x"]
    run.close()


def _fits_the_port(transport: AutoTransport) -> Transport:
    return transport


async def test_http2_in_the_clear_is_found_and_remembered() -> None:
    async with h2_site(Unary()) as site:
        transport = open_transport(site.url)
        assert transport.name == "auto"
        assert transport.open_run_now(NewRun("r", {}), Listener()) is None
        await asyncio.gather(*(echo(transport) for _ in range(5)))
        assert transport.name == "h2"
        assert transport.open_run_now(NewRun("r", {}), Listener()) is not None
        assert (await transport.call("POST", "/x", {}, b"b")).body == b"b"
        assert len(site.connections) == 1
        await transport.aclose()


async def test_an_http1_server_is_found_and_remembered() -> None:
    async with http1_site(TolerantHttp1()) as site:
        transport = open_transport(site.url)
        await echo(transport)
        assert transport.name == "http1"
        assert transport.open_run_now(NewRun("r", {}), Listener()) is None
        before = len(site.connections)
        assert (await transport.call("POST", "/x", {}, b"b")).body == b"b"
        assert len(site.connections) == before  # no second greeting, and a kept connection
        await transport.aclose()


class TolerantHttp1(Http1Script):
    """`h11` refuses the HTTP/2 greeting by an exception, which closes the connection: the `closes at once` case."""


HTTP1_ANSWER = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def refuse(transport: asyncio.Transport) -> None:
    transport.write(HTTP1_ANSWER)
    transport.close()


def hang_up(transport: asyncio.Transport) -> None:
    transport.close()


@pytest.mark.parametrize("on_data", [refuse, hang_up])
async def test_what_is_not_http2_gets_http1(on_data: Callable[[asyncio.Transport], None]) -> None:
    async with raw_site(on_data=on_data) as site:
        transport = open_transport(site.url)
        outcome = await asyncio.gather(transport.call("GET", "/x", {}), return_exceptions=True)
        assert site.received[0].startswith(b"PRI * HTTP/2.0")
        assert site.received[1].startswith(b"GET /x HTTP/1.1")
        if on_data is refuse:
            assert transport.name == "http1"
        else:  # gone both times: nothing was learnt, so the next one asks again
            assert isinstance(outcome[0], GatewayError)
            assert transport.name == "auto"
        await transport.aclose()


async def test_a_mode_is_not_second_guessed() -> None:
    async with raw_site(on_data=refuse) as site:
        transport = open_transport(site.url, mode="h2")
        with pytest.raises(NotHttp2) as not_http2:
            await transport.call("GET", "/x", {})
        assert not_http2.value.kind is ErrorKind.UPSTREAM_DOWN
        assert "--agent-transport http1" in not_http2.value.hint
        assert transport.name == "h2"
        await transport.aclose()
    async with http1_site(Http1Script()) as h1:
        transport = open_transport(h1.url, mode="http1")
        await echo(transport)
        assert transport.name == "http1"
        await transport.aclose()


async def test_a_host_that_is_down_is_no_reason_to_choose() -> None:
    async with h2_site(Unary()) as site:
        url = site.url
    transport = open_transport(url)
    with pytest.raises(GatewayError) as down:
        await transport.call("GET", "/x", {})
    assert down.value.kind is ErrorKind.UPSTREAM_DOWN
    assert transport.name == "auto"
    await transport.aclose()


def tls(authority: trustme.CA, *alpn: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def test_over_tls_the_handshake_decides(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca_file = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca_file)
    async with h2_site(Unary(), tls(authority, "h2", "http/1.1")) as site:
        transport = open_transport(f"https://127.0.0.1:{site.port}", Dialler(ca_file=ca_file))
        await echo(transport)
        assert transport.name == "h2"
        await transport.aclose()
    for alpn in [("http/1.1",), ()]:
        async with http1_site(Http1Script(), tls(authority, *alpn)) as h1:
            transport = open_transport(f"https://127.0.0.1:{h1.port}", Dialler(ca_file=ca_file))
            await echo(transport)
            assert transport.name == "http1"
            await transport.aclose()
    async with http1_site(Http1Script(), tls(authority, "h2", "http/1.1")) as h1:
        transport = open_transport(f"https://127.0.0.1:{h1.port}", Dialler(ca_file=ca_file), mode="http1")
        await echo(transport)  # the mode offers HTTP/1.1 only, so the server cannot choose the other
        await transport.aclose()
