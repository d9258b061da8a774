"""Blob ids (sha256) and the canonical JSON of root messages (sorted keys, no spaces), so that the same history has the
same ids and Cursor's cache stays warm: text, tool call, result and image parts.

Every `bytes` in a conversation state is the sha256 of a blob, never inline data.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


def blob_id(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def write_message(role: str, content: str | Sequence[Mapping[str, Any]]) -> bytes:
    if not isinstance(content, str) and any("image" in part for part in content):
        # Part by part: several images are tens of megabytes, and an encoder lets nobody else in until it is done.
        parts = b",".join([msgspec.json.encode(part, order="sorted") for part in content])
        return b'{"content":[%b],"role":%b}' % (parts, msgspec.json.encode(role))
    return msgspec.json.encode({"role": role, "content": content}, order="sorted")


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_call_part(call_id: str, name: str, args: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "args": args}


def tool_result_part(call_id: str, name: str, result: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": call_id, "toolName": name, "result": result, "isError": is_error}


def image_part(mime_type: str, base64_data: str) -> dict[str, Any]:
    """A data URI: bare base64 with `mimeType` was refused ("Unable to parse image")."""
    return {"type": "image", "mediaType": mime_type, "image": f"data:{mime_type};base64,{base64_data}"}
