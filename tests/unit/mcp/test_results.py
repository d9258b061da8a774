"""What a tool gave back, as our own result."""

import base64
from typing import Any

import pytest
from mcp_types import CallToolResult

from caretway.core.request import Image, Text, ToolResult
from caretway.mcp.results import cut, tool_result

PIXEL = base64.b64encode(b"pixels").decode()


def converted(*content: dict[str, Any], text_bytes: int = 1000, image_bytes: int = 100, **more: Any) -> ToolResult:
    given = CallToolResult.model_validate({"content": list(content), **more})
    return tool_result("call", given, text_bytes=text_bytes, image_bytes=image_bytes)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


CASES: list[tuple[str, list[dict[str, Any]], tuple[Text | Image, ...]]] = [
    ("text", [text("a")], (Text("a"),)),
    ("blocks are kept apart", [text("a"), text("b\n"), text("c")], (Text("a"), Text("\n"), Text("b\n"), Text("c"))),
    ("nothing", [], (Text("(the tool returned nothing)"),)),
    (
        "an image between texts",
        [text("a"), {"type": "image", "data": PIXEL, "mimeType": "image/png"}, text("b")],
        (Text("a"), Image(b"pixels", "image/png"), Text("b")),
    ),
    (
        "an image that is none",
        [{"type": "image", "data": "%%%", "mimeType": "image/png"}],
        (Text("[an image, image/png, that is not valid base64]"),),
    ),
    (
        "an image that is too large",
        [{"type": "image", "data": base64.b64encode(b"x" * 200).decode(), "mimeType": "image/png"}],
        (Text("[an image, image/png, left out: 200 bytes, and at most 100 are passed on]"),),
    ),
    (
        "sound",
        [{"type": "audio", "data": PIXEL, "mimeType": "audio/wav"}],
        (Text("[sound, audio/wav, 6 bytes: it cannot be passed on]"),),
    ),
    (
        "a resource with text",
        [{"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "words"}}],
        (Text("[resource file:///a]\nwords"),),
    ),
    (
        "a resource that is an image",
        [{"type": "resource", "resource": {"uri": "file:///a", "mimeType": "image/gif", "blob": PIXEL}}],
        (Text("[resource file:///a]"), Image(b"pixels", "image/gif")),
    ),
    (
        "a resource that is something else",
        [{"type": "resource", "resource": {"uri": "file:///a", "blob": PIXEL}}],
        (
            Text("[resource file:///a]"),
            Text("\n"),
            Text("[application/octet-stream, 6 bytes: it cannot be passed on]"),
        ),
    ),
    (
        "a link",
        [{"type": "resource_link", "uri": "file:///a", "name": "a", "description": "the first"}],
        (Text("[resource file:///a: a, the first]"),),
    ),
]


@pytest.mark.parametrize(("content", "pieces"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_content(content: list[dict[str, Any]], pieces: tuple[Text | Image, ...]) -> None:
    assert converted(*content) == ToolResult("call", pieces)


def test_errors_stay_errors() -> None:
    assert converted(text("no"), isError=True) == ToolResult("call", (Text("no"),), is_error=True)


@pytest.mark.parametrize(
    ("content", "structured", "words"),
    [
        ([], {"a": 1}, '{"a": 1}'),
        ([text('{ "a" : 1 }')], {"a": 1}, '{ "a" : 1 }'),
        ([text("done")], {"a": 1}, 'done\n{"a": 1}'),
        ([text("[broken")], {"a": "ä"}, '[broken\n{"a": "ä"}'),
    ],
)
def test_structured_content_is_said_once(content: list[dict[str, Any]], structured: object, words: str) -> None:
    assert converted(*content, structuredContent=structured).text == words


@pytest.mark.parametrize(("limit", "kept", "lost"), [(10, "äöü123", 0), (9, "äöü123", 0), (7, "äöü1", 2), (3, "ä", 6)])
def test_what_is_too_long_is_cut_between_characters(limit: int, kept: str, lost: int) -> None:
    pieces = cut([Text("äöü"), Image(b"1", "image/png"), Text("123")], limit)
    received = [piece.text for piece in pieces if isinstance(piece, Text)]
    note = f"\n[Cut by the gateway: {lost} more bytes. Ask for less at a time.]" if lost else ""
    assert "".join(received) == kept + note
    assert Image(b"1", "image/png") in pieces
