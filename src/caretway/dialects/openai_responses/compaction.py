"""`POST /v1/responses/compact`: a long conversation as its user's messages and one `compaction` item. The model writes
the summary in a turn of its own; the item holds it, and a later request that brings it back gets it as text.

OpenAI encrypts that item's content. Here it is only wrapped: it is the client's own conversation, and nobody else's key
would make it safer. Items that OpenAI made cannot be read and are named as ignored. A whole answer only, no stream.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from ...core.estimate import estimated_usage
from ...core.fold import Reply
from ...core.request import TurnRequest
from .. import ResponseMeta
from ..fields import optional_bool, unsupported
from ..headers import owners
from ..summary_turn import asking, no_summary
from .decode import decode
from .objects import usage_object
from .store import ResponseStore, StoreReader
from .summaries import wrap

_TOOLS: Final = frozenset({"tools", "tool_choice"})
_KEPT: Final = "openai_compaction"
"""In `request.echo`: the user's own messages, which a compaction keeps."""

_json = msgspec.json.Encoder().encode


def decode_compaction(body: object, headers: Mapping[str, str], store: ResponseStore) -> TurnRequest:
    """The conversation, with the request for a summary as its newest message."""
    kept: tuple[Mapping[str, object], ...] = ()
    if isinstance(body, dict):
        if optional_bool(body, "stream"):
            raise unsupported("stream", "A compaction is answered as a whole.", hint="Leave `stream` out.")
        kept = tuple(_said_by_user(body, StoreReader(store, owners(headers))))
        body = {name: value for name, value in body.items() if name not in _TOOLS} | {"store": False}
    request = asking(decode(body, headers, store))
    return replace(request, echo={**request.echo, _KEPT: kept})


def _said_by_user(body: Mapping[str, object], stored: StoreReader) -> Iterator[Mapping[str, object]]:
    """The user's messages that say something, as items. What is wrong with the others is told by the decoder."""
    given, previous = body.get("input"), body.get("previous_response_id")
    if isinstance(previous, str):
        yield from [item for item in stored.chain(previous) or () if _says(item)]
    if isinstance(given, str):
        yield {"role": "user", "content": given}
    elif isinstance(given, list):
        yield from [item for item in given if isinstance(item, dict) and _says(item)]


def _says(item: Mapping[str, object]) -> bool:
    return item.get("role") == "user" and item.get("content") is not None


def render_compaction(reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
    if not reply.text.strip():
        raise no_summary()
    kept = request.echo.get(_KEPT, ())
    assert isinstance(kept, tuple)
    return _json(
        {
            "id": f"resp_{meta.id}",
            "object": "response.compaction",
            "created_at": meta.created,
            "output": [
                *[_shown(item, f"msg_{meta.id}_{index}") for index, item in enumerate(kept)],
                {"id": f"cmp_{meta.id}", "type": "compaction", "encrypted_content": wrap(reply.text)},
            ],
            "usage": usage_object(reply.usage) or usage_object(estimated_usage(request, reply)),
        }
    )


def _shown(item: Mapping[str, object], name: str) -> dict[str, object]:
    content = item.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    return {"id": name, "status": "completed", **item, "type": "message", "content": parts}
