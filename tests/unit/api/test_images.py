"""Images by URL: which are fetched at all, where they stand in a body, and that nobody is led inside (SSRF)."""

import asyncio
import base64
from typing import Any

import pytest

from caretway.api.images import MAX_IMAGES, ImageFetcher, _encoded, _places
from caretway.core.errors import GatewayError
from caretway.cursor.transport.dial import Dialler

URL = "http://pictures.example/a.png"
CHAT = {"type": "image_url", "image_url": {"url": URL}}
RESPONSES = {"type": "input_image", "image_url": URL}
MESSAGES = {"type": "image", "source": {"type": "url", "url": URL}}


@pytest.mark.parametrize(
    ("part", "inlined"),
    [
        (CHAT, {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}),
        (RESPONSES, {"type": "input_image", "image_url": "data:image/png;base64,eA=="}),
        (MESSAGES, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}),
    ],
)
def test_the_three_spellings(part: dict[str, Any], inlined: dict[str, Any]) -> None:
    body = {"messages": [{"content": [{"type": "text"}, {**part}]}]}
    (place,) = _places(body)
    assert place.url == URL
    place.put("image/png", "eA==")
    assert body["messages"][0]["content"][1] == inlined


def test_a_deep_body_is_searched_without_recursion() -> None:
    body: Any = {**RESPONSES}
    for _ in range(50_000):
        body = [body]
    assert len(_places(body)) == 1


async def test_what_is_not_fetched() -> None:
    fetcher = ImageFetcher("public", Dialler(), 5.0, 1000)
    for url in ("data:image/png;base64,eA==", "file:///etc/passwd", "ftp://a/b", ""):
        assert await fetcher.inline([{"image_url": url}]) == 0


async def test_too_many_images() -> None:
    with pytest.raises(GatewayError) as caught:
        await ImageFetcher("any", Dialler(), 5.0, 1000).inline([{**RESPONSES} for _ in range(MAX_IMAGES + 1)])
    assert caught.value.code == "too_many_images"


INSIDE = [
    "http://127.0.0.1/x",
    "http://[::1]/x",
    "http://169.254.169.254/latest",
    "http://10.0.0.1/",
    "http://0.0.0.0/",
]


@pytest.mark.parametrize("url", INSIDE)
async def test_addresses_inside_are_not_connected_to(url: str) -> None:
    """Were one connected to, the test itself would fail: unit tests have no sockets."""
    async with asyncio.timeout(10):
        with pytest.raises(GatewayError) as caught:
            await ImageFetcher("public", Dialler(), 5.0, 1000).fetch(url)
    assert "its address is not a public one" in caught.value.message
    assert caught.value.code == "image_not_fetched"


@pytest.mark.parametrize("url", ["http:///x", "http://a b/", "http://a/\x00", "http://a:99999/", "http://a/é"])
async def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(GatewayError):
        await ImageFetcher("any", Dialler(), 5.0, 1000).fetch(url)


@pytest.mark.parametrize("size", [0, 1, 3 * 2**18 - 1, 3 * 2**18, 3 * 2**18 + 1])
def test_pieces_of_base64_join(size: int) -> None:
    data = bytearray(b"x" * size)
    assert _encoded(data) == base64.b64encode(data).decode()
