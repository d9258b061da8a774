"""Attacks, with real bytes on real sockets, each while somebody else's stream goes on undisturbed."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from caretway.config import ConfigError, Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.gateway import Gateway
from contract.gateways import CHAT, Client, gateway
from contract.raw_http import RawAnswer, address, bystander, post, read_answer, say

MESSAGES: Final = "/v1/messages"
KEY: Final = "cw-the-gateways-own-key"
OTHER: Final = "cw-somebody-elses-own-key"
HELLO: Final[dict[str, Any]] = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: say hello"}]}


@pytest.fixture
async def open_gateway() -> AsyncIterator[Client]:
    """A gateway without a key, and with little patience."""
    async with gateway(
        header_timeout=0.3,
        body_idle_timeout=0.3,
        drain_timeout=0.3,
        body_timeout=1.0,
        send_timeout=0.5,
        disconnect_grace=0,
    ) as client:
        yield client


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Client]:
    keys = tmp_path / "keys"
    keys.write_text(f"# the keys\n{KEY}\n\n{OTHER}\n")
    async with gateway(
        api_key_file=keys,
        max_concurrent_per_key=2,
        max_requests_per_minute=40,
        allowed_hosts=["box.example"],
        allowed_origins=["https://app.example"],
    ) as client:
        yield client


# ---- malformed HTTP

_GET: Final = b"GET /health HTTP/1.1\r\nHost: a\r\n"
_POST: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED: Final = _POST + b"Transfer-Encoding: chunked\r\n"
SHAPES: Final = {
    "two content lengths": _POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "two that differ": _POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a list of lengths": _POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": _POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": _POST + b"Content-Length: -3\r\n\r\nabc",
    "a hexadecimal length": _POST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length beyond 64 bits": _POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "a length of five thousand digits": _POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nabc",
    "a length in other digits": _POST + b"Content-Length: \xb2\r\n\r\nabc",
    "length and chunks": _POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": _CHUNKED + b"Content-Length: 3\r\n\r\n0\r\n\r\n",
    "chunked twice": _CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": _POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": _POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "xchunked": _POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "space before the colon": _POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size that is none": _CHUNKED + b"\r\nzz\r\nabc\r\n0\r\n\r\n",
    "a prefixed chunk size": _CHUNKED + b"\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk beyond 64 bits": _CHUNKED + b"\r\nffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than said": _CHUNKED + b"\r\n2\r\nabc\r\n0\r\n\r\n",
    "chunks with bare line feeds": _CHUNKED + b"\r\n3\nabc\n0\n\n",
    "a folded header": _GET + b"X-A: 1\r\n 2\r\n\r\n",
    "a folded first header": b"GET /health HTTP/1.1\r\n Host: a\r\n\r\n",
    "bare line feeds": b"GET /health HTTP/1.1\nHost: a\n\n",
    "one bare line feed": _GET + b"X-A: 1\nX-B: 2\r\n\r\n",
    "a bare carriage return": _GET + b"X-A: 1\rX-B: 2\r\n\r\n",
    "NUL in a value": _GET + b"X-A: a\x00b\r\n\r\n",
    "NUL in a name": _GET + b"X-\x00A: b\r\n\r\n",
    "NUL in the path": b"GET /hea\x00lth HTTP/1.1\r\nHost: a\r\n\r\n",
    "a header without a name": _GET + b": b\r\n\r\n",
    "a header without a colon": _GET + b"nonsense\r\n\r\n",
    "two hosts": _GET + b"Host: b\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "another host in the request line": b"GET http://evil.example/health HTTP/1.1\r\nHost: a\r\n\r\n",
    "two keys": _GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two origins": _GET + b"Origin: http://a\r\nOrigin: http://b\r\n\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/2.0 in words": b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT": b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
    "an unknown method": b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS to a plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


async def test_malformed_http_is_refused_and_the_connection_closed(open_gateway: Client) -> None:
    smuggled = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with bystander(open_gateway):
        answers = await asyncio.gather(*(say(open_gateway, shape + smuggled) for shape in SHAPES.values()))
    for name, answer in zip(SHAPES, answers, strict=True):
        assert (answer.status, answer.answers) == (400, 1), name
        assert answer.error["code"] == ("tls_on_plain_port" if name == "TLS to a plain port" else "invalid_http"), name
        assert answer.error["status"] == 400, name
        assert b"connection: close" in answer.head, name
    assert open_gateway.stats()["runs_opened"] == 1  # the bystander's


async def test_refusals_use_the_words_of_the_route(open_gateway: Client) -> None:
    shape = SHAPES["two content lengths"].replace(CHAT.encode(), MESSAGES.encode())
    answer = await say(open_gateway, shape)
    body = msgspec.json.decode(answer.body)
    assert (answer.status, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    assert body["error"]["details"]["error_code"] == "invalid_http"


async def test_a_second_request_behind_a_running_one_is_not_served(open_gateway: Client) -> None:
    first = msgspec.json.encode(HELLO)
    two = post(first).replace(b"Connection: close\r\n", b"") + post(first)
    async with bystander(open_gateway):
        answer = await say(open_gateway, two)
    assert (answer.status, answer.answers) == (200, 1)
    assert open_gateway.stats()["runs_opened"] == 2


async def test_rubbish_behind_a_request_does_not_get_into_its_answer(open_gateway: Client) -> None:
    answer = await say(open_gateway, post(msgspec.json.encode(HELLO | {"stream": True})) + b"\x00rubbish\r\n\r\n")
    assert answer.answers <= 1
    assert b"hello" in answer.body or answer.status in (0, 400)


async def test_a_wish_for_another_protocol_is_answered_in_this_one(open_gateway: Client) -> None:
    """Java's client asks for HTTP/2 in this way, with the body of its request behind the head."""
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")
    whole = post(msgspec.json.encode(HELLO), *upgrade).replace(b"Connection: close\r\n", b"")
    whole = whole.replace(b"Connection: Upgrade,", b"Connection: close, Upgrade,")
    for pieces in ([whole], [whole[at : at + 7] for at in range(0, len(whole), 7)]):
        answer = await say(open_gateway, pieces)
        assert (answer.status, answer.answers) == (200, 1)
        assert msgspec.json.decode(answer.body)["choices"][0]["message"]["content"] == "hello"
    socket = _GET.replace(b"Host: a", b"Host: localhost") + b"Connection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert (await say(open_gateway, socket)).status == 200


async def test_a_trailer_is_no_header(locked: Client) -> None:
    """A key behind the body would otherwise be believed, or not, by the luck of how the bytes arrive."""
    body = msgspec.json.encode(HELLO)
    head = b"\r\n".join([f"POST {CHAT} HTTP/1.1".encode(), b"Host: localhost", b"Connection: close"])
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    sent = (
        head
        + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunks
        + b"Authorization: Bearer "
        + KEY.encode()
        + b"\r\n\r\n"
    )
    answer = await say(locked, sent)
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


# ---- too much


def _flood(line: bytes, size: int = 4 << 20) -> Iterator[bytes]:
    yield _GET
    for _ in range(size // (len(line) * 500)):
        yield line * 500


FLOODS: Final = {
    "ten thousand headers": _GET + b"".join(b"X-%d: 1\r\n" % at for at in range(10_000)) + b"\r\n",
    "two hundred small headers": _GET + b"X: 1\r\n" * 200 + b"\r\n",
    "one large header": _GET + b"X-A: " + b"a" * 200_000 + b"\r\n\r\n",
    "a long path": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
}


async def test_heads_without_an_end(open_gateway: Client) -> None:
    endless = [_flood(b"X-A: 1\r\n"), _flood(b"aaaaaaaa"), (b"GET /", *(b"a" * 4096 for _ in range(1000)))]
    trailers = (_CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX-A: ", *(b"a" * 4096 for _ in range(1000)))
    async with bystander(open_gateway):
        answers = await asyncio.gather(
            *(say(open_gateway, flood) for flood in FLOODS.values()), *(say(open_gateway, flood) for flood in endless)
        )
        late = await say(open_gateway, trailers)
    for answer in answers:
        assert answer.status == 431
        assert answer.error["code"] == "headers_too_large"
    assert (late.status, late.error["code"]) == (431, "headers_too_large")


async def test_a_body_of_50_mb() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b" " * 1_000_000

    length = {"content-length": "50000000"}
    async with gateway() as client, bystander(client):
        announced = await client.http.post(CHAT, content=pieces(), headers=length)
        chunked = await client.http.post(CHAT, content=pieces())
        anthropic = await client.http.post(MESSAGES, content=pieces(), headers=length)
        for answer in (announced, chunked):
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
        assert (anthropic.status_code, anthropic.json()["error"]["type"]) == (413, "request_too_large")
        assert (await client.chat("sim: say still here")).text == "still here"


async def test_all_bodies_together() -> None:
    async with gateway(max_body_bytes=100_000, max_buffered_bytes=150_000) as client:
        waiting = [await asyncio.open_connection(*address(client)) for _ in range(2)]
        try:
            for _, writer in waiting:
                writer.write(post(b" " * 70_000, length=80_000))
                await writer.drain()
            answer = await client.http.post(CHAT, content=b" " * 90_000)
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
            assert answer.headers["retry-after"]
        finally:
            for _, writer in waiting:
                writer.close()


def _nested(levels: int) -> bytes:
    inside = b"[" * levels + b"]" * levels
    return b'{"model":"sim-auto","messages":[{"role":"user","content":"x"}],"metadata":{"a":' + inside + b"}}"


USER: Final = {"role": "user", "content": "x"}
BODIES: Final[dict[str, tuple[bytes, int, str]]] = {
    "10 000 levels": (_nested(10_000), 400, "invalid_json"),
    "10 000 levels that never end": (b"[" * 10_000, 400, "invalid_json"),
    "objects, 10 000 levels": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400, "invalid_json"),
    "a few more than allowed": (_nested(80), 400, "invalid_json"),
    "25 000 messages": (
        msgspec.json.encode({"model": "sim-auto", "messages": [USER] * 25_000}),
        413,
        "too_many_messages",
    ),
    "100 000 messages": (
        msgspec.json.encode({"model": "sim-auto", "messages": [USER] * 100_000}),
        413,
        "too_many_values",
    ),
    "a lone surrogate": (b'{"messages":[{"role":"user","content":"\\ud800 x"}]}', 400, "invalid_json"),
    "bytes of a surrogate": (b'{"messages":[{"role":"user","content":"\xed\xa0\x80"}]}', 400, "invalid_json"),
    "a number without end": (b'{"model":"sim-auto","messages":[],"n":' + b"9" * 5000 + b"}", 400, "invalid_json"),
    "a NUL between tokens": (b'{"model":\x00"sim-auto"}', 400, "invalid_json"),
}  # fmt: skip


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/responses", "/v1/messages/count_tokens"])
async def test_json_that_is_too_much(open_gateway: Client, path: str) -> None:
    async with bystander(open_gateway):
        for name, (body, status, code) in BODIES.items():
            sent = body.replace(b'"messages":', b'"input":', 1) if path == "/v1/responses" else body
            answer = await open_gateway.http.post(path, content=sent)
            error = answer.json()["error"]
            assert answer.status_code == status, name
            assert (error["details"]["error_code"] if "details" in error else error["code"]) == code, name


async def test_arguments_that_are_nested_too_deeply(open_gateway: Client) -> None:
    function = {"name": "read", "arguments": "[" * 200_000 + "]" * 200_000}
    call = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}
    async with bystander(open_gateway):
        answer = await open_gateway.chat([USER, call, {"role": "tool", "tool_call_id": "a", "content": "x"}, USER])
    assert answer.error is not None
    assert (answer.status, answer.error["code"]) == (400, "invalid_value")
    assert answer.error["param"] == "messages[1].tool_calls[0].function.arguments"


async def test_a_nul_in_a_text_is_a_character(open_gateway: Client) -> None:
    answer = await open_gateway.chat([{"role": "user", "content": "sim: say a\x00b"}])
    assert (answer.status, answer.text) == (200, "a\x00b")


# ---- too slow


async def test_slow_heads_and_bodies(open_gateway: Client) -> None:
    body = msgspec.json.encode(HELLO)
    slow_head = (bytes([byte]) for byte in post(body))
    never = (post(b"", length=100), b"{")
    drip = (post(b"", length=100_000), *(b" " for _ in range(100_000)))
    anthropic = (post(b"", length=100, path=MESSAGES), b"{")
    line_feeds = (b"\r\n" for _ in range(10_000))
    async with bystander(open_gateway):
        answers = await asyncio.gather(
            say(open_gateway, slow_head, 0.05),
            say(open_gateway, never),
            say(open_gateway, drip, 0.05),
            say(open_gateway, anthropic),
            say(open_gateway, line_feeds, 0.05),
        )
        silent = await say(open_gateway, b"")
    assert [answer.status for answer in answers] == [408] * 5
    assert [answer.error.get("code") for answer in answers[:3]] == ["request_timeout"] * 3
    assert answers[3].error["details"]["error_code"] == "request_timeout"
    assert silent.status == 0  # it said nothing, and is told nothing


async def test_a_client_that_never_reads(open_gateway: Client) -> None:
    flood = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: stream 4000 4000"}]}
    async with bystander(open_gateway):  # first: a connection that says nothing for 0.3 s is closed
        reader, writer = await asyncio.open_connection(*address(open_gateway), limit=1)
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's reader has no public way to stop
        writer.write(post(msgspec.json.encode(flood)))
        await writer.drain()
        async with asyncio.timeout(30):
            while open_gateway.gateway.tenants.live < 2:
                await asyncio.sleep(0.01)
            while open_gateway.gateway.tenants.live > 1:  # given up; the bystander's is the other one
                await asyncio.sleep(0.01)
    writer.transport.abort()


async def test_one_response_may_not_last_for_ever() -> None:
    async with gateway(response_timeout=0.3, disconnect_grace=0) as client:
        whole = await client.chat("sim: hang")
        assert whole.error is not None
        assert (whole.status, whole.error["code"]) == (504, "upstream_timeout")
        cut = await client.chat("sim: say begun\nsim: hang", stream=True)
        assert cut.text.startswith("begun")
        assert cut.error is not None
        assert cut.error["code"] == "upstream_timeout"


async def test_connections_are_counted() -> None:
    async with gateway(max_connections=3) as client:
        idle = [await asyncio.open_connection(*address(client)) for _ in range(3)]
        answer = await say(client, b"")
        assert (answer.status, answer.error["code"]) == (429, "overloaded")
        for _, writer in idle:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(10):
            while (await say(client, _GET + b"Connection: close\r\n\r\n")).status == 429:
                await asyncio.sleep(0.01)


# ---- strangers


async def _statuses(client: Client, headers: Mapping[str, str] | Mapping[bytes, bytes]) -> list[int]:
    return [
        (await client.http.request(method, path, headers=headers, json=body)).status_code
        for method, path, body in [
            ("GET", "/health", None),
            ("GET", "/v1/models", None),
            ("GET", "/openapi.json", None),
            ("GET", "/metrics", None),
            ("GET", "/nope", None),
            ("POST", CHAT, HELLO),
            ("POST", MESSAGES, HELLO | {"max_tokens": 9}),
            ("POST", "/v1/messages/count_tokens", HELLO),
            ("GET", "/v1/responses/resp_1", None),
        ]
    ]


WRONG_KEYS: Final[list[dict[str, str]]] = [
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": f"Bearer {KEY}x"},
    {"authorization": f"Bearer {KEY[:-1]}"},
    {"authorization": f"Basic {KEY}"},
    {"authorization": KEY},
    {"authorization": "Bearer"},
    {"x-api-key": ""},
    {"x-api-key": "\u00e9" * 20},
    {"x-api-key": KEY.upper()},
    {"cookie": f"key={KEY}"},
]


async def test_without_the_key_there_is_nothing(locked: Client) -> None:
    async with bystander(locked, authorization=f"Bearer {KEY}"):
        for headers in WRONG_KEYS:
            encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
            assert set(await _statuses(locked, encoded)) == {401}, headers
        openai = await locked.http.post(CHAT, json=HELLO)
        anthropic = await locked.http.post(MESSAGES, json=HELLO)
        assert (await locked.http.head("/")).status_code == 200  # a sign of life, and no more
        assert (await locked.http.get("/")).status_code == 401
    assert openai.json()["error"]["code"] == "invalid_api_key"
    assert openai.headers["x-should-retry"] == "false"
    assert anthropic.json()["error"]["type"] == "authentication_error"
    assert (await locked.http.get(f"/health?key={KEY}")).status_code == 401
    assert locked.stats()["runs_opened"] == 1


@pytest.mark.parametrize("key", [KEY, OTHER])
@pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-caretway-key"])
async def test_with_the_key_all_is_open(locked: Client, header: str, key: str) -> None:
    headers = {header: f"Bearer {key}" if header == "authorization" else key}
    assert await _statuses(locked, headers) == [200, 200, 200, 200, 404, 200, 200, 200, 404]


async def test_one_key_cannot_take_what_belongs_to_another(locked: Client) -> None:
    mine, theirs = {"authorization": f"Bearer {KEY}"}, {"x-api-key": OTHER}
    async with bystander(locked, **mine), bystander(locked, **mine):
        refused = await locked.http.post(MESSAGES, json=HELLO | {"max_tokens": 9}, headers=mine)
        served = await locked.http.post(CHAT, json=HELLO, headers=theirs)
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert refused.json()["error"]["details"]["error_code"] == "too_many_concurrent_requests"
    assert (served.status_code, refused.headers["retry-after"]) == (200, "1")
    for _ in range(60):
        answer = await locked.http.get("/health", headers=mine)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_requests")
    assert int(answer.headers["retry-after"]) >= 1
    assert (await locked.http.get("/health", headers=theirs)).status_code == 200


FOREIGN_HOSTS: Final = [
    "evil.example",
    "evil.example:80",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "a b",
    "",
]
KNOWN_HOSTS: Final = [
    "localhost",
    "LOCALHOST:1",
    "127.0.0.1",
    "[::1]:32124",
    "192.168.1.9:80",
    "box.example",
    "a.localhost",
]


async def test_names_that_are_not_ours(locked: Client) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    async with bystander(locked, **key):
        for host in FOREIGN_HOSTS:
            answer = await say(locked, f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert (answer.status, answer.error["code"]) == (403, "host_not_allowed"), host
        for host in KNOWN_HOSTS:
            served = await locked.http.get("/health", headers=key | {"host": host})
            assert served.status_code == 200, host


FOREIGN_PAGES: Final[list[dict[str, str]]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"origin": "https://app.example.evil.example"},
    {"origin": "http://app.example"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
]


async def test_web_pages_that_nobody_asked_for(locked: Client) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    simple = {"content-type": "text/plain"}  # what a page may send without asking first
    async with bystander(locked, **key):
        for page in FOREIGN_PAGES:
            answer = await locked.http.post(CHAT, content=msgspec.json.encode(HELLO), headers=key | simple | page)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed"), page
            assert "access-control-allow-origin" not in answer.headers
            if "origin" in page:
                asked = await locked.http.options(CHAT, headers=page | {"access-control-request-method": "POST"})
                assert asked.status_code == 403, page
                assert "access-control-allow-origin" not in asked.headers
    assert locked.stats()["runs_opened"] == 1


@pytest.mark.seed("B33")
async def test_a_web_page_that_was_configured(locked: Client) -> None:
    page, key = {"origin": "https://app.example"}, {"authorization": f"Bearer {KEY}"}
    wish = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    asked = await locked.http.options(CHAT, headers=page | wish | {"access-control-request-private-network": "true"})
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == "https://app.example"
    assert asked.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert asked.headers["access-control-allow-private-network"] == "true"
    for answer in (
        await locked.http.post(CHAT, json=HELLO, headers=page | key),
        await locked.http.post(CHAT, json=HELLO | {"stream": True}, headers=page | key),
        await locked.http.post(CHAT, json={}, headers=page | key),
    ):
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert answer.headers["vary"] == "origin"
    refused = await locked.http.post(CHAT, json=HELLO, headers=page)
    assert refused.status_code == 401  # a page needs the key like everybody else


async def test_its_own_pages_and_links_from_others(locked: Client) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    own = await locked.http.get("/health", headers=key | {"origin": locked.gateway.base_url})
    link = await locked.http.get(
        "/health", headers=key | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    )
    assert (own.status_code, link.status_code) == (200, 200)


# ---- paths


TRAVERSALS: Final = ["..", "../../etc", "/etc", "/", "sub/../../..", "~", "link", "//etc", "file:///etc"]


async def test_workspaces_outside_of_what_is_allowed(tmp_path: Path) -> None:
    workspace, secret = tmp_path / "work", tmp_path / "secret"
    (workspace / "sub").mkdir(parents=True)
    secret.mkdir()
    (secret / "passwords").write_text("hunter2")
    (workspace / "link").symlink_to(secret)
    ask = [{"role": "user", "content": 'sim: exec read {"path": "passwords"}\nsim: result'}]
    async with gateway(workspace=workspace) as client, bystander(client):
        for wish in TRAVERSALS:
            answer = await client.chat(ask, headers={"x-caretway-workspace": wish})
            assert answer.status in (400, 403), wish
            assert answer.error is not None
            assert answer.error["param"] == "x-caretway-workspace", wish
        inside = await client.chat(ask, headers={"x-caretway-workspace": "sub"})
        assert inside.status == 200
        for path in ("../secret/passwords", "link/passwords", str(secret / "passwords")):
            read = await client.chat(f'sim: exec read {{"path": "{path}"}}\nsim: result')
            assert "hunter2" not in read.text


async def test_paths_of_urls(open_gateway: Client) -> None:
    async with bystander(open_gateway):
        for path in (
            "/v1/models/..%2f..%2fetc%2fpasswd",
            "/../../etc/passwd",
            "/v1/../health/..%00",
            "/v1/models/%00",
            "/v1/responses/%2e%2e%2f",
            "/%ff%fe",
            "//evil.example/health",
        ):
            answer = await say(
                open_gateway, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            assert answer.status in (400, 404), path
            assert answer.error["message"]


# ---- before it starts


@pytest.mark.seed("M05")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example"])
async def test_it_does_not_listen_for_strangers_without_a_key(host: str, tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as refused:
        await Gateway(Settings(host=host, port=0, backend="simulator", data_dir=tmp_path)).__aenter__()
    assert refused.value.kind is ErrorKind.ACCESS_DENIED
    assert "caretway key new" in refused.value.hint


@pytest.mark.parametrize(
    "text", ["", "# only a remark\n", "short\n", "with a space in it\n", "gr\u00fc\u00dfe-aus-der-ferne\n"]
)
async def test_a_key_file_that_protects_nothing(text: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        await Gateway(Settings(port=0, backend="simulator", data_dir=tmp_path, api_key_file=file)).__aenter__()
    assert text.strip() == "" or text.strip() not in str(refused.value)


async def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import ssl

    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(tmp_path / "cert.pem", append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    with pytest.raises(ConfigError):
        await Gateway(Settings(port=0, data_dir=tmp_path, tls_cert=cert)).__aenter__()
    async with gateway(tls_cert=cert, tls_key=key, header_timeout=0.3, gateway_key=KEY) as client:
        assert client.gateway.base_url.startswith("https://")
        for method in (b"GET", b"POST", b"HEAD"):
            plain: RawAnswer = await say(client, _GET.replace(b"GET", method) + b"\r\n")
            assert plain.status == 400
            assert plain.error["code"] == "plain_on_tls_port"
        assert "https:// instead of http://" in caplog.text
        rubbish = await say(client, b"\x00\x01rubbish that is neither\r\n\r\n")
        assert rubbish.status == 0
        async with httpx.AsyncClient(
            base_url=client.gateway.base_url, verify=context, trust_env=False, headers={"x-api-key": KEY}
        ) as http:
            client.http = http
            async with bystander(client):
                assert (await client.chat("sim: say safe")).text == "safe"


async def test_a_body_that_is_not_here_takes_no_place(tmp_path: Path) -> None:
    """Many uploads that never end leave the answers to others, with a key and without."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    for settings in ({"max_concurrent": 4}, {"api_key_file": keys, "max_concurrent_per_key": 4}):
        async with gateway(**settings) as client:
            key = f"Authorization: Bearer {KEY}".encode()
            waiting = [await asyncio.open_connection(*address(client)) for _ in range(8)]
            try:
                for _, writer in waiting:
                    writer.write(post(b"{", key, length=1000))
                    await writer.drain()
                headers = {"authorization": f"Bearer {KEY}"}
                for _ in range(3):
                    assert (await client.chat("sim: say hello", headers=headers)).text == "hello"
            finally:
                for _, writer in waiting:
                    writer.close()


async def test_answers_that_are_made_take_a_place() -> None:
    """Also when the place was free as the head came, and is not when the body is there."""
    async with gateway(max_concurrent=1, disconnect_grace=0) as client:
        _, writer = await asyncio.open_connection(*address(client))
        body = msgspec.json.encode(HELLO)
        whole = post(body, b"X-Request-Id: late")
        reader, late = await asyncio.open_connection(*address(client))
        late.write(whole[:-5])
        await late.drain()
        hang = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: hang"}]}
        writer.write(post(msgspec.json.encode(hang)))
        await writer.drain()
        async with asyncio.timeout(10):
            while client.gateway.tenants.live < 1:
                await asyncio.sleep(0.01)
        late.write(whole[-5:])
        answer = read_answer(await reader.read())
        assert (answer.status, answer.error["code"]) == (429, "overloaded")
        writer.close()
        late.close()
