"""Converts an MCP result into a `ToolResult`: text, images (with a size limit), resources, structured content.
Describes audio and binaries in words, and cuts long text with a note.

Nothing is lost silently.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, assert_never

from ..core.request import Image, Text, ToolResult

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

Piece = Text | Image


def failure(call_id: str, words: str) -> ToolResult:
    return ToolResult(call_id, (Text(words),), is_error=True)


def tool_result(call_id: str, given: "CallToolResult", *, text_bytes: int, image_bytes: int) -> ToolResult:
    pieces = [piece for block in given.content for piece in _pieces(block, image_bytes)]
    if given.structured_content is not None and not _repeats(pieces, given.structured_content):
        pieces.append(Text(json.dumps(given.structured_content, ensure_ascii=False)))
    content = cut(_spaced(pieces), text_bytes) or (Text("(the tool returned nothing)"),)
    return ToolResult(call_id, content, is_error=bool(given.is_error))


def _pieces(block: "ContentBlock", image_bytes: int) -> Iterable[Piece]:
    match block.type:
        case "text":
            return [Text(block.text)]
        case "image":
            return [_image(block.data, block.mime_type, image_bytes)]
        case "audio":
            return [_unsaid(f"sound, {block.mime_type}", block.data)]
        case "resource_link":
            link = f"[resource {block.uri}: {block.title or block.name}"
            return [Text(f"{link}{f', {block.description}' if block.description else ''}]")]
        case "resource":
            inner = block.resource
            if "text" in type(inner).model_fields:
                return [Text(f"[resource {inner.uri}]\n{getattr(inner, 'text', '')}")]
            return [Text(f"[resource {inner.uri}]"), _blob(getattr(inner, "blob", ""), inner.mime_type, image_bytes)]
        case _:
            assert_never(block)


def _blob(data: str, mime_type: str | None, image_bytes: int) -> Piece:
    kind = mime_type or "application/octet-stream"
    return _image(data, kind, image_bytes) if kind.startswith("image/") else _unsaid(kind, data)


def _unsaid(what: str, data: str) -> Text:
    size = len(data.rstrip("=")) * 3 // 4
    return Text(f"[{what}, {size} bytes: it cannot be passed on]")


def _image(data: str, mime_type: str, image_bytes: int) -> Piece:
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[an image, {mime_type}, that is not valid base64]")
    if len(decoded) > image_bytes:
        return Text(f"[an image, {mime_type}, left out: {len(decoded)} bytes, and at most {image_bytes} are passed on]")
    return Image(decoded, mime_type)


def _repeats(pieces: Iterable[Piece], structured: object) -> bool:
    """Whether a text already holds the structured content, as the protocol recommends."""
    for piece in pieces:
        if isinstance(piece, Text) and piece.text.lstrip()[:1] in ("{", "[", '"', *"-0123456789tfn"):
            try:
                if json.loads(piece.text) == structured:
                    return True
            except (ValueError, RecursionError):
                continue
    return False


def _spaced(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with a line break between adjacent texts."""
    spaced: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Text) and spaced and isinstance(last := spaced[-1], Text) and not last.text.endswith("\n"):
            spaced.append(Text("\n"))
        spaced.append(piece)
    return spaced


def cut(pieces: Iterable[Piece], text_bytes: int) -> tuple[Piece, ...]:
    """Cut the text of all pieces to the limit. Images have their own limit."""
    kept: list[Piece] = []
    left, lost = text_bytes, 0
    for piece in pieces:
        if not isinstance(piece, Text):
            kept.append(piece)
            continue
        encoded = piece.text.encode("utf-8", "replace")
        if len(encoded) <= left:
            kept.append(piece)
        elif left > 0:
            kept.append(Text(encoded[:left].decode("utf-8", "ignore")))
        lost += max(0, len(encoded) - left)
        left = max(0, left - len(encoded))
    if lost:
        kept.append(Text(f"\n[Cut by the gateway: {lost} more bytes. Ask for less at a time.]"))
    return tuple(kept)
