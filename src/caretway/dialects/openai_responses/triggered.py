"""The answer to a `compaction_trigger` (Codex, where its provider is named OpenAI): one `compaction` item, streamed or
whole, whatever the model said around it; an empty summary is a failure.

The item holds what `POST /v1/responses/compact` gives. The summary is not shown while it is written: a client takes the
item as a whole, and counts exactly one.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ...core.events import Event, Note, TextDelta, TurnEnded, TurnFailed, TurnPaused, TurnStarted, UsageReported
from ...core.fold import Reply
from ...core.request import TurnRequest
from .. import ResponseMeta
from ..summary_turn import no_summary
from .echo import echo_of
from .encode import ResponsesEncoder, cause_of, keep
from .objects import item_id, response_object
from .store import ResponseStore
from .summaries import wrap

_json = msgspec.json.Encoder().encode


class SummaryItemEncoder(ResponsesEncoder):
    """One streamed response with one item."""

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
                    pass  # nothing else belongs to a summary
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
    """The whole answer: the very object that ends the stream of the same events."""
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
