"""Images named by URL: refused unless fetching is on, and then only what is an image, not too large, and allowed."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from contract.gateways import Client, gateway
from contract.test_chat import PIXEL


class Pictures(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {
            "/cat.png": (200, "image/png", PIXEL),
            "/page": (200, "text/html", b"<p>no picture</p>"),
            "/big.png": (200, "image/png", bytes(5000)),
        }
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", "/cat.png")
            self.end_headers()
            return
        status, kind, data = pages.get(self.path, (404, "text/plain", b""))
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def pictures() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def ask(client: Client, url: str) -> tuple[int, str]:
    content = [{"type": "text", "text": "sim: say seen"}, {"type": "image_url", "image_url": {"url": url}}]
    answer = await client.chat([{"role": "user", "content": content}])
    return answer.status, answer.text or str((answer.error or {})["message"])


async def test_fetched_when_switched_on(pictures: str) -> None:
    async with gateway(fetch_images="any", fetch_images_bytes=4096) as client:
        assert await ask(client, f"{pictures}/cat.png") == (200, "seen")
        assert await ask(client, f"{pictures}/moved") == (200, "seen")
        for path, why in [("/page", "text/html"), ("/gone", "404"), ("/big.png", "larger than")]:
            status, message = await ask(client, pictures + path)
            assert status == 400
            assert why in message
        answer = await client.http.post(
            "/v1/messages",
            json={
                "model": "sim-auto",
                "max_tokens": 10,
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "url", "url": f"{pictures}/cat.png"}},
                            {"type": "text", "text": "sim: say seen"},
                        ],
                    }
                ],
            },
        )
        assert answer.json()["content"][0]["text"] == "seen"


async def test_private_addresses_are_not_public(pictures: str) -> None:
    async with gateway(fetch_images="public") as client:
        status, message = await ask(client, f"{pictures}/cat.png")
        assert status == 400
        assert "public" in message
        inline = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
        assert await ask(client, inline) == (200, "seen")


async def _dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte now and then, never silent for long and never done: of the head, or of the body."""
    asked = await reader.readuntil(b"\r\n\r\n")
    if b"/body" in asked:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 1000\r\n\r\n")
    try:
        while not writer.is_closing():
            writer.write(b"H" if b"/body" not in asked else b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_the_limit_of_time_is_for_the_whole_image() -> None:
    server = await asyncio.start_server(_dripping, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, gateway(fetch_images="any", fetch_images_timeout=0.5) as client:
        async with asyncio.timeout(60):
            status, message = await ask(client, f"http://127.0.0.1:{port}/body")
            assert (status, "within 0.5 s" in message) == (400, True)
            status, _ = await ask(client, f"http://127.0.0.1:{port}/head")
            assert status == 400


async def _odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = await reader.readuntil(b"\r\n\r\n")
    name = asked.split()[1].decode()
    writer.write(ODD[name][0])
    writer.close()


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
ODD: dict[str, tuple[bytes, str]] = {
    "/chunked": (_OK + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(PIXEL), PIXEL), "seen"),
    "/until-the-end": (_OK + b"\r\n" + PIXEL, "seen"),
    "/cut": (_OK + b"Content-Length: 1000\r\n\r\n" + PIXEL, "too early"),
    "/silent": (b"", "too early"),
    "/no-http": (b"SSH-2.0-OpenSSH\r\n", "cannot be used"),
    "/long-head": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "too large"),
    "/loop": (b"HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n", "redirects"),
    "/elsewhere": (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "http or https"),
}


async def test_servers_of_all_sorts() -> None:
    server = await asyncio.start_server(_odd, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, gateway(fetch_images="any") as client:
        for path, (_, told) in ODD.items():
            _, message = await ask(client, f"http://127.0.0.1:{port}{path}")
            assert told in message, path
        for url in ("http://127.0.0.1:1/x", "http://127.0.0.1:99999/x", "http://", "http://a b/x", "http://[::1/x"):
            status, message = await ask(client, url)
            assert (status, "cannot be used" in message) == (400, True), url


async def test_refused_by_default(pictures: str) -> None:
    async with gateway() as client:
        status, message = await ask(client, f"{pictures}/cat.png")
        assert status == 400
        assert "--fetch-images" in message


def picture(size: int) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(PIXEL + bytes(size - len(PIXEL))).decode()
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.all  # 150 MB for ten copies of 15 MB
async def test_an_image_that_cursor_cannot_be_sent_is_refused_before_it_is_sent(client: Client) -> None:
    limit = (
        15 * 2**20
    )  # of which three quarters are an image: Cursor keeps it as base64, and hands it back to be stored
    words = {"type": "text", "text": "sim: say seen"}
    fits = await client.chat([{"role": "user", "content": [words, picture(limit * 3 // 4 - 300)]}])
    assert (fits.status, fits.text) == (200, "seen"), fits.error
    runs = client.stats()["runs_opened"]
    for images in ([picture(limit * 3 // 4)], [picture(limit * 3 // 8)] * 2):
        refused = await client.chat([{"role": "user", "content": [words, *images]}])
        assert refused.error is not None
        assert (refused.status, refused.error["code"]) == (413, "message_too_large")
        assert str(limit) in refused.error["message"] and str(limit + 13) in refused.error["message"]
    assert client.stats()["runs_opened"] == runs


async def test_so_is_one_in_the_result_of_a_call(client: Client) -> None:
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    prompt = {"role": "user", "content": "sim: call look {}\nsim: say done"}
    body: dict[str, Any] = {"model": "sim-auto", "max_tokens": 100, "tools": tools, "messages": [prompt]}
    first = (await client.http.post("/v1/messages", json=body)).json()
    data = base64.b64encode(PIXEL + bytes(12 * 2**20)).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": [image]}
    body["messages"] += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    refused = await client.http.post("/v1/messages", json=body)
    assert refused.status_code == 413
    assert str(15 * 2**20) in refused.json()["error"]["message"]
    assert client.gateway.tenants.parked == 0
