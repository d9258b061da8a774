"""Decodes images and files in a request's body. Images are `data:` URLs with strict base64; http URLs are refused with
a hint (`api/images.py` fetches them). Text files become text; PDF and files that are stored elsewhere are refused.
The declared type of an image is trusted; the image itself is not examined.
"""

import binascii
from collections.abc import Mapping
from typing import Final

from ..core.request import Image, Text
from .fields import At, FieldPath, invalid_value, needed_string, optional_string, unsupported

_TYPES: Final[dict[str, str]] = {
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/jpg": "image/jpeg",  # unregistered, but many clients write it
    "image/gif": "image/gif",
    "image/webp": "image/webp",
}
_SUPPORTED: Final = "PNG, JPEG, GIF and WebP images are supported"
_SLICE: Final = 2**20
"""Characters per decoding step, because the decoder blocks other threads. A multiple of four."""


def decode_image_url(url: str, param: At) -> Image:
    """`data:image/png;base64,...` -> Image. Raises an error with a remedy for any other URL."""
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
    """The registered name of a supported type."""
    mime_type = _TYPES.get(declared.strip().lower())
    if mime_type is None:
        raise invalid_value(param, f"{_SUPPORTED}, not {declared[:60] or 'data without a type'!r}.")
    return mime_type


def decode_base64_image(payload: str, mime_type: str, param: At) -> Image:
    """Strict: a damaged image is an error here, not at the model."""
    try:
        data = decode_base64(payload)
    except ValueError as error:
        raise invalid_value(param, f"the image is not valid base64 ({str(error)[:80]}).") from error
    if not data:
        raise invalid_value(param, "the image is empty.")
    return Image(data, mime_type)


def decode_base64(payload: str) -> bytes:
    """Decode strictly, in steps. Raises ValueError if the text is damaged."""
    if len(payload) <= _SLICE:
        return binascii.a2b_base64(payload, strict_mode=True)
    pieces: list[bytes] = []
    for at in range(0, len(payload), _SLICE):
        if pieces and len(pieces[-1]) * 4 < _SLICE * 3:
            raise ValueError("Excess data after padding")
        pieces.append(binascii.a2b_base64(payload[at : at + _SLICE], strict_mode=True))
    return b"".join(pieces)


# ---- files in a request of OpenAI's APIs


_ELSEWHERE: Final = {"file_id": "This gateway stores no files.", "file_url": "Files are not fetched from the network."}
_SEND: Final = "Send its text, or the file itself as base64 in `file_data`."
_PDF: Final = b"%PDF-"


def decode_file(file: Mapping[str, object], at: At, kind: str) -> Text:
    """The file's name and its text. `kind`: the part's type, for the code of an error."""
    for key, why in _ELSEWHERE.items():
        if file.get("file_data") is None and file.get(key) is not None:
            raise unsupported(FieldPath(at, key), why, code=f"{key}_not_supported", hint=_SEND)
    place = FieldPath(at, "file_data")
    given = needed_string(file, "file_data", at)
    head, comma, payload = given.partition(",")
    if head[:5].lower() == "data:" and not (comma and head.lower().rstrip().endswith("base64")):
        raise invalid_value(place, "the data: URL must be base64 (data:text/plain;base64,...).")
    try:
        data = decode_base64((payload if comma else given).strip())
    except ValueError as error:
        raise invalid_value(place, f"the file is not valid base64 ({str(error)[:80]}).") from error
    name = optional_string(file, "filename", at) or ""
    return Text(f"File: {name}\n{_text(data, name, place, kind)}\n" if name else f"{_text(data, name, place, kind)}\n")


def _text(data: bytes, name: str, place: FieldPath, kind: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text and not data.startswith(_PDF):
        return text
    what = "PDF files" if data.startswith(_PDF) or name.lower().endswith(".pdf") else "Files that are not text"
    raise unsupported(place, f"{what} cannot be sent to Cursor.", code=f"{kind}_not_supported", hint="Send its text.")
