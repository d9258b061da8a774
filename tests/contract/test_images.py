"""Images named by URL: refused unless fetching is on, and then only what is an image, not too large, and allowed."""

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


async def test_refused_by_default(pictures: str) -> None:
    async with gateway() as client:
        status, message = await ask(client, f"{pictures}/cat.png")
        assert status == 400
        assert "--fetch-images" in message
