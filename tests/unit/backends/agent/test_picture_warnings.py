"""What is told of pictures that may not be seen."""

import struct

import pytest

from caretway.backends.agent.picture_warnings import picture_size, picture_warning
from caretway.core.request import Image

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 300, 20)
JPEG = b"\xff\xd8" + struct.pack(">BBH14x", 0xFF, 0xE0, 16) + struct.pack(">BBHBHH", 0xFF, 0xC2, 17, 8, 20, 300)
SIZES = [
    ("png", PNG, (300, 20)),
    ("gif", b"GIF89a" + struct.pack("<HH", 300, 20), (300, 20)),
    ("jpeg", JPEG, (300, 20)),
    ("webp, lossy", b"RIFF????WEBPVP8 " + bytes(10) + struct.pack("<HH", 300, 20), (300, 20)),
    ("webp, lossless", b"RIFF????WEBPVP8L????\x2f" + struct.pack("<I", 299 | 19 << 14), (300, 20)),
    ("webp, extended", b"RIFF????WEBPVP8X" + bytes(8) + b"\x2b\x01\x00\x13\x00\x00", (300, 20)),
    ("webp, of another kind", b"RIFF????WEBPVP9 " + bytes(20), None),
    ("a jpeg without a size", b"\xff\xd8" + struct.pack(">BBH", 0xFF, 0xE0, 2) * 10_000, None),
    ("no segment", b"\xff\xd8" + bytes(20), None),
    ("cut short", PNG[:18], None),
    ("a cut jpeg", JPEG[:-3], None),
    ("nothing", b"", None),
    ("text", b"hello", None),
]


@pytest.mark.parametrize(("name", "data", "size"), SIZES, ids=[row[0] for row in SIZES])
def test_the_size_stands_in_the_head(name: str, data: bytes, size: tuple[int, int] | None) -> None:
    assert picture_size(data) == size


def test_only_so_much_is_told() -> None:
    many = [Image(bytes(300 * 1024), "image/png")] * 50
    assert picture_warning(many, "m", sees=True).count("picture") == 5
    assert picture_warning(many, "m", sees=False) == "m takes text only and may not see the picture"
    assert picture_warning([], "m", sees=False) == ""
    assert picture_warning([Image(PNG, "image/png")], "m", sees=None) == ""
