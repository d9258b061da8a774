"""Decodes requests for a summary instead of an answer (`compaction`, or an edit of `context_management` that pauses),
and encodes the answer: one `compaction` block with the stop reason `compaction`.
An edit that compacts during an answer would need two turns for one request, so it is reported as ignored. So is the
clearing of old tool results, which Cursor's own state would not reflect. Earlier thinking is never sent to Cursor, so
clearing it has no effect.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field

from ...core.events import Event, Note, StopReason, TextDelta, TurnEnded, TurnFailed, TurnPaused, UsageReported
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.tally import estimate_input
from .. import ResponseMeta, in_turn
from ..fields import (
    FieldPath,
    an_array,
    an_object,
    asking,
    invalid_value,
    needed_string,
    no_summary,
    optional_bool,
    optional_string,
    wrong_type,
)
from .encode import MessagesEncoder, encode_error, message_object, usage_object

COMPACTS: Final = "compaction"
"""Key in `request.echo`: the answer is one block."""
_TRIGGER: Final = 150_000
"""Anthropic's default threshold in tokens."""
_NO_EFFECT: Final = frozenset({"clear_thinking_20251015"})
_COMPACT: Final = "compact_20260112"
_KIND: Final = b'"compaction_delta","content"'
_START: Final = b'{"type":"compaction","content":null}'

_json = msgspec.json.Encoder().encode


class ContextWish(Struct):
    """The request's instructions for its context."""

    summary: bool = False
    instructions: str = ""
    above: int = 0
    """The threshold in tokens for a summary."""
    ignored: list[str] = field(default_factory=list)


def context_wish(body: Mapping[str, object]) -> ContextWish:
    wish = ContextWish()
    managed = body.get("context_management")
    if managed is not None:
        edits = an_object(managed, "context_management").get("edits")
        for i, one in enumerate([] if edits is None else an_array(edits, "context_management.edits")):
            _edit(one, FieldPath("context_management", "edits", i), wish)
    asked = body.get("compaction")
    if asked is not None:
        wanted = an_object(asked, "compaction")
        kind = needed_string(wanted, "type", "compaction")
        if kind != "summarize":
            raise invalid_value("compaction.type", f"use summarize, not {kind[:60]!r}.")
        wish.summary, wish.above = True, 0
        wish.instructions = optional_string(wanted, "instructions", "compaction") or ""
    return wish


def _edit(value: object, at: FieldPath, wish: ContextWish) -> None:
    edit = an_object(value, at)
    kind = needed_string(edit, "type", at)
    if kind in _NO_EFFECT:
        return
    if kind != _COMPACT or not optional_bool(edit, "pause_after_compaction", at):
        wish.ignored.append(f"context_management.{kind}")
        return
    wish.summary = True
    wish.instructions = optional_string(edit, "instructions", at) or ""
    wish.above = _trigger(edit.get("trigger"), FieldPath(at, "trigger"))


def _trigger(value: object, at: FieldPath) -> int:
    if value is None:
        return _TRIGGER
    tokens = an_object(value, at).get("value")
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        raise wrong_type(FieldPath(at, "value"), "an integer", tokens)
    return tokens


def summarised(request: TurnRequest, wish: ContextWish) -> TurnRequest:
    """The request for a summary, if the client wants one above its threshold; else the request itself."""
    if not wish.summary or (wish.above and estimate_input(request) < wish.above):
        return request
    asked = asking(request, wish.instructions)
    return msgspec.structs.replace(asked, echo={COMPACTS: True})


class SummaryBlockEncoder(MessagesEncoder):
    """Encodes one streamed response with one block, which is sent as a whole."""

    __slots__ = ("_pieces",)

    def __init__(self, request: TurnRequest, meta: ResponseMeta) -> None:
        super().__init__(request, meta)
        self._pieces: list[str] = []

    def feed(self, events: Sequence[Event]) -> bytes:
        if self._over:
            return b""
        out: list[bytes] = []
        for event in events:
            match event:
                case TextDelta(text=text):
                    self._pieces.append(text)
                case UsageReported(usage=usage):
                    self._usage = usage
                case Note(key=key, value=value):
                    self._notes[key] = value
                case TurnPaused() | TurnEnded():
                    self._end(out)
                case TurnFailed(error=error):
                    self._over = True
                    out.append(in_turn.event("error", encode_error(error)[1]))
                case _:
                    self._begin(out)  # other events are not part of a summary
        return b"".join(out)

    def _end(self, out: list[bytes]) -> None:
        summary = "".join(self._pieces)
        if not summary.strip():
            self._over = True
            out.append(in_turn.event("error", encode_error(no_summary())[1]))
            return
        self._add(self._open(_KIND, _START, out), summary, out)
        self._finish(StopReason.END, None, out)

    def _stop_reason(self, reason: StopReason, sequence: str | None) -> tuple[str, str | None]:
        return COMPACTS, None


def render_compaction(reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
    """The whole answer as one message, equal to the stream of the same events."""
    if not reply.text.strip():
        raise no_summary()
    block = {"type": "compaction", "content": reply.text}
    usage = usage_object(reply.usage, request, len(reply.text), reply.context_tokens)
    answer = message_object(meta, [block], COMPACTS, None, usage)
    if reply.notes:
        answer["caretway"] = {note.key: note.value for note in reply.notes}
    return _json(answer)
