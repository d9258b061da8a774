"""Events -> text_completion chunks (text, `finish_reason`, the usage chunk, `[DONE]`), and a folded Reply -> one
text_completion. Thinking is not shown: this API has no field for it.

Remembered: usage until the end. No call can come: the request has no tools, and what ran elsewhere is not shown.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from ...core.events import Event, StopReason, TextDelta, TurnEnded, TurnFailed, TurnPaused, Usage, UsageReported
from ...core.fold import Reply
from ...core.request import TurnRequest
from .. import ResponseMeta, sse
from ..openai_chat.encode import FINISH, usage_object
from ..openai_chat.errors import encode_error

_CHOICE: Final = b'"choices":[{"index":0,"logprobs":null,"text":'
_UNFINISHED: Final = b',"finish_reason":null}]}\n\n'

_json = msgspec.json.Encoder().encode


class CompletionsEncoder:
    """One streamed response."""

    keep_alive: bytes = sse.comment("keep-alive")

    def __init__(self, request: TurnRequest, meta: ResponseMeta) -> None:
        self._head = b"data: " + _json(_identity(meta))[:-1] + b","
        self._include_usage = request.include_usage
        self._usage: Usage | None = None
        self._over = False

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self._over:
                break
            match event:
                case TextDelta(text=text):
                    out += (self._head, _CHOICE, _json(text), _UNFINISHED)
                case UsageReported(usage=usage):
                    self._usage = usage
                case TurnPaused() | TurnEnded():
                    self._finish(event.reason if isinstance(event, TurnEnded) else StopReason.END, out)
                case TurnFailed(error=error):
                    self._over = True
                    out += (sse.data(encode_error(error)[1]), sse.DONE)
                case _:
                    pass  # nothing else has a place in this API
        return b"".join(out)

    def _finish(self, reason: StopReason, out: list[bytes]) -> None:
        self._over = True
        out += (self._head, _CHOICE, b'"","finish_reason":', _json(FINISH[reason]), b"}]}\n\n")
        usage = usage_object(self._usage) if self._include_usage else None
        if usage is not None:
            out += (self._head, b'"choices":[],"usage":', _json(usage), b"}\n\n")
        out.append(sse.DONE)


def render(reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
    """The whole answer, equal to the stream of the same events."""
    choice = {"index": 0, "logprobs": None, "text": reply.text, "finish_reason": FINISH[reply.reason]}
    answer: dict[str, object] = {**_identity(meta), "choices": [choice]}
    usage = usage_object(reply.usage)
    if usage is not None:
        answer["usage"] = usage
    return _json(answer)


def _identity(meta: ResponseMeta) -> dict[str, object]:
    return {"id": f"cmpl-{meta.id}", "object": "text_completion", "created": meta.created, "model": meta.model}
