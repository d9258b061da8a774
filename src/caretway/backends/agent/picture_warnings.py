"""Warns, and never refuses, when a model may not see a picture: above 256 KiB or 2000 pixels, or a model that takes
text only. Reads the size of PNG, JPEG, GIF and WebP files. Pure.

Others saw a PNG of 430 KiB arrive as a grey area and a JPEG of 75 KiB as itself. Nothing is refused for it, so nothing
is held back here: the client is told.
"""

import struct
from collections.abc import Iterable
from typing import Final

from ...core.request import Image

MAX_BYTES: Final = 256 * 1024
MAX_PIXELS: Final = 2000
"""Of the longer side."""
_MAX_SEGMENTS: Final = 200
"""Of a JPEG before its size is told."""
_TOLD: Final = 5
_UNSEEN: Final = "and the model may see nothing of one above"
_JPEG_SIZES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""The markers of segments that begin with the size."""


def picture_warning(pictures: Iterable[Image], model: str, sees: bool | None) -> str:
    """What may be wrong with the pictures of a message, for people; empty when nothing is. `sees`: whether the model
    takes pictures, as its list says."""
    told: list[str] = []
    for number, picture in enumerate(pictures, 1):
        if sees is False:
            return f"{model} takes text only and may not see the picture"
        size = picture_size(picture.data)
        if len(picture.data) > MAX_BYTES:
            told.append(f"picture {number} has {len(picture.data) >> 10} KiB, {_UNSEEN} {MAX_BYTES >> 10} KiB")
        elif size is not None and max(size) > MAX_PIXELS:
            told.append(f"picture {number} has {size[0]} x {size[1]} pixels, {_UNSEEN} {MAX_PIXELS}")
        if len(told) == _TOLD:
            break
    return "; ".join(told)


def picture_size(data: bytes) -> tuple[int, int] | None:
    """Width and height, as the head of the file tells them; None when it does not."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return _pair(">II", data, 16)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _pair("<HH", data, 6)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp(data)
        if data.startswith(b"\xff\xd8"):
            return _jpeg(data)
    except struct.error:
        pass  # it ends within its head: whoever shows it will say so
    return None


def _pair(form: str, data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(form, data, at)
    return first, second


def _webp(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = _pair("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        mark, kind, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF:
            return None
        if kind in _JPEG_SIZES:
            height, width = _pair(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None
