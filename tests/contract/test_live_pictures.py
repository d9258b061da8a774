"""Pictures as the service takes them, gateway against the profile `live`: those of a history are in
`test_live_histories.py`, those that are named by URL in `test_images.py`."""

import base64
import struct
from typing import Any

import pytest

from caretway_sim.manners import LIVE
from contract.gateways import gateway
from contract.test_chat import PIXEL

HEADER = "x-caretway-pictures"


def png(width: int, height: int, size: int = 0) -> bytes:
    """The head of a picture, and as many bytes as are wanted: nobody here looks at more."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 6, 0, 0, 0)
    return head + bytes(max(0, size - len(head)))


def shown(*pictures: bytes) -> list[dict[str, Any]]:
    urls = [f"data:image/png;base64,{base64.b64encode(data).decode()}" for data in pictures]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [{"type": "text", "text": "sim: say seen"}, *parts]}]


LARGE = [
    ((PIXEL,), []),
    ((png(2000, 2000, 256 * 1024),), []),
    ((png(10, 10, 430 * 1024),), ["picture 1", "430 KiB", "256 KiB"]),
    ((PIXEL, png(2001, 10)), ["picture 2", "2001 x 10 pixels", "2000"]),
]


@pytest.mark.parametrize(("pictures", "told"), LARGE, ids=["small", "just fits", "bytes", "pixels"])
async def test_l5_a_picture_that_may_not_be_seen_is_told(
    transport: str, stream: bool, pictures: tuple[bytes, ...], told: list[str]
) -> None:
    """It is sent all the same: others saw a grey area, and no refusal."""
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat(shown(*pictures), model="gpt-5.4", stream=stream)
        assert (answer.status, answer.text) == (200, "seen")
        warned = answer.headers.get(HEADER, "")
        assert all(words in warned for words in told), warned
        assert bool(warned) is bool(told)


@pytest.mark.parametrize("model", ["composer-2.5", "gpt-5.4", "glm-5.2"])
async def test_m7_a_picture_for_a_model_that_takes_text_only_is_told(transport: str, stream: bool, model: str) -> None:
    async with gateway(transport, manners=LIVE) as client:
        answer = await client.chat(shown(PIXEL), model=model, stream=stream)
        warned = answer.headers.get(HEADER, "")
        assert (answer.status, answer.text) == (200, "seen"), answer.error
        assert (f"{model} takes text only" in warned) is (model != "gpt-5.4"), warned


async def test_m7_the_window_is_unknown_until_a_checkpoint_tells_it(transport: str) -> None:
    """The first checkpoint says 0. Half of the window that the next one tells is what makes a refusal an overflow."""
    full = "sim: fail bare\n" + "word " * 90_000
    async with gateway(transport, manners=LIVE) as client:
        small = await client.chat("sim: fail bare", model="gpt-5.4")
        large = await client.chat(full, model="gpt-5.4")
        assert small.error is not None and small.error["code"] == "refused_without_reason"
        assert large.error is not None and large.error["code"] == "context_length_exceeded"
