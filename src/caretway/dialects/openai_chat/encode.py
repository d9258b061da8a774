"""Encodes events as chat.completion chunks (the role first, a call's id and name once, `finish_reason`, the usage
chunk, `[DONE]`, a comment as keep-alive), and a folded Reply as one chat.completion.

In: the events of one response. Out: SSE bytes, one piece per batch. State: the index of each call and how much of its
arguments was sent, usage and notes until the end. Calls are sent one after the other: interleaved calls are legal, but
some clients cannot assemble them. The constant parts of a response are rendered once, so a text delta is head + prefix
+ JSON string + suffix, and only the head differs between streams. No clock: ids and times are arguments.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, assert_never

import msgspec
from msgspec import Struct

from ...core import events as ev
from ...core.errors import ErrorKind, GatewayError
from ...core.events import Event, Usage
from ...core.fold import Reply
from ...core.request import ToolCall, TurnRequest
from .. import ResponseMeta, in_turn
from ..citations import Citation, cited
from ..in_turn import InTurn, beside

# ---- Maps ErrorKind to OpenAI's HTTP status, error `type` and `code`, for Chat Completions and Responses, in one
# table.


class ChatErrorRow(Struct, frozen=True):
    status: int
    type: str
    code: str
    """Used if the error has no code of its own."""


ERRORS: Final[dict[ErrorKind, ChatErrorRow]] = {
    ErrorKind.BAD_REQUEST: ChatErrorRow(400, "invalid_request_error", "invalid_request"),
    ErrorKind.UNSUPPORTED: ChatErrorRow(400, "invalid_request_error", "unsupported"),
    ErrorKind.NOT_FOUND: ChatErrorRow(404, "invalid_request_error", "not_found"),
    ErrorKind.WRONG_METHOD: ChatErrorRow(405, "invalid_request_error", "method_not_allowed"),
    ErrorKind.WRONG_PROTOCOL: ChatErrorRow(426, "invalid_request_error", "websocket_version"),
    ErrorKind.TOO_LARGE: ChatErrorRow(413, "invalid_request_error", "request_too_large"),
    ErrorKind.HEAD_TOO_LARGE: ChatErrorRow(431, "invalid_request_error", "headers_too_large"),
    ErrorKind.SLOW_REQUEST: ChatErrorRow(408, "invalid_request_error", "request_timeout"),
    ErrorKind.ACCESS_DENIED: ChatErrorRow(401, "authentication_error", "invalid_api_key"),
    ErrorKind.SIGNED_OUT: ChatErrorRow(401, "authentication_error", "not_authenticated"),
    ErrorKind.FORBIDDEN: ChatErrorRow(403, "permission_error", "forbidden"),
    ErrorKind.REFUSED: ChatErrorRow(403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: ChatErrorRow(400, "invalid_request_error", "model_not_found"),
    ErrorKind.CONTEXT_TOO_LONG: ChatErrorRow(400, "invalid_request_error", "context_length_exceeded"),
    ErrorKind.QUOTA: ChatErrorRow(402, "insufficient_quota", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: ChatErrorRow(429, "rate_limit_error", "rate_limited"),
    ErrorKind.OVERLOADED: ChatErrorRow(429, "rate_limit_error", "overloaded"),
    ErrorKind.TOOL_LOOP: ChatErrorRow(502, "api_error", "tool_loop_detected"),
    ErrorKind.TURN_GONE: ChatErrorRow(409, "invalid_request_error", "turn_gone"),
    ErrorKind.IN_PROGRESS: ChatErrorRow(409, "invalid_request_error", "turn_in_progress"),
    ErrorKind.UPSTREAM_DOWN: ChatErrorRow(503, "api_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_PROTOCOL: ChatErrorRow(502, "api_error", "upstream_protocol"),
    ErrorKind.UPSTREAM_DEPRECATED: ChatErrorRow(502, "api_error", "upstream_deprecated"),
    ErrorKind.UPSTREAM_ERROR: ChatErrorRow(502, "api_error", "upstream_error"),
    ErrorKind.TIMEOUT: ChatErrorRow(504, "api_error", "upstream_timeout"),
    ErrorKind.CANCELLED: ChatErrorRow(503, "api_error", "cancelled"),
    ErrorKind.INTERNAL: ChatErrorRow(500, "internal_error", "server_error"),
}


def encode_error(error: GatewayError) -> tuple[int, bytes]:
    """HTTP status and body. A failed stream ends with the same body as a data frame, so the body says whether a retry
    helps, which a header cannot say at that point."""
    wire = ERRORS[error.kind]
    body: dict[str, object] = {
        "message": str(error),
        "type": wire.type,
        "code": error.code or wire.code,
        "param": error.param,
        "status": wire.status,
        "should_retry": error.may_repeat,
    }
    if error.reason:
        body["reason"] = error.reason
    return wire.status, msgspec.json.encode({"error": body})


LEGACY_FUNCTIONS: Final = "legacy_functions"
"""Key in `request.echo`: the client declared `functions`, so it reads `function_call`, not `tool_calls`."""

FINISH: Final[dict[ev.StopReason, str]] = {
    ev.StopReason.END: "stop",
    ev.StopReason.STOP_SEQUENCE: "stop",
    ev.StopReason.LENGTH: "length",
    ev.StopReason.REFUSAL: "content_filter",
}
_DELTA: Final = b'"choices":[{"index":0,"delta":{'
_TEXT: Final = _DELTA + b'"content":'
_REASONING: Final = _DELTA + b'"reasoning_content":'
_UNFINISHED: Final = b'},"finish_reason":null}]}\n\n'

_NO_NOTES: Final[Mapping[str, str]] = MappingProxyType({})

_json = msgspec.json.Encoder().encode


class _Call(Struct):
    index: int
    sent: int = 0
    """Characters of the arguments that were sent."""


class ChatEncoder:
    """Encodes one streamed response."""

    __slots__ = (
        "_begun",
        "_calls",
        "_head",
        "_in_turn",
        "_include_usage",
        "_legacy",
        "_notes",
        "_over",
        "_runs_tools",
        "_said",
        "_shown",
        "_sources",
        "_usage",
    )

    keep_alive: bytes = in_turn.comment("keep-alive")

    def __init__(self, request: TurnRequest, meta: ResponseMeta) -> None:
        head = {"id": _id(meta), "object": "chat.completion.chunk", "created": meta.created, "model": meta.model}
        self._head = b"data: " + _json(head)[:-1] + b","
        self._include_usage = request.include_usage
        self._legacy = LEGACY_FUNCTIONS in request.echo
        self._calls: dict[str, _Call] = {}
        self._in_turn = InTurn()
        self._shown = 0
        self._runs_tools = bool(request.tools) or self._legacy
        self._said: list[str] | None = [] if request.web_search else None
        """The text so far, for citations."""
        self._sources: list[ev.WebSource] = []
        self._usage: Usage | None = None
        self._notes: Mapping[str, str] = _NO_NOTES
        self._begun = False
        self._over = False

    def feed(self, events: Sequence[Event]) -> bytes:
        if self._over:
            return b""
        simple = self._begun and self._said is None and not self._in_turn.busy
        if simple and len(events) == 1 and type(events[0]) is ev.TextDelta:
            return b"".join((self._head, _TEXT, _json(events[0].text), _UNFINISHED))
        out: list[bytes] = []
        for event in self._in_turn.order(events):
            match event:
                case ev.TextDelta(text=text):
                    if not self._begun:
                        self._begin(out)
                    if self._said is not None:
                        self._said.append(text)
                    out += (self._head, _TEXT, _json(text), _UNFINISHED)
                case ev.ReasoningDelta(text=text):
                    if not self._begun:
                        self._begin(out)
                    out += (self._head, _REASONING, _json(text), _UNFINISHED)
                case ev.TurnStarted():
                    self._begin(out)
                case ev.ToolCallStarted(id=call, name=name):
                    self._begin(out)
                    self._start_call(call, name, out)
                case ev.ToolCallDelta(id=call, arguments=arguments):
                    self._add_arguments(self._calls[call], arguments, out)
                case ev.ToolCallReady(id=call, arguments=arguments):
                    known = self._calls[call]
                    self._add_arguments(known, arguments[known.sent :], out)
                case ev.UsageReported(usage=usage):
                    self._usage = usage
                case ev.Note(key=key, value=value):
                    self._notes = {**self._notes, key: value}
                case ev.TurnPaused() | ev.TurnEnded():
                    if not self._begun:
                        self._begin(out)
                    self._finish(event.reason if isinstance(event, ev.TurnEnded) else ev.StopReason.END, out)
                case ev.TurnFailed(error=error):
                    self._over = True
                    out += (in_turn.data(encode_error(error)[1]), in_turn.DONE)
                case ev.AgentActivity(call=ran):
                    if ran is not None:  # otherwise only the text after it shows it
                        self._show_call(ran, out)
                case ev.WebSearch(found=found):  # this API shows only its citations
                    self._sources += found or ()
                case ev.Recovered():
                    pass
                case _:
                    assert_never(event)
        return b"".join(out)

    def _begin(self, out: list[bytes]) -> None:
        """Send the role once: clients read it from the first delta, and some fail without it."""
        if not self._begun:
            self._begun = True
            out += (self._head, _DELTA, b'"role":"assistant","content":""', _UNFINISHED)

    def _start_call(self, call: str, name: str, out: list[bytes]) -> None:
        """Send id, type and name only once: some clients append repeated fields."""
        known = self._calls[call] = _Call(len(self._calls) + self._shown)
        if self._legacy:
            if known.index == 0:
                out += (self._head, _DELTA, b'"function_call":{"name":', _json(name), b',"arguments":""}', _UNFINISHED)
            return
        head = b'"tool_calls":[{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":""}}]'
        out += (self._head, _DELTA, head % (known.index, _json(call), _json(name)), _UNFINISHED)

    def _show_call(self, ran: ToolCall, out: list[bytes]) -> None:
        """Show a call that already ran like any other call; the finish reason does not request its result. Hidden from
        clients with tools, because some run every call that they see."""
        if self._runs_tools:
            return
        self._begin(out)
        function = {"name": ran.name, "arguments": ran.arguments}
        call = {"index": len(self._calls) + self._shown, "id": ran.id, "type": "function", "function": function}
        self._shown += 1
        out += (self._head, _DELTA, b'"tool_calls":[', _json(call), b"]", _UNFINISHED)

    def _add_arguments(self, call: _Call, arguments: str, out: list[bytes]) -> None:
        if not arguments:
            return
        call.sent += len(arguments)
        if self._legacy:
            if call.index == 0:
                out += (self._head, _DELTA, b'"function_call":{"arguments":', _json(arguments), b"}", _UNFINISHED)
            return
        body = b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (call.index, _json(arguments))
        out += (self._head, _DELTA, body, _UNFINISHED)

    def _finish(self, reason: ev.StopReason, out: list[bytes]) -> None:
        self._over = True
        if self._sources and (cites := _annotations("".join(self._said or ()), self._sources)):
            out += (self._head, _DELTA, b'"annotations":', _json(cites), _UNFINISHED)
        notes = b',"caretway":' + _json(self._notes) if self._notes else b""
        finish = _json(_finish_reason(reason, called=bool(self._calls), legacy=self._legacy))
        out += (self._head, _DELTA, b'},"finish_reason":', finish, b"}]", notes, b"}\n\n")
        usage = usage_object(self._usage) if self._include_usage else None
        if usage is not None:
            out += (self._head, b'"choices":[],"usage":', _json(usage), b"}\n\n")
        out.append(in_turn.DONE)


def render(reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
    """The whole answer as one object, equal to the stream of the same events."""
    legacy = LEGACY_FUNCTIONS in request.echo
    message: dict[str, object] = {
        "role": "assistant",
        "content": None if reply.calls and not reply.text else reply.text,
        "refusal": None,
    }
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if request.web_search and (cites := _annotations(reply.text, reply.sources)):
        message["annotations"] = cites
    calls = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in reply.calls]
    visible = () if request.tools else reply.shown
    ran = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in visible]
    if calls and legacy:
        message["function_call"] = calls[0][1]
    elif (calls or ran) and not legacy:
        shown = [*ran, *calls]
        message["tool_calls"] = [{"id": call, "type": "function", "function": function} for call, function in shown]
    finish = _finish_reason(reply.reason, called=bool(calls), legacy=legacy)
    answer: dict[str, object] = {
        "id": _id(meta),
        "object": "chat.completion",
        "created": meta.created,
        "model": meta.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    usage = usage_object(reply.usage)
    if usage is not None:
        answer["usage"] = usage
    if reply.notes:
        answer["caretway"] = {note.key: note.value for note in reply.notes}
    return _json(answer)


def _annotations(text: str, sources: Sequence[ev.WebSource]) -> list[dict[str, object]]:
    return [{"type": "url_citation", "url_citation": url_citation(one)} for one in cited(text, sources)]


def url_citation(one: Citation) -> dict[str, object]:
    return {"start_index": one.start, "end_index": one.end, "title": one.source.title, "url": one.source.url}


def usage_object(usage: Usage | None) -> Mapping[str, object] | None:
    """The known figures under OpenAI's names, or None without figures. An unknown figure is omitted, not zero."""
    if usage is None or (usage.input_tokens is None and usage.output_tokens is None):
        return None
    fields: dict[str, object] = {}
    if usage.input_tokens is not None:
        fields["prompt_tokens"] = usage.input_tokens
    if usage.output_tokens is not None:
        fields["completion_tokens"] = usage.output_tokens
    if usage.input_tokens is not None and usage.output_tokens is not None:
        fields["total_tokens"] = usage.input_tokens + usage.output_tokens
    if (cached := usage.cached) is not None:
        fields["prompt_tokens_details"] = {"cached_tokens": cached}
    if usage.reasoning_tokens is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return fields | beside(usage)


def _finish_reason(reason: ev.StopReason, *, called: bool, legacy: bool) -> str:
    if called:
        return "function_call" if legacy else "tool_calls"
    return FINISH[reason]


def _id(meta: ResponseMeta) -> str:
    return f"chatcmpl-{meta.id}"
