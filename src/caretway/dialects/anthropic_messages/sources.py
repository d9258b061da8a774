"""Images and documents inside a Messages request: base64 and text are read, PDF and other types are refused, a `url` or
`file` source is refused with what to send instead. Fetches nothing.

Fetches nothing: a source that is only a reference (`url`, `file`) is an error that asks for the content.
"""

from collections.abc import Mapping
from typing import Final

from ...core.request import Image, Text
from ..fields import (
    At,
    FieldPath,
    a_string,
    an_object,
    invalid_value,
    missing,
    needed_string,
    optional_string,
    unsupported,
)
from ..images import decode_base64, decode_base64_image, image_type

_ELSEWHERE: Final[dict[str, str]] = {
    "url": "is not fetched from the network",
    "file": "cannot be taken from Anthropic's file store",
}

_PDF: Final = "JVBERi0"
"""How every PDF begins in base64."""


def read_image(block: Mapping[str, object], at: At) -> Image:
    source, kind = _source(block, at, "An image", "image_url_not_supported")
    place = FieldPath(at, "source")
    if kind != "base64":
        raise invalid_value(f"{place}.type", f"use base64, not {kind[:60]!r}.")
    declared = image_type(needed_string(source, "media_type", place), FieldPath(place, "media_type"))
    return decode_base64_image(_data(source, place), declared, FieldPath(place, "data"))


def document_heading(block: Mapping[str, object], at: At) -> str:
    """Title and context of the document: the lines above its text."""
    title = optional_string(block, "title", at)
    context = optional_string(block, "context", at)
    lines = [f"Document: {title}" if title else "Document:"]
    if context:
        lines.append(context)
    return "\n".join(lines)


def read_document_source(block: Mapping[str, object], at: At) -> tuple[str, object]:
    """("text", its text), or ("content", what the block reader has to read)."""
    source, kind = _source(block, at, "A document", "document_not_supported")
    place = FieldPath(at, "source")
    if kind == "content":
        if source.get("content") is None:
            raise missing(f"{place}.content")
        return kind, source["content"]
    if kind not in ("text", "base64"):
        raise invalid_value(f"{place}.type", f"use text, base64 or content, not {kind[:60]!r}.")
    declared = (optional_string(source, "media_type", place) or "text/plain").strip().lower()
    data = _data(source, place)
    if kind == "text":
        return kind, data
    if declared == "application/pdf" and not data.startswith(_PDF):
        raise invalid_value(f"{place}.data", "it is not a PDF in base64.")
    if not declared.startswith("text/"):
        what = "PDF documents" if declared == "application/pdf" else f"Documents of type {declared[:60]!r}"
        raise unsupported(
            f"{place}.media_type",
            f"{what} cannot be sent to Cursor.",
            code="document_not_supported",
            hint="Send the document's text.",
        )
    try:
        return "text", decode_base64(data).decode()
    except ValueError as error:
        raise invalid_value(
            f"{place}.data", f"the document is not UTF-8 text in base64 ({str(error)[:80]})."
        ) from error


def search_result_text(block: Mapping[str, object], at: At, found: list[Text | Image]) -> Text:
    title = optional_string(block, "title", at) or ""
    source = optional_string(block, "source", at) or ""
    text = "".join(part.text for part in found if isinstance(part, Text))
    return Text(f"Search result: {title} ({source})\n{text}\n")


def _source(block: Mapping[str, object], at: At, what: At, code: str) -> tuple[Mapping[str, object], str]:
    place = FieldPath(at, "source")
    if block.get("source") is None:
        raise missing(place)
    source = an_object(block["source"], place)
    kind = needed_string(source, "type", place)
    if kind in _ELSEWHERE:
        raise unsupported(
            f"{place}.type", f"{what} {_ELSEWHERE[kind]}.", code=code, hint="Send its content in the request."
        )
    return source, kind


def _data(source: Mapping[str, object], at: At) -> str:
    if source.get("data") is None:
        raise missing(f"{at}.data")
    return a_string(source["data"], FieldPath(at, "data"))
