"""Blob ids (sha256), the blobs that a state refers to, and the canonical JSON of root messages (sorted keys, no
spaces), so that equal histories have equal ids and Cursor's cache stays warm.

Every `bytes` in a conversation state is the sha256 of a blob, never inline data.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

ID_BYTES: Final = 32
MAX_DEPTH: Final = 4
LENGTH_DELIMITED: Final = 2

Lookup = Callable[[bytes], bytes | None]


def blob_id(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def write_message(role: str, content: str | Sequence[Mapping[str, Any]]) -> bytes:
    if not isinstance(content, str) and any("image" in part for part in content):
        # Part by part: several images have tens of megabytes, and the encoder blocks other threads.
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


def reachable(state: bytes, lookup: Lookup) -> dict[bytes, bytes]:
    """A state and all blobs that it refers to, also through unknown fields. Missing blobs are left out, because Cursor
    reports them when it needs them."""
    found = {blob_id(state): state} if state else {}
    waiting = [state]
    while waiting:
        for key in ids_in(waiting.pop()):
            if key not in found and (data := lookup(key)) is not None:
                found[key] = data
                if not data.startswith(b"{"):  # JSON messages refer to no blobs
                    waiting.append(data)
    return found


def ids_in(data: bytes, depth: int = 0) -> list[bytes]:
    """Possible blob ids in a serialised message: every field of 32 bytes, at any depth."""
    try:
        unknown: Any = UnknownFieldSet(Empty.FromString(data))
    except DecodeError:
        return []  # it is no message
    fields = [each.data for each in unknown if each.wire_type == LENGTH_DELIMITED]
    ids = [value for value in fields if len(value) == ID_BYTES]
    if depth < MAX_DEPTH:
        ids += [key for value in fields if len(value) > ID_BYTES for key in ids_in(value, depth + 1)]
    return ids
