"""Large bodies: what counts as text, and what images took."""

import base64

import msgspec
import pytest

from caretway.api.decoding import decode_large, decode_parsed
from caretway.core.errors import ErrorKind, GatewayError
from caretway.dialects.openai_chat import OPENAI_CHAT
from caretway.server.shape import ShapeLimits

LIMITS = ShapeLimits(text=50_000)


def body(text: str, image: bytes = b"") -> bytes:
    url = "data:image/png;base64," + base64.b64encode(image).decode()
    parts: list[object] = [{"type": "text", "text": text}]
    parts += [{"type": "image_url", "image_url": {"url": url}}] if image else []
    return msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": parts}]})


def test_what_was_read_aside_is_marked() -> None:
    request = decode_large(OPENAI_CHAT, body("hi"), {}, LIMITS)
    assert request.large
    assert request.messages[0].text == "hi"


def test_images_do_not_count_as_text() -> None:
    assert decode_large(OPENAI_CHAT, body("hi", b"\x89PNG" + b"x" * 300_000), {}, LIMITS).large


@pytest.mark.parametrize("image", [b"", b"\x89PNG" + b"x" * 300_000])
def test_too_much_text(image: bytes) -> None:
    with pytest.raises(GatewayError) as caught:
        decode_large(OPENAI_CHAT, body("x" * 60_000, image), {}, LIMITS)
    assert (caught.value.kind, caught.value.code) == (ErrorKind.TOO_LARGE, "too_much_text")


def test_what_was_parsed_before() -> None:
    parsed = msgspec.json.decode(body("hi"))
    assert decode_parsed(OPENAI_CHAT, parsed, 100, {}, LIMITS).large
