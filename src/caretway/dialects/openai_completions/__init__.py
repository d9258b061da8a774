"""OpenAI's old Completions (`/v1/completions`): one plain prompt, a plain text answer, and the errors and models of the
chat dialect.

Editors and scripts still call it. The prompt is one user message; there are no tools, images or history.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from ...core.errors import bad_request
from ...core.events import Event, StopReason, TextDelta, TurnEnded, TurnFailed, TurnPaused, Usage, UsageReported
from ...core.fold import Reply
from ...core.request import Message, Role, Text, TurnRequest
from .. import DialectRoute, Encoder, Lookup, Operation, ResponseMeta, fields, in_turn
from ..headers import read_headers
from ..openai_chat import OpenAIChat
from ..openai_chat.decode import include_usage, stop_words
from ..openai_chat.encode import FINISH, encode_error, usage_object

# ---- Encodes events as text_completion chunks (text, `finish_reason`, the usage chunk, `[DONE]`), and a folded Reply
# as one text_completion. Thinking is not shown: this API has no field for it.
#
# State: usage until the end. There are no calls: the request has no tools, and calls that ran elsewhere are not shown.

_CHOICE: Final = b'"choices":[{"index":0,"logprobs":null,"text":'
_UNFINISHED: Final = b',"finish_reason":null}]}\n\n'

_json = msgspec.json.Encoder().encode


class CompletionsEncoder:
    """Encodes one streamed response."""

    keep_alive: bytes = in_turn.comment("keep-alive")

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
                    out += (in_turn.data(encode_error(error)[1]), in_turn.DONE)
                case _:
                    pass  # this API has no field for other events
        return b"".join(out)

    def _finish(self, reason: StopReason, out: list[bytes]) -> None:
        self._over = True
        out += (self._head, _CHOICE, b'"","finish_reason":', _json(FINISH[reason]), b"}]}\n\n")
        usage = usage_object(self._usage) if self._include_usage else None
        if usage is not None:
            out += (self._head, b'"choices":[],"usage":', _json(usage), b"}\n\n")
        out.append(in_turn.DONE)


def render(reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
    """The whole answer as one object, equal to the stream of the same events."""
    choice = {"index": 0, "logprobs": None, "text": reply.text, "finish_reason": FINISH[reply.reason]}
    answer: dict[str, object] = {**_identity(meta), "choices": [choice]}
    usage = usage_object(reply.usage)
    if usage is not None:
        answer["usage"] = usage
    return _json(answer)


def _identity(meta: ResponseMeta) -> dict[str, object]:
    return {"id": f"cmpl-{meta.id}", "object": "text_completion", "created": meta.created, "model": meta.model}


# ---- Decodes a completion request into a TurnRequest with one user message, or raises an error that names the wrong
# field: one prompt only, no `suffix` (filling in the middle), no token arrays.
#
# Models, backends and limits are unknown here.

_IDLE: Final[dict[str, fields.Idle]] = {
    "max_tokens": fields.Idle(*fields.WHOLE),
    "temperature": fields.Idle(*fields.NUMBER, (1,)),
    "top_p": fields.Idle(*fields.NUMBER, (1,)),
    "seed": fields.Idle(*fields.WHOLE),
    "frequency_penalty": fields.Idle(*fields.NUMBER, (0,)),
    "presence_penalty": fields.Idle(*fields.NUMBER, (0,)),
    "logit_bias": fields.Idle(*fields.OBJECT, ({},)),
    "logprobs": fields.Idle(*fields.WHOLE),
    "echo": fields.Idle(*fields.FLAG, (False,)),
}
_READ: Final = frozenset({"model", "prompt", "suffix", "n", "best_of", "stop", "stream", "stream_options"})
_SILENT: Final = frozenset({"user"})
_KNOWN: Final = _READ | _IDLE.keys() | _SILENT
_ONE: Final = "Only one answer per request is possible. Send the request again for another."


def decode(body: object, headers: Mapping[str, str]) -> TurnRequest:
    if not isinstance(body, dict):
        raise bad_request(f"The request body must be a JSON object, not {fields.kind_of(body)}.", code="invalid_type")
    if body.get("model") is None:
        raise fields.missing("model", code="missing_model")
    _check(body)
    sent = read_headers(headers)
    return TurnRequest(
        model=fields.needed_string(body, "model"),
        messages=(Message(Role.USER, (Text(_prompt(body.get("prompt"))),)),),
        stop=stop_words(body.get("stop")),
        session=sent.session,
        workspace=sent.workspace,
        bridge=sent.bridge,
        stream=fields.optional_bool(body, "stream") is True,
        include_usage=include_usage(body.get("stream_options")),
        max_output=body.get("max_tokens"),
        ignored=(*fields.idle_names(body, _IDLE), *fields.listable(fields.unknown_names(body, _KNOWN))),
    )


def _prompt(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list):
        raise fields.unsupported(
            "prompt",
            "Only one prompt per request is possible, as text.",
            hint="Send a request for each prompt; token numbers cannot be read here.",
        )
    if value is None:
        raise fields.missing("prompt")
    text = fields.a_string(value, "prompt")
    if not text.strip():
        raise fields.invalid_value("prompt", "it must not be empty.")
    return text


def _check(body: Mapping[str, object]) -> None:
    for name in ("n", "best_of"):
        count = body.get(name)
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            raise fields.wrong_type(name, "an integer", count)
        if count not in (None, 1):
            raise fields.unsupported(name, _ONE)
    if body.get("suffix") not in (None, ""):
        raise fields.unsupported(
            "suffix",
            "Cursor's models do not fill in between a prompt and a suffix.",
            hint="Ask for it in words, in the prompt.",
        )


class OpenAICompletions(OpenAIChat):
    name: str = "openai_completions"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/completions",
            {"POST": Operation("complete", "OpenAI Completions", "The text", body="CompletionRequest", turn=True)},
        ),
    )
    lookups: Mapping[str, Lookup] = MappingProxyType({})

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers)

    render = staticmethod(render)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        return CompletionsEncoder(request, meta)
