"""Images for a backend that takes only text: a user's image is refused with an error, a tool's image is named in
words."""

from msgspec.structs import replace

from ...core.errors import ErrorKind, GatewayError
from ...core.request import Image, Message, Part, Text, ToolResult, TurnRequest


def without_images(request: TurnRequest) -> TurnRequest:
    """Never silent: the user gets an error, and the model learns that there was an image it cannot see."""
    return replace(request, messages=tuple(_message(message) for message in request.messages))


def _message(message: Message) -> Message:
    if not any(isinstance(part, Image | ToolResult) for part in message.parts):
        return message
    return replace(message, parts=tuple(_part(part) for part in message.parts))


def _part(part: Part) -> Part:
    if isinstance(part, Image):
        raise GatewayError(
            ErrorKind.UNSUPPORTED,
            "This backend takes only text, and the request has an image.",
            hint="Use --backend agent, sdk or cli.",
            code="image_not_supported",
        )
    if isinstance(part, ToolResult):
        return replace(part, content=tuple(_named(inner) for inner in part.content))
    return part


def _named(inner: Text | Image) -> Text:
    if isinstance(inner, Text):
        return inner
    return Text(f"[a picture, {inner.mime_type}, {len(inner.data)} bytes, which cannot be shown here]")
