"""Images as `data:` URLs -> bytes: which types, strict base64 (a damaged or empty image is an error), large ones in
steps. An http URL is refused with a hint; fetching is `web/images.py`.

For every dialect that takes images as URLs. The declared type is trusted; the image itself is not examined.
"""

import binascii
from typing import Final

from ..core.request import Image
from .fields import At, invalid_value, unsupported

_TYPES: Final[dict[str, str]] = {
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/jpg": "image/jpeg",  # not a registered type, and still what many clients write
    "image/gif": "image/gif",
    "image/webp": "image/webp",
}
_SUPPORTED: Final = "PNG, JPEG, GIF and WebP images are supported"
_SLICE: Final = 2**20
"""Characters that are decoded in one step: the decoder holds the interpreter. A multiple of four."""


def decode_image_url(url: str, param: At) -> Image:
    """`data:image/png;base64,...` -> Image. Anything else is an error that says what to send instead."""
    head, comma, payload = url.partition(",")
    scheme, colon, rest = head.partition(":")
    scheme = scheme.strip().lower() if colon else ""
    if scheme in ("http", "https"):
        raise unsupported(
            param,
            "Images are not fetched from the network.",
            code="image_url_not_supported",
            hint="Send it as data:image/png;base64,... or start the gateway with --fetch-images public.",
        )
    if scheme != "data" or not comma:
        raise invalid_value(param, "expected a data: URL (data:image/png;base64,...).")
    declared, *attributes = (piece.strip().lower() for piece in rest.split(";"))
    mime_type = image_type(declared, param)
    if "base64" not in attributes:
        raise invalid_value(param, "the data: URL must be base64 (data:image/png;base64,...).")
    return decode_base64_image(payload, mime_type, param)


def image_type(declared: str, param: At) -> str:
    """The registered name of a type that is supported."""
    mime_type = _TYPES.get(declared.strip().lower())
    if mime_type is None:
        raise invalid_value(param, f"{_SUPPORTED}, not {declared[:60] or 'data without a type'!r}.")
    return mime_type


def decode_base64_image(payload: str, mime_type: str, param: At) -> Image:
    """Strict: a damaged image is an error here, not a problem for the model."""
    try:
        data = decode_base64(payload)
    except ValueError as error:
        raise invalid_value(param, f"the image is not valid base64 ({str(error)[:80]}).") from error
    if not data:
        raise invalid_value(param, "the image is empty.")
    return Image(data, mime_type)


def decode_base64(payload: str) -> bytes:
    """Strict, and a large one in steps. ValueError when it is damaged."""
    if len(payload) <= _SLICE:
        return binascii.a2b_base64(payload, strict_mode=True)
    pieces: list[bytes] = []
    for at in range(0, len(payload), _SLICE):
        if pieces and len(pieces[-1]) * 4 < _SLICE * 3:
            raise ValueError("Excess data after padding")
        pieces.append(binascii.a2b_base64(payload[at : at + _SLICE], strict_mode=True))
    return b"".join(pieces)
