"""Decodes a large body in short steps, beside the event loop, and limits its text without images (`max_text_bytes`)."""

from collections.abc import Mapping

from msgspec.structs import replace

from ..core.request import Image, ToolResult, TurnRequest
from ..dialects import Dialect
from ..server.shape import ShapeLimits, read_json, too_much_text


def decode_large(dialect: Dialect, body: bytes, headers: Mapping[str, str], limits: ShapeLimits) -> TurnRequest:
    """Body -> request, in steps that are short each; for `aside`."""
    return decode_parsed(dialect, read_json(body, limits), len(body), headers, limits)


def decode_parsed(
    dialect: Dialect, parsed: object, size: int, headers: Mapping[str, str], limits: ShapeLimits
) -> TurnRequest:
    request = dialect.decode(parsed, headers)
    text = size - _image_bytes(request)
    if text > limits.text:
        raise too_much_text(text, limits.text)
    return replace(request, large=True)


def _image_bytes(request: TurnRequest) -> int:
    """What the images took in the body."""
    parts = [part for message in request.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.content]
    return sum(len(part.data) * 4 // 3 for part in parts if isinstance(part, Image))
