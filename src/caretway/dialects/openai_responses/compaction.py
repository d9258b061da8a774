"""Compaction. `POST /v1/responses/compact` answers with the user's messages and one `compaction` item. The answer to a
`compaction_trigger` (Codex, if its provider is named OpenAI) is one such item, streamed or whole. An empty summary is a
failure.
The model writes the summary in a separate turn; the item has the summary, and a later request with the item decodes it
to text. OpenAI encrypts the item's content; here it is only encoded, because it is the client's own conversation. Items
from OpenAI cannot be read and are reported as ignored. The summary is not streamed while it is written: clients expect
exactly one whole item.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ...core.events import Event, Note, TextDelta, TurnEnded, TurnFailed, TurnPaused, TurnStarted, UsageReported
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.tally import estimated_usage
from .. import ResponseMeta
from ..fields import asking, no_summary, optional_bool, unsupported
from ..headers import owners
from .decode import decode
from .encode import ResponsesEncoder, cause_of, keep
from .items import wrap
from .objects import item_id, response_object, usage_object
from .store import ResponseStore, StoreReader
from .tools import echo_of

_TOOLS: Final = frozenset({"tools", "tool_choice"})
_json = msgspec.json.Encoder().encode
_KEPT: Final = "openai_compaction"
"""Key in `request.echo`: the user's own messages, which a compaction keeps."""


def decode_compaction(body: object, headers: Mapping[str, str], store: ResponseStore) -> TurnRequest:
    """The conversation, with a request for a summary as its last message."""
    kept: tuple[Mapping[str, object], ...] = ()
    if isinstance(body, dict):
        if optional_bool(body, "stream"):
            raise unsupported("stream", "A compaction is answered as a whole.", hint="Leave `stream` out.")
        kept = tuple(_said_by_user(body, StoreReader(store, owners(headers))))
        body = {name: value for name, value in body.items() if name not in _TOOLS} | {"store": False}
    request = asking(decode(body, headers, store))
    return replace(request, echo={**request.echo, _KEPT: kept})


def _said_by_user(body: Mapping[str, object], stored: StoreReader) -> Iterator[Mapping[str, object]]:
    """The user's messages with content, as items. The decoder reports errors in other items."""
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


# ---- the answer to a `compaction_trigger`


class SummaryItemEncoder(ResponsesEncoder):
    """Encodes one streamed response with a single item."""

    __slots__ = ("_pieces",)

    def __init__(self, request: TurnRequest, meta: ResponseMeta, store: ResponseStore) -> None:
        super().__init__(request, meta, store)
        self._pieces: list[str] = []

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self._over:
                break
            match event:
                case TextDelta(text=text):
                    self._pieces.append(text)
                case TurnStarted():
                    self._begin(out)
                case UsageReported(usage=usage):
                    self._usage = usage
                case Note(key=key, value=value):
                    self._notes[key] = value
                case TurnPaused() | TurnEnded():
                    self._finish(self._summarised(event, out), out)
                case TurnFailed():
                    self._finish(event, out)
                case _:
                    pass  # other events are not part of a summary
        return b"".join(out)

    def _summarised(self, end: TurnPaused | TurnEnded, out: list[bytes]) -> TurnPaused | TurnEnded | TurnFailed:
        summary = "".join(self._pieces)
        if not summary.strip():
            return TurnFailed(no_summary())
        self._begin(out)
        item = _item(summary, self._meta)
        index = self._new_index()
        self._tell(out, "response.output_item.added", output_index=index, item=item)
        self._close_item(index, item, out)
        return end


def render_triggered(reply: Reply, request: TurnRequest, meta: ResponseMeta, store: ResponseStore) -> bytes:
    """The whole answer, equal to the object that ends the stream of the same events."""
    if not reply.text.strip():
        raise no_summary()
    echo, output = echo_of(request), [_item(reply.text, meta)]
    cause = cause_of(reply.reason, called=False)
    body = _json(
        response_object(
            meta,
            echo,
            status="completed" if cause is None else "incomplete",
            output=output,
            usage=reply.usage,
            incomplete=cause,
            notes=((note.key, note.value) for note in reply.notes),
        )
    )
    keep(store, meta, echo, body, output)
    return body


def _item(summary: str, meta: ResponseMeta) -> Mapping[str, object]:
    return {"id": item_id("compaction", meta, 0), "type": "compaction", "encrypted_content": wrap(summary)}
