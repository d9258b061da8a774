"""Unary calls over HTTP/2, and what happens while a connection is opened: nobody there, TLS."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
from h2.errors import ErrorCodes

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.dial import Dialler
from caretway.cursor.transport.h2_connection import NotHttp2
from caretway.cursor.transport.h2_transport import H2Transport
from caretway.cursor.transport.ports import MIB, NewRun, TransportLimits, UnaryResponse

from .h2_client import client
from .h2_peer import H2Site, PeerStream, Script, h2_site
from .listener import Listener, soon
from .raw_peer import raw_site

# -- unary calls -------------------------------------------------------------------------------------------------------


class Unary(Script):
    def on_end(self, stream: PeerStream) -> None:
        size = int(stream.headers.get("x-size", "0"))
        stream.head(201, "application/proto", x_got=str(len(stream.body)))
        stream.write(bytes(size) or bytes(stream.body), end=True)


async def test_calls_go_out_and_come_back_whole() -> None:
    async with h2_site(Unary()) as site, client(site) as transport:
        answer = await transport.call("POST", "/a/B", {"content-type": "application/proto"}, b"body")
        assert (answer.status, answer.headers["x-got"], answer.body) == (201, "4", b"body")
        assert site.streams[0].headers["content-length"] == "4"
        large = await transport.call("POST", "/a/B", {}, bytes(2 * MIB))
        assert large.body == bytes(2 * MIB)
        assert (await transport.call("GET", "/v1/models", {})).headers["x-got"] == "0"
        assert len(site.connections) == 1


async def test_a_call_is_bounded_in_size_and_time() -> None:
    class Mute(Script):
        def on_end(self, stream: PeerStream) -> None: ...

    async with h2_site(Unary()) as site, client(site, TransportLimits(max_call_bytes=1000)) as transport:
        with pytest.raises(GatewayError) as large:
            await transport.call("GET", "/x", {"x-size": "100000"})
        assert large.value.kind is ErrorKind.UPSTREAM_PROTOCOL
    async with h2_site(Mute()) as site, client(site, TransportLimits(call_timeout_s=0.05)) as transport:
        with pytest.raises(GatewayError) as late:
            await transport.call("GET", "/x", {})
        assert late.value.kind is ErrorKind.TIMEOUT
        await soon(lambda: site.streams[0].reset_code is not None)


async def test_a_call_on_a_connection_that_was_given_up_is_made_again() -> None:
    class GivesUp(Unary):
        count = 0

        def on_end(self, stream: PeerStream) -> None:
            GivesUp.count += 1
            if GivesUp.count == 2:
                stream.connection.transport.abort()
            elif GivesUp.count == 4:
                stream.reset(ErrorCodes.REFUSED_STREAM)
            else:
                super().on_end(stream)

    async with h2_site(GivesUp()) as site, client(site) as transport:
        for _ in range(3):
            assert (await transport.call("POST", "/x", {}, b"b")).body == b"b"
        assert (len(site.connections), GivesUp.count) == (2, 5)


async def test_a_header_that_cannot_be_sent_is_named_and_not_shown() -> None:
    async with h2_site(Unary()) as site, client(site) as transport:
        with pytest.raises(GatewayError) as broken:
            await transport.call("GET", "/x", {"authorization": "Bearer se\ncret"})
        assert "authorization" in broken.value.message
        assert "cret" not in str(broken.value)


# -- dialling ----------------------------------------------------------------------------------------------------------


async def test_waiting_runs_share_one_attempt_to_connect() -> None:
    async with h2_site(Script()) as site, client(site) as transport:
        await asyncio.gather(*(transport.open_run(NewRun(f"r{n}", {}), Listener()) for n in range(50)))
        assert len(site.connections) == 1


async def test_a_cancelled_waiter_does_not_take_the_attempt_with_it() -> None:
    async with h2_site(Script()) as site, client(site) as transport, asyncio.TaskGroup() as group:
        first = group.create_task(transport.open_run(NewRun("1", {}), Listener()))
        second = group.create_task(transport.open_run(NewRun("2", {}), Listener()))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert len(site.connections) == 1


async def test_nobody_there() -> None:
    async with h2_site(Script()) as site:
        port = site.port
    for url, words in [
        (f"http://127.0.0.1:{port}", f"cannot connect to 127.0.0.1:{port}"),
        ("http://nowhere.invalid", "cannot connect to nowhere.invalid:80: the name cannot be resolved"),
    ]:
        transport = H2Transport(Dialler().dial(url))
        results = await asyncio.gather(
            *(transport.open_run(NewRun("r", {}), Listener()) for _ in range(3)), return_exceptions=True
        )
        for result in results:
            assert isinstance(result, GatewayError)
            assert result.kind is ErrorKind.UPSTREAM_DOWN
            assert words in result.message
        await transport.aclose()


async def test_a_peer_that_accepts_and_says_nothing() -> None:
    async with raw_site() as site:
        transport = H2Transport(Dialler().dial(site.url), limits=TransportLimits(ready_timeout_s=0.05))
        with pytest.raises(GatewayError) as silent:
            await transport.open_run(NewRun("r", {}), Listener())
        assert not isinstance(silent.value, NotHttp2)
        assert "HTTP/2 greeting" in silent.value.message
        await transport.aclose()


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, name: str, *alpn: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    context.set_alpn_protocols(list(alpn))
    return context


async def call_over_tls(site: H2Site, ca_file: str | None, host: str = "127.0.0.1") -> UnaryResponse:
    transport = H2Transport(Dialler(ca_file=ca_file).dial(f"https://{host}:{site.port}"))
    try:
        return await transport.call("POST", "/x", {}, b"over tls")
    finally:
        await transport.aclose()


async def test_a_trusted_certificate(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca_file)
    async with h2_site(Unary(), server_tls(authority, "127.0.0.1", "h2")) as site:
        assert (await call_over_tls(site, ca_file)).body == b"over tls"
        assert site.streams[0].headers[":scheme"] == "https"
        transport = H2Transport(Dialler(ca_file=ca_file).dial(f"https://127.0.0.1:{site.port}"))
        await echo_large(transport)
        await transport.aclose()


async def echo_large(transport: H2Transport) -> None:
    answer = await transport.call("POST", "/x", {}, bytes(2 * MIB))
    assert answer.body == bytes(2 * MIB)


async def test_an_untrusted_certificate(authority: trustme.CA, tmp_path: Path) -> None:
    wrong = str(tmp_path / "wrong.pem")
    trustme.CA().cert_pem.write_to_path(wrong)
    right = str(tmp_path / "right.pem")
    authority.cert_pem.write_to_path(right)
    async with h2_site(Unary(), server_tls(authority, "example.org", "h2")) as site:
        for ca_file in (None, wrong, right):  # the last one is trusted, for another name
            with pytest.raises(GatewayError) as untrusted:
                await call_over_tls(site, ca_file)
            assert untrusted.value.kind is ErrorKind.UPSTREAM_DOWN
            assert "the certificate of 127.0.0.1 is not trusted: " in untrusted.value.message
            assert "--agent-ca" in untrusted.value.hint
        assert site.streams == []


async def test_tls_without_http2_is_not_http2(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca_file)
    async with h2_site(Unary(), server_tls(authority, "127.0.0.1", "http/1.1")) as site:
        with pytest.raises(NotHttp2):
            await call_over_tls(site, ca_file)


async def test_a_broken_handshake_is_no_riddle() -> None:
    async with h2_site(Unary()) as site:
        with pytest.raises(GatewayError) as broken:
            await call_over_tls(site, None)
        assert broken.value.kind is ErrorKind.UPSTREAM_DOWN
        assert f"cannot connect to 127.0.0.1:{site.port}" in broken.value.message
