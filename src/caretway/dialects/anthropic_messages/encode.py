"""Events -> the events of a Messages stream (content blocks one after the other, `ping` as keep-alive, stop reasons,
usage in `message_delta`), and a folded Reply -> one message. Thinking is shown to clients that asked for it; its
signature stays empty.

In: the events of one response. Out: SSE bytes, one piece per batch. Remembered: the queue of content blocks, usage and
notes until the end. In this API blocks come strictly one after the other, while upstream may write two calls at once:
the first block of the queue is live, and the later ones wait until it is closed. What never changes within a block is
rendered once, so a text delta is prefix + JSON string + suffix. Does not know the clock: ids and times are arguments.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec
from msgspec import Struct, field

from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    AgentActivity,
    Event,
    Note,
    ReasoningDelta,
    Recovered,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from ...core.fold import Reply
from ...core.request import ToolCall, TurnRequest
from .. import ResponseMeta, sse
from .errors import encode_error
from .tokens import first_usage, usage_object

SHOW_THINKING: Final = "thinking"
"""In `request.echo`: the client turned thinking on, so it expects such blocks; other clients would fail on them."""

_STOP: Final[dict[StopReason, str]] = {
    StopReason.END: "end_turn",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.LENGTH: "max_tokens",
    StopReason.REFUSAL: "refusal",
}
_DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b:'
_DELTA_END: Final = b"}}\n\n"
_TEXT: Final = b'"text_delta","text"'
_THINKING: Final = b'"thinking_delta","thinking"'
_INPUT: Final = b'"input_json_delta","partial_json"'
_STARTS: Final = {
    _TEXT: b'{"type":"text","text":""}',
    # A signature is Anthropic's to give. It stays empty: a made-up one would be sent to Anthropic some day.
    _THINKING: b'{"type":"thinking","thinking":"","signature":""}',
}

_json = msgspec.json.Encoder().encode


class _Block(Struct):
    kind: bytes
    start: bytes
    delta: bytes
    stop: bytes
    waiting: list[bytes] = field(default_factory=list)
    """Its deltas, while an earlier block is live."""
    sent: int = 0
    """Characters of a call's arguments that were sent or wait."""
    complete: bool = False


class MessagesEncoder:
    """One streamed response."""

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
        "_show_thinking",
        "_usage",
    )

    keep_alive: bytes = sse.event("ping", b'{"type":"ping"}')

    def __init__(self, request: TurnRequest, meta: ResponseMeta) -> None:
        self._request = request
        self._meta = meta
        self._show_thinking = request.echo.get(SHOW_THINKING) is True
        self._line: list[_Block] = []
        self._blocks = 0
        self._live_text = b""
        """The prefix of a text delta while the only block of the queue is text; empty otherwise. The hot path."""
        self._calls: dict[str, _Block] = {}
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
                case TextDelta(text=text):
                    if self._live_text and text:
                        self._characters += len(text)
                        out += (self._live_text, _json(text), _DELTA_END)
                    else:
                        self._say(_TEXT, text, out)
                case ReasoningDelta(text=text):
                    if self._show_thinking:
                        self._say(_THINKING, text, out)
                    else:
                        self._characters += len(text)
                case TurnStarted(context_tokens=context):
                    self._context = context
                    self._begin(out)
                case ToolCallStarted(id=call, name=name):
                    self._start_call(call, name, out)
                case ToolCallDelta(id=call, arguments=arguments):
                    self._add(self._calls[call], arguments, out)
                case ToolCallReady(id=call, arguments=arguments):
                    block = self._calls[call]
                    # Without any input some clients parse an empty text, others run the tool without its arguments.
                    self._add(block, (arguments or "{}")[block.sent :], out)
                    self._complete(block, out)
                case UsageReported(usage=usage):
                    self._usage = usage
                case Note(key=key, value=value):
                    self._notes[key] = value
                case TurnPaused():
                    self._finish(StopReason.END, None, out)
                case TurnEnded(reason=reason, stop_sequence=sequence):
                    self._finish(reason, sequence, out)
                case TurnFailed(error=error):
                    self._over = True
                    out.append(sse.event("error", encode_error(error)[1]))
                case AgentActivity():
                    pass  # no place for it in this API; the text that follows speaks for it
                case Recovered():
                    pass
                case _:
                    assert_never(event)
        return b"".join(out)

    def _begin(self, out: list[bytes]) -> None:
        """Clients need both totals here, before they are known. The real ones follow in `message_delta`, which replaces
        these. The mark is beside the message: inside it, SDKs would keep it with the real figures."""
        if not self._begun:
            self._begun = True
            message = message_object(self._meta, [], None, None, first_usage(self._request, self._context))
            start = {"type": "message_start", "message": message, "caretway": {"usage": "estimated"}}
            out.append(sse.event("message_start", _json(start)))

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

    def _open(self, kind: bytes, content: bytes, out: list[bytes]) -> _Block:
        self._begin(out)
        if self._line and self._line[-1].kind is not _INPUT:
            self._complete(self._line[-1], out)  # text and thinking end where something else begins
        index = self._blocks
        self._blocks += 1
        start = b'{"type":"content_block_start","index":%d,"content_block":%b}' % (index, content)
        block = _Block(
            kind,
            start=sse.event("content_block_start", start),
            delta=_DELTA % (index, kind),
            stop=sse.event("content_block_stop", b'{"type":"content_block_stop","index":%d}' % index),
        )
        self._line.append(block)
        if len(self._line) == 1:
            out.append(block.start)
            self._live_text = block.delta if kind is _TEXT else b""
        return block

    def _add(self, block: _Block, text: str, out: list[bytes]) -> None:
        if not text:
            return
        block.sent += len(text)
        self._characters += len(text)
        pieces = out if block is self._line[0] else block.waiting
        pieces += (block.delta, _json(text), _DELTA_END)

    def _complete(self, block: _Block, out: list[bytes]) -> None:
        block.complete = True
        self._live_text = b""
        line = self._line
        while line and line[0].complete:
            out.append(line.pop(0).stop)
            if line:
                out.append(line[0].start)
                out += line[0].waiting
                line[0].waiting = []

    def _finish(self, reason: StopReason, sequence: str | None, out: list[bytes]) -> None:
        self._begin(out)
        for block in tuple(self._line):
            self._complete(block, out)
        self._over = True
        stop_reason, stop_sequence = self._stop_reason(reason, sequence)
        end: dict[str, object] = {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": stop_sequence},
            "usage": usage_object(self._usage, self._request, self._characters, self._context),
        }
        if self._notes:
            end["caretway"] = self._notes
        out += (sse.event("message_delta", _json(end)), sse.event("message_stop", b'{"type":"message_stop"}'))

    def _stop_reason(self, reason: StopReason, sequence: str | None) -> tuple[str, str | None]:
        return _stop(reason, sequence, called=bool(self._calls))


def render(reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
    """The whole answer, equal to the stream of the same events."""
    content: list[object] = []
    if reply.reasoning and request.echo.get(SHOW_THINKING) is True:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
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


def _stop(reason: StopReason, sequence: str | None, *, called: bool) -> tuple[str, str | None]:
    """Clients run a call only if the stop reason is `tool_use`."""
    if called:
        return "tool_use", None
    return _STOP[reason], sequence if reason is StopReason.STOP_SEQUENCE else None


def _input(call: ToolCall) -> object:
    """In this API arguments are parsed JSON. Arguments that cannot be parsed are an error, and are not replaced."""
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
