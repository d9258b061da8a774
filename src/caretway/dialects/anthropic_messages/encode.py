"""Encodes events as a Messages stream (sequential content blocks, `ping` as keep-alive, stop reasons, usage in
`message_delta`), and a folded Reply as one message. Thinking is shown to clients that requested it; its signature stays
empty.

In: the events of one response. Out: SSE bytes, one piece per batch. State: the queue of content blocks, usage and notes
until the end. This API sends blocks strictly one after the other, while upstream may write two calls at once: the first
block of the queue is live, and later blocks wait until it is closed. The constant parts of a block are rendered once,
so a text delta is prefix + JSON string + suffix. No clock: ids and times are arguments.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec
from msgspec import Struct, field

from ...core import events as ev
from ...core.errors import ErrorKind, GatewayError
from ...core.events import Event, Usage
from ...core.fold import Reply
from ...core.request import ToolCall, TurnRequest
from ...core.tally import CHARS_PER_TOKEN, estimate_input
from .. import ResponseMeta, in_turn
from ..citations import cited
from ..in_turn import beside

# ---- Anthropic's usage object: `message_start` has an estimate, and `input_tokens` excludes cached tokens. Estimates
# are marked.


def estimate_text(characters: int) -> int:
    return -(-characters // CHARS_PER_TOKEN)


def first_usage(request: TurnRequest, context: int | None) -> dict[str, object]:
    """The usage in `message_start`, which needs both totals before they are known: an estimated input (`context`, else
    the size of the request) and the shortest possible answer."""
    return {"input_tokens": max(1, estimate_input(request) if context is None else context), "output_tokens": 1}


def usage_object(
    usage: Usage | None, request: TurnRequest, characters: int, context: int | None = None
) -> dict[str, object]:
    """Usage under Anthropic's names. Clients need both totals, so a missing figure is estimated from the request and
    from the length of the answer, and marked. Unlike `Usage`, `input_tokens` excludes the cache. It is never 0: Claude
    Code treats 0 as missing and adds the estimate of `message_start` to the cached tokens. If all input is cached, one
    token is shown as input."""
    counted = usage or Usage()
    read, written = counted.cached, counted.cache_write_tokens
    if counted.input_tokens is not None:
        whole = counted.input_tokens
    else:
        whole = estimate_input(request) if context is None else context
    fresh = whole - (read or 0) - (written or 0)
    if fresh <= 0:
        fresh = 1
        if written:
            written -= 1
        elif read:
            read -= 1
    shown: dict[str, object] = {
        "input_tokens": fresh,
        "output_tokens": estimate_text(characters) if counted.output_tokens is None else counted.output_tokens,
    }
    if written is not None:
        shown["cache_creation_input_tokens"] = written
    if read is not None:
        shown["cache_read_input_tokens"] = read
    if counted.reasoning_tokens is not None:
        shown["output_tokens_details"] = {"thinking_tokens": counted.reasoning_tokens}
    if counted.input_tokens is None or counted.output_tokens is None:
        shown["estimated"] = True
    return shown | beside(counted)


# ---- Maps ErrorKind to Anthropic's HTTP status and error `type` (529 overloaded, "prompt is too long" for clients that
# compact) in one table.
#
# Anthropic has few error types; `details.error_code` has the exact cause, as in Anthropic's own bodies.

THREAD_UNSUPPORTED: Final = "thread_unsupported_request"
"""On this code anthropic-python stops using message threads and sends the whole history."""


class MessagesErrorRow(Struct, frozen=True):
    status: int
    type: str
    code: str
    """Used if the error has no code of its own."""
    prefix: str = ""
    """The beginning of the message that clients look for."""


ERRORS: Final[dict[ErrorKind, MessagesErrorRow]] = {
    ErrorKind.BAD_REQUEST: MessagesErrorRow(400, "invalid_request_error", "invalid_request"),
    ErrorKind.UNSUPPORTED: MessagesErrorRow(400, "invalid_request_error", "unsupported"),
    ErrorKind.NOT_FOUND: MessagesErrorRow(404, "not_found_error", "not_found"),
    ErrorKind.WRONG_METHOD: MessagesErrorRow(405, "invalid_request_error", "method_not_allowed"),
    ErrorKind.WRONG_PROTOCOL: MessagesErrorRow(426, "invalid_request_error", "websocket_version"),
    ErrorKind.TOO_LARGE: MessagesErrorRow(413, "request_too_large", "request_too_large"),
    ErrorKind.HEAD_TOO_LARGE: MessagesErrorRow(431, "request_too_large", "headers_too_large"),
    ErrorKind.SLOW_REQUEST: MessagesErrorRow(408, "invalid_request_error", "request_timeout"),
    ErrorKind.ACCESS_DENIED: MessagesErrorRow(401, "authentication_error", "invalid_api_key"),
    ErrorKind.SIGNED_OUT: MessagesErrorRow(401, "authentication_error", "not_authenticated"),
    ErrorKind.FORBIDDEN: MessagesErrorRow(403, "permission_error", "forbidden"),
    ErrorKind.REFUSED: MessagesErrorRow(403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: MessagesErrorRow(400, "invalid_request_error", "model_not_found"),
    # Claude Code compacts the conversation when it sees these words.
    ErrorKind.CONTEXT_TOO_LONG: MessagesErrorRow(
        400, "invalid_request_error", "context_length_exceeded", prefix="prompt is too long"
    ),
    ErrorKind.QUOTA: MessagesErrorRow(402, "billing_error", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: MessagesErrorRow(429, "rate_limit_error", "rate_limited"),
    ErrorKind.OVERLOADED: MessagesErrorRow(529, "overloaded_error", "overloaded"),
    ErrorKind.TOOL_LOOP: MessagesErrorRow(502, "api_error", "tool_loop_detected"),
    ErrorKind.TURN_GONE: MessagesErrorRow(409, "invalid_request_error", "turn_gone"),
    ErrorKind.IN_PROGRESS: MessagesErrorRow(409, "invalid_request_error", "turn_in_progress"),
    ErrorKind.UPSTREAM_DOWN: MessagesErrorRow(503, "overloaded_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_PROTOCOL: MessagesErrorRow(502, "api_error", "upstream_protocol"),
    ErrorKind.UPSTREAM_DEPRECATED: MessagesErrorRow(502, "api_error", "upstream_deprecated"),
    ErrorKind.UPSTREAM_ERROR: MessagesErrorRow(502, "api_error", "upstream_error"),
    ErrorKind.TIMEOUT: MessagesErrorRow(504, "timeout_error", "upstream_timeout"),
    ErrorKind.CANCELLED: MessagesErrorRow(503, "api_error", "cancelled"),
    ErrorKind.INTERNAL: MessagesErrorRow(500, "api_error", "server_error"),
}


def encode_error(error: GatewayError) -> tuple[int, bytes]:
    """HTTP status and body. A failed stream ends with the same body as an event."""
    wire = ERRORS[error.kind]
    message = str(error)
    if wire.prefix and wire.prefix not in message.lower():
        message = f"{wire.prefix}: {message}"
    details: dict[str, object] = {"error_code": error.code or wire.code, "should_retry": error.may_repeat}
    if error.reason:
        details["reason"] = error.reason
    if error.code == THREAD_UNSUPPORTED:
        details["unsupported"] = ["thread"]
    elif error.param is not None:
        details["param"] = error.param
    body = {"type": "error", "error": {"type": wire.type, "message": message, "details": details}}
    return wire.status, msgspec.json.encode(body)


SHOW_THINKING: Final = "thinking"
"""Key in `request.echo`: the client turned thinking on. Other clients would fail on thinking blocks."""

_STOP: Final[dict[ev.StopReason, str]] = {
    ev.StopReason.END: "end_turn",
    ev.StopReason.STOP_SEQUENCE: "stop_sequence",
    ev.StopReason.LENGTH: "max_tokens",
    ev.StopReason.REFUSAL: "refusal",
}
_DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b:'
_DELTA_END: Final = b"}}\n\n"
_TEXT: Final = b'"text_delta","text"'
_THINKING: Final = b'"thinking_delta","thinking"'
_INPUT: Final = b'"input_json_delta","partial_json"'
_FOUND: Final = b'"result"'
"""Stands for a kind of block that has no deltas: a web search, its result."""
_STARTS: Final = {
    _TEXT: b'{"type":"text","text":""}',
    # Only Anthropic can sign. The signature stays empty: a client could send an invented one to Anthropic.
    _THINKING: b'{"type":"thinking","thinking":"","signature":""}',
}

_json = msgspec.json.Encoder().encode


class _Block(Struct):
    index: int
    kind: bytes
    start: bytes
    delta: bytes
    stop: bytes
    waiting: list[bytes] = field(default_factory=list)
    """Deltas that wait while an earlier block is live."""
    sent: int = 0
    """Characters of the call's arguments, sent or waiting."""
    complete: bool = False
    said: list[str] = field(default_factory=list)
    """The text, for citations."""


class MessagesEncoder:
    """Encodes one streamed response."""

    __slots__ = (
        "_begun",
        "_blocks",
        "_calls",
        "_characters",
        "_context",
        "_line",
        "_live_text",
        "_meta",
        "_notes",
        "_over",
        "_request",
        "_searches",
        "_show_thinking",
        "_sources",
        "_usage",
    )

    keep_alive: bytes = in_turn.event("ping", b'{"type":"ping"}')

    def __init__(self, request: TurnRequest, meta: ResponseMeta) -> None:
        self._request = request
        self._meta = meta
        self._show_thinking = request.echo.get(SHOW_THINKING) is True
        self._line: list[_Block] = []
        self._blocks = 0
        self._live_text = b""
        """The prefix of a text delta while the only block of the queue is text; empty otherwise. For the hot path."""
        self._calls: dict[str, _Block] = {}
        self._searches: dict[str, ev.WebSearch] = {}
        """Web searches that are not over."""
        self._sources: list[ev.WebSource] = []
        self._characters = 0
        self._context: int | None = None
        self._usage: Usage | None = None
        self._notes: dict[str, str] = {}
        self._begun = False
        self._over = False

    def feed(self, events: Sequence[Event]) -> bytes:
        if self._over:
            return b""
        out: list[bytes] = []
        for event in events:
            match event:
                case ev.TextDelta(text=text):
                    if self._live_text and text:
                        self._characters += len(text)
                        out += (self._live_text, _json(text), _DELTA_END)
                    else:
                        self._say(_TEXT, text, out)
                case ev.ReasoningDelta(text=text):
                    if self._show_thinking:
                        self._say(_THINKING, text, out)
                    else:
                        self._characters += len(text)
                case ev.TurnStarted(context_tokens=context):
                    self._context = context
                    self._begin(out)
                case ev.ToolCallStarted(id=call, name=name):
                    self._start_call(call, name, out)
                case ev.ToolCallDelta(id=call, arguments=arguments):
                    self._add(self._calls[call], arguments, out)
                case ev.ToolCallReady(id=call, arguments=arguments):
                    block = self._calls[call]
                    # Without any input delta some clients parse an empty text, others run the tool without arguments.
                    self._add(block, (arguments or "{}")[block.sent :], out)
                    self._complete(block, out)
                case ev.UsageReported(usage=usage):
                    self._usage = usage
                case ev.Note(key=key, value=value):
                    self._notes[key] = value
                case ev.TurnPaused():
                    self._finish(ev.StopReason.END, None, out)
                case ev.TurnEnded(reason=reason, stop_sequence=sequence):
                    self._finish(reason, sequence, out)
                case ev.TurnFailed(error=error):
                    self._over = True
                    out.append(in_turn.event("error", encode_error(error)[1]))
                case ev.WebSearch():
                    self._search(event, out)
                case ev.AgentActivity():
                    pass  # this API has no event for it
                case ev.Recovered():
                    pass
                case _:
                    assert_never(event)
        return b"".join(out)

    def _begin(self, out: list[bytes]) -> None:
        """Send `message_start` once. Clients need both totals here, before they are known; `message_delta` replaces the
        estimates. The mark is outside the message: inside it, SDKs would keep it with the real figures."""
        if not self._begun:
            self._begun = True
            message = message_object(self._meta, [], None, None, first_usage(self._request, self._context))
            start = {"type": "message_start", "message": message, "caretway": {"usage": "estimated"}}
            out.append(in_turn.event("message_start", _json(start)))

    def _say(self, kind: bytes, text: str, out: list[bytes]) -> None:
        if not text:
            return
        block = self._line[-1] if self._line else None
        if block is None or block.kind is not kind:
            block = self._open(kind, _STARTS[kind], out)
        self._add(block, text, out)

    def _start_call(self, call: str, name: str, out: list[bytes]) -> None:
        start = b'{"type":"tool_use","id":%b,"name":%b,"input":{}}' % (_json(call), _json(name))
        self._calls[call] = self._open(_INPUT, start, out)

    def _search(self, search: ev.WebSearch, out: list[bytes]) -> None:
        if search.id not in self._searches:
            self._searches[search.id] = search
            use = _json(_search_use(self._meta, search, {}))
            block = self._open(_INPUT, use, out)
            self._add(block, _json({"query": search.query}).decode(), out)
            self._complete(block, out)
        if search.found is not None:
            self._end_search(search, out)

    def _end_search(self, search: ev.WebSearch, out: list[bytes]) -> None:
        del self._searches[search.id]
        self._complete(self._open(_FOUND, _json(_search_result(self._meta, search)), out), out)
        self._sources += search.found or ()

    def _open(self, kind: bytes, content: bytes, out: list[bytes]) -> _Block:
        self._begin(out)
        if self._line and self._line[-1].kind is not _INPUT:
            self._complete(self._line[-1], out)  # text and thinking end where another block begins
        index = self._blocks
        self._blocks += 1
        start = b'{"type":"content_block_start","index":%d,"content_block":%b}' % (index, content)
        block = _Block(
            index,
            kind,
            start=in_turn.event("content_block_start", start),
            delta=_DELTA % (index, kind),
            stop=in_turn.event("content_block_stop", b'{"type":"content_block_stop","index":%d}' % index),
        )
        self._line.append(block)
        if len(self._line) == 1:
            out.append(block.start)
            self._live_text = block.delta if kind is _TEXT and not self._request.web_search else b""
        return block

    def _add(self, block: _Block, text: str, out: list[bytes]) -> None:
        if not text:
            return
        block.sent += len(text)
        if block.kind is _TEXT and self._request.web_search:
            block.said.append(text)
        self._characters += len(text)
        pieces = out if block is self._line[0] else block.waiting
        pieces += (block.delta, _json(text), _DELTA_END)

    def _complete(self, block: _Block, out: list[bytes]) -> None:
        if self._sources:
            self._cite(block, out)
        block.complete = True
        self._live_text = b""
        line = self._line
        while line and line[0].complete:
            out.append(line.pop(0).stop)
            if line:
                out.append(line[0].start)
                out += line[0].waiting
                line[0].waiting = []

    def _cite(self, block: _Block, out: list[bytes]) -> None:
        pieces = out if block is self._line[0] else block.waiting
        for citation in citations("".join(block.said), self._sources):
            delta = {"type": "citations_delta", "citation": citation}
            event = {"type": "content_block_delta", "index": block.index, "delta": delta}
            pieces.append(in_turn.event("content_block_delta", _json(event)))

    def _finish(self, reason: ev.StopReason, sequence: str | None, out: list[bytes]) -> None:
        self._begin(out)
        for block in tuple(self._line):
            self._complete(block, out)
        for search in tuple(self._searches.values()):
            self._end_search(search, out)
        self._over = True
        stop_reason, stop_sequence = self._stop_reason(reason, sequence)
        end: dict[str, object] = {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": stop_sequence},
            "usage": usage_object(self._usage, self._request, self._characters, self._context),
        }
        if self._notes:
            end["caretway"] = self._notes
        out += (in_turn.event("message_delta", _json(end)), in_turn.event("message_stop", b'{"type":"message_stop"}'))

    def _stop_reason(self, reason: ev.StopReason, sequence: str | None) -> tuple[str, str | None]:
        return _stop(reason, sequence, called=bool(self._calls))


def render(reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
    """The whole answer as one message, equal to the stream of the same events."""
    content: list[object] = []
    if reply.reasoning and request.echo.get(SHOW_THINKING) is True:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
    for search in reply.searches if request.web_search else ():
        content += (_search_use(meta, search, {"query": search.query}), _search_result(meta, search))
    if reply.text:
        text: dict[str, object] = {"type": "text", "text": reply.text}
        if request.web_search and (cites := citations(reply.text, reply.sources)):
            text["citations"] = cites
        content.append(text)
    content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)} for call in reply.calls]
    characters = len(reply.reasoning) + len(reply.text) + sum(len(call.arguments or "{}") for call in reply.calls)
    stop_reason, stop_sequence = _stop(reply.reason, reply.stop_sequence, called=bool(reply.calls))
    usage = usage_object(reply.usage, request, characters, reply.context_tokens)
    answer = message_object(meta, content, stop_reason, stop_sequence, usage)
    if reply.notes:
        answer["caretway"] = {note.key: note.value for note in reply.notes}
    return _json(answer)


def message_object(
    meta: ResponseMeta,
    content: list[object],
    stop_reason: str | None,
    stop_sequence: str | None,
    usage: dict[str, object],
) -> dict[str, object]:
    return {
        "id": f"msg_{meta.id}",
        "type": "message",
        "role": "assistant",
        "model": meta.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage,
    }


def _search_use(meta: ResponseMeta, search: ev.WebSearch, given: dict[str, object]) -> dict[str, object]:
    return {"type": "server_tool_use", "id": f"srvtoolu_{meta.id}_{search.id}", "name": "web_search", "input": given}


def _search_result(meta: ResponseMeta, search: ev.WebSearch) -> dict[str, object]:
    content: object = [
        # Only Anthropic can encrypt. Empty, as the signature of thinking is.
        {"type": "web_search_result", "url": source.url, "title": source.title, "encrypted_content": ""}
        for source in search.found or ()
    ]
    if search.failed:
        content = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    return {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{meta.id}_{search.id}", "content": content}


def citations(text: str, sources: Sequence[ev.WebSource]) -> list[dict[str, object]]:
    return [
        {
            "type": "web_search_result_location",
            "url": one.source.url,
            "title": one.source.title,
            "encrypted_index": "",
            "cited_text": one.source.text,
        }
        for one in cited(text, sources)
    ]


def _stop(reason: ev.StopReason, sequence: str | None, *, called: bool) -> tuple[str, str | None]:
    """(stop reason, stop sequence). With calls it is `tool_use`, because clients run calls for no other reason."""
    if called:
        return "tool_use", None
    return _STOP[reason], sequence if reason is ev.StopReason.STOP_SEQUENCE else None


def _input(call: ToolCall) -> object:
    """The arguments as parsed JSON, as this API needs them. Raises GatewayError if they are not a JSON object."""
    try:
        parsed = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError) as broken:
        raise _no_object(call) from broken
    if not isinstance(parsed, dict):
        raise _no_object(call)
    return parsed


def _no_object(call: ToolCall) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_PROTOCOL,
        f"The model called the tool {call.name!r} with arguments that are not a JSON object.",
    )
