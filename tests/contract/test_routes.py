"""Paths over real sockets: what is served however it is spelled, and what every other method and path is told."""

import asyncio

import msgspec
import pytest

from caretway.api.routes import paths_of, route_table
from caretway.dialects.registry import dialects
from contract.gateways import CHAT, Client, gateway
from contract.raw_http import address, post, read_answer, say
from contract.test_security import HELLO, KEY

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
TURNS = ("/chat/completions", "/messages", "/responses")
SPELLINGS = ("{}", "/v1{}", "/v1/v1{}", "//v1{}", "/v1/{}", "/v1{}/", "/v1{}?beta=true")
UPGRADE = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
UPGRADE += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"


@pytest.fixture
def transport() -> str:
    return "h2"


def ask(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost:7", "Connection: close", "Content-Length: 0", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.seed("B34")
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("path", TURNS)
async def test_a_turn_is_served_however_its_path_is_spelled(client: Client, path: str, spelling: str) -> None:
    body = HELLO | {"max_tokens": 9} | ({"input": "sim: say hello"} if path == "/responses" else {})
    answer = await say(client, post(msgspec.json.encode(body), path=spelling.format(path)))
    assert answer.status == 200
    assert b"hello" in answer.body


async def test_every_path_and_every_method(client: Client) -> None:
    """In the table: it is answered by its handler. Elsewhere: 405, which names what is in the table."""
    for row in route_table(dialects()).routes:
        for path in paths_of(row):
            path = path.replace("{id:path}", "sim-auto").replace("{id}", "resp_1")
            for method in METHODS:
                answer = await say(client, ask(method, path))
                where = (method, path, answer.status)
                assert (answer.status == 405) == (method not in row.allow), where
                assert answer.status < 500, where
                allow = f"\r\nallow: {', '.join(row.allow).lower()}\r\n".encode()
                assert (allow in answer.head) == (answer.status == 405 or method == "OPTIONS"), where
                if method == "OPTIONS":
                    assert (answer.status, answer.body) == (204, b"")
                if method == "HEAD":
                    assert answer.body == b""


async def test_the_index_is_where_a_base_url_points(client: Client) -> None:
    for path in ("/", "/v1", "/v1/"):
        index = (await client.http.get(path)).json()
        assert index["name"] == "caretway"
        assert {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/metrics"} <= set(index["see"])


async def test_a_wrong_path_is_told_what_to_type(client: Client) -> None:
    answer = await say(client, ask("GET", "/nothing"))
    assert answer.status == 404
    assert "http://localhost:7/v1 for OpenAI" in answer.error["message"]
    answer = await say(client, ask("POST", "/v1/embeddings"))
    assert answer.error["message"].startswith(
        "No route for POST /v1/embeddings. Embeddings are not served: Cursor has none."
    )
    answer = await say(client, ask("POST", "/messages/batches"))
    assert msgspec.json.decode(answer.body)["type"] == "error", "in Anthropic's words"


@pytest.mark.parametrize("path", [b"/v1/responses", b"/responses"])
async def test_an_older_websocket_is_refused_and_the_connection_goes_on(client: Client, path: bytes) -> None:
    """RFC 6455: a 426 says which version is spoken. Codex then uses HTTP, at once."""
    reader, writer = await asyncio.open_connection(*address(client))
    try:
        writer.write((UPGRADE % path).replace(b"Version: 13", b"Version: 8"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
        assert b"\r\nsec-websocket-version: 13\r\n" in head
        assert b"\r\nupgrade: websocket\r\n" in head
        assert b"\r\nconnection: Upgrade\r\n" in head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        error = msgspec.json.decode(await reader.readexactly(length))["error"]
        assert (error["status"], error["code"]) == (426, "websocket_version")
        body = {"model": "sim-auto", "input": "sim: say hello"}
        writer.write(post(msgspec.json.encode(body), path="/v1/responses"))
        assert read_answer(await reader.read()).status == 200
    finally:
        writer.close()


async def test_a_key_is_asked_for_before_anything_is_told() -> None:
    async with gateway(gateway_key=KEY) as client:
        for method, path in (
            ("GET", "/nope"),
            ("PUT", CHAT),
            ("OPTIONS", CHAT),
            ("GET", "/v1"),
            ("GET", "//healthz/x"),
        ):
            assert (await say(client, ask(method, path))).status == 401, path
        assert (await say(client, UPGRADE % b"/v1/responses" + ask("GET", "/"))).status == 401
        for path in ("/healthz", "//healthz", "/healthz/"):
            assert (await say(client, ask("GET", path))).status == 200, "the same row, the same rule"
        for path in ("/", "/v1", "//v1/v1/"):
            assert (await say(client, ask("HEAD", path))).status == 200
