"""CONNECT and SOCKS5 without a socket: what is said, what the answers mean, and that no split of them matters."""

import pytest
from msgspec.structs import replace

from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.connect_tunnel import MAX_ANSWER_BYTES
from caretway.cursor.transport.proxies import Proxy
from caretway.cursor.transport.tunnels import Tunnel, tunnel_to

HTTP = Proxy("http", "p", 3128, "HTTPS_PROXY")
SOCKS = Proxy("socks5h", "p", 1080, "ALL_PROXY")
KNOWN = replace(SOCKS, user="me", password="secret")
NAME = b"\x05\x01\x00\x03\x06cursor\x01\xbb"
OPEN = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
DEEP = b"\x05\x00\x00\x03\x04name\x00\x01"
SIXTEEN = b"\x05\x00\x00\x04" + bytes(18)


def talk(tunnel: Tunnel, *answers: bytes, split: int = 0) -> list[bytes]:
    """What was said in turn. Every answer comes in two pieces, if it is to be split."""
    told = [tunnel.begin()]
    for answer in answers:
        pieces = [answer[:split], answer[split:]] if split else [answer]
        told.append(b"".join(tunnel.feed(piece) for piece in pieces if piece))
    return told


@pytest.mark.parametrize("split", [0, 1, 5, 20])
def test_connect(split: int) -> None:
    tunnel = tunnel_to(HTTP, "cursor", 443)
    answer = b"HTTP/1.1 200 Connection established\r\nContent-Length: 7\r\nVia: x\r\n\r\nthe far end"
    told = talk(tunnel, answer, split=split)
    assert told[0] == b"CONNECT cursor:443 HTTP/1.1\r\nhost: cursor:443\r\n\r\n"
    assert tunnel.open and tunnel.rest == b"the far end"


def test_connect_to_an_address_with_colons_and_a_password() -> None:
    told = tunnel_to(replace(HTTP, user="me", password="sé:cret"), "::1", 443).begin()
    assert told.startswith(b"CONNECT [::1]:443 HTTP/1.1\r\n")
    assert b"proxy-authorization: Basic bWU6c8OpOmNyZXQ=\r\n" in told


def test_an_interim_answer_is_none() -> None:
    tunnel = tunnel_to(HTTP, "cursor", 443)
    talk(tunnel, b"HTTP/1.1 100 Wait\r\n\r\n")
    assert not tunnel.open
    tunnel.feed(b"HTTP/1.0 200 OK\r\n\r\n")
    assert tunnel.open and tunnel.rest == b""


HTTP_REFUSALS = [
    (b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\n\r\n", "proxy_password", "USER:PASSWORD@p:3128", False),
    (b"HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\n\r\n", "proxy_password", "(NTLM)", False),
    (b"HTTP/1.1 407 No\r\n\r\n", "proxy_password", "USER:PASSWORD@p:3128", False),
    (b"HTTP/1.1 403 Forbidden\r\n\r\n", "proxy_refused", "NO_PROXY=cursor", False),
    (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "proxy_refused", "HTTP 502 Bad Gateway", True),
    (b"SSH-2.0-OpenSSH_9\r\n", "proxy_unknown", "socks5h://p:3128", False),
    (b"\x05\xff", "proxy_unknown", "HTTPS_PROXY", False),
    (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * MAX_ANSWER_BYTES, "proxy_unknown", "HTTPS_PROXY", False),
]


@pytest.mark.parametrize(("answer", "code", "says", "again"), HTTP_REFUSALS)
def test_refusals_of_connect(answer: bytes, code: str, says: str, again: bool) -> None:
    with pytest.raises(GatewayError) as caught:
        talk(tunnel_to(HTTP, "cursor", 443), answer)
    error = caught.value
    assert (error.kind, error.code, error.may_repeat) == (ErrorKind.UPSTREAM_DOWN, code, again)
    assert says in str(error) and "p:3128" in error.message


@pytest.mark.parametrize("reply", [OPEN, DEEP, SIXTEEN])
def test_socks(reply: bytes) -> None:
    for split in range(len(reply) + 2):
        tunnel = tunnel_to(SOCKS, "cursor", 443)
        told = talk(tunnel, b"\x05\x00", reply + b"it", split=split)
        assert told == [b"\x05\x01\x00", NAME, b""]
        assert tunnel.open


def test_socks_with_a_password_all_at_once() -> None:
    tunnel = tunnel_to(KNOWN, "10.0.0.1", 80)
    assert talk(tunnel, b"\x05\x02", b"\x01\x00" + OPEN + b"more") == [
        b"\x05\x02\x00\x02",
        b"\x01\x02me\x06secret",
        b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50",
    ]
    assert tunnel.open and tunnel.rest == b"more"


SOCKS_ANSWERS = [
    (SOCKS, [b"\x05\xff"], "proxy_password", "wants a user", False),
    (KNOWN, [b"\x05\xff"], "proxy_password", "does not accept", False),
    (KNOWN, [b"\x05\x02", b"\x01\x01"], "proxy_password", "does not accept", False),
    (SOCKS, [b"\x05\x01"], "proxy_password", "method 1", False),
    (SOCKS, [b"\x05\x00", b"\x05\x02\x00\x01\x00"], "proxy_refused", "rules forbid", False),
    (SOCKS, [b"\x05\x00", b"\x05\x04\x00\x01\x00"], "proxy_refused", "name is not known", True),
    (SOCKS, [b"\x05\x00", b"\x05\x63\x00\x01\x00"], "proxy_refused", "code 99", True),
    (SOCKS, [b"\x05\x00", b"\x05\x00\x00\x09\x00"], "proxy_unknown", "SOCKS5", False),
    (SOCKS, [b"\x05\x00", b"\x04\x00\x00\x01\x00"], "proxy_unknown", "SOCKS5", False),
    (SOCKS, [b"HTTP/1.1 400 Bad Request"], "proxy_unknown", "http://p:1080", False),
]


@pytest.mark.parametrize(("proxy", "answers", "code", "says", "again"), SOCKS_ANSWERS)
def test_refusals_of_socks(proxy: Proxy, answers: list[bytes], code: str, says: str, again: bool) -> None:
    with pytest.raises(GatewayError) as caught:
        talk(tunnel_to(proxy, "cursor", 443), *answers)
    assert (caught.value.code, caught.value.may_repeat) == (code, again)
    assert says in str(caught.value) and "secret" not in str(caught.value)


def test_socks_takes_no_long_words() -> None:
    with pytest.raises(GatewayError, match="255 bytes"):
        tunnel_to(SOCKS, "x" * 256, 443)
    with pytest.raises(GatewayError, match="255 bytes"):
        talk(tunnel_to(replace(SOCKS, user="x" * 256), "x", 443), b"\x05\x02")
