"""Encodes events as the numbered events of a Responses stream (sequential items, `response.in_progress` as keep-alive,
incomplete and failed ends), and a folded Reply as one response object. Keeps the response in the store.

In: the events of one response. Out: SSE bytes, one piece per batch. State: the next sequence number, the open text
item, the open calls, and every finished item, because the last event repeats them all. Items are sent one after the
other: events during an open call wait until the call is complete. The constant parts of an item are rendered once, so a
text delta is head + number + middle + JSON string + end. A finished response is stored if the request says `store`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, assert_never

import msgspec
from msgspec import Struct, field

from ...core import events as ev
from ...core.events import Event, Usage
from ...core.fold import Reply, ReplyPart
from ...core.request import Reasoning, Text, ToolCall, TurnRequest
from .. import ResponseMeta
from ..in_turn import InTurn
from .objects import (
    INCOMPLETE,
    Status,
    annotations,
    call_item,
    free_text,
    item_id,
    message_item,
    reasoning_item,
    response_id,
    response_object,
    search_item,
    summary_part,
    text_part,
)
from .store import ResponseStore
from .tools import Declared, RequestEcho, echo_of

_json = msgspec.json.Encoder().encode


class _Form(Struct, frozen=True):
    """The event names and fields of one kind of text item."""

    kind: Literal["message", "reasoning"]
    part: str
    text: str
    place: str
    """The field with the index of the part, which is always 0."""
    has_logprobs: bool


_MESSAGE: Final = _Form("message", "response.content_part", "response.output_text", "content_index", True)
_REASONING: Final = _Form(
    "reasoning", "response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index", False
)


def _head(name: str) -> bytes:
    return b'event: %b\ndata: {"type":"%b","sequence_number":' % (name.encode(), name.encode())


_HEADS: Final = {form.kind: _head(f"{form.text}.delta") for form in (_MESSAGE, _REASONING)}
_ENDS: Final = {"message": b',"logprobs":[]}\n\n', "reasoning": b"}\n\n"}


class _Run(Struct):
    """An open text item."""

    form: _Form
    name: str
    index: int
    head: bytes
    middle: bytes
    end: bytes
    pieces: list[str] = field(default_factory=list)


class _Call(Struct):
    name: str
    index: int
    tool: Declared
    sent: int = 0
    """Characters of the arguments that were sent."""


class ResponsesEncoder:
    """Encodes one streamed response."""

    __slots__ = (
        "_calls",
        "_echo",
        "_in_turn",
        "_meta",
        "_notes",
        "_opening",
        "_output",
        "_over",
        "_run",
        "_searches",
        "_seq",
        "_sources",
        "_store",
        "_usage",
    )

    def __init__(self, request: TurnRequest, meta: ResponseMeta, store: ResponseStore) -> None:
        self._meta = meta
        self._echo = echo_of(request)
        self._store = store
        self._seq = 0
        self._output: list[Mapping[str, object] | None] = []
        """Finished items by output index; None while an item is open."""
        self._run: _Run | None = None
        self._calls: dict[str, _Call] = {}
        self._searches: dict[str, tuple[int, ev.WebSearch]] = {}
        """Web searches that are not over, with their output index."""
        self._sources: list[ev.WebSource] = []
        self._in_turn = InTurn()
        self._usage: Usage | None = None
        self._notes: dict[str, str] = {}
        self._opening = b""
        self._over = False

    @property
    def keep_alive(self) -> bytes:
        """A real event, not a comment: Codex resets its timeout on events, not on bytes."""
        out: list[bytes] = []
        if not self._over and not self._begin(out):
            self._say(out, "response.in_progress", self._opening)
        return b"".join(out)

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        for event in self._in_turn.order(events):
            if self._over:
                break
            match event:
                case ev.TextDelta(text=text):
                    if text:
                        self._add_text(_MESSAGE, text, out)
                case ev.ReasoningDelta(text=text):
                    if text and self._echo.show_reasoning:
                        self._add_text(_REASONING, text, out)
                case ev.TurnStarted():
                    self._begin(out)
                case ev.ToolCallStarted(id=call, name=name):
                    self._start_call(call, name, out)
                case ev.ToolCallDelta(id=call, arguments=arguments):
                    self._add_arguments(self._calls[call], arguments, out)
                case ev.ToolCallReady(id=call, arguments=arguments):
                    self._finish_call(self._calls[call], call, arguments, out)
                case ev.UsageReported(usage=usage):
                    self._usage = usage
                case ev.Note(key=key, value=value):
                    self._notes[key] = value
                case ev.TurnPaused() | ev.TurnEnded() | ev.TurnFailed():
                    self._finish(event, out)
                case ev.WebSearch():
                    self._search(event, out)
                case ev.AgentActivity():
                    pass  # this API has no item for it
                case ev.Recovered():
                    pass
                case _:
                    assert_never(event)
        return b"".join(out)

    # ---- frames

    def _say(self, out: list[bytes], name: str, rest: bytes) -> None:
        """Add an event with the next number. `rest`: the other fields of the event, as JSON without the braces."""
        out += (_head(name), b"%d," % self._seq, rest, b"}\n\n")
        self._seq += 1

    def _tell(self, out: list[bytes], name: str, /, **fields: object) -> None:
        self._say(out, name, _json(fields)[1:-1])

    def _begin(self, out: list[bytes]) -> bool:
        """Send the first events once. True if this call sent them."""
        if self._opening:
            return False
        self._opening = _json({"response": response_object(self._meta, self._echo, status="in_progress")})[1:-1]
        self._say(out, "response.created", self._opening)
        self._say(out, "response.in_progress", self._opening)
        return True

    # ---- text

    def _add_text(self, form: _Form, text: str, out: list[bytes]) -> None:
        run = self._run
        if run is None or run.form is not form:
            run = self._open_run(form, out)
        run.pieces.append(text)
        out += (run.head, b"%d" % self._seq, run.middle, _json(text), run.end)
        self._seq += 1

    def _open_run(self, form: _Form, out: list[bytes]) -> _Run:
        self._begin(out)
        self._close_run("completed", out)
        index = self._new_index()
        name = item_id(form.kind, self._meta, index)
        place = {"item_id": name, "output_index": index, form.place: 0}
        middle = b"," + _json(place)[1:-1] + b',"delta":'
        run = self._run = _Run(form, name, index, _HEADS[form.kind], middle, _ENDS[form.kind])
        empty = message_item(name, "in_progress", ()) if form is _MESSAGE else reasoning_item(name, ())
        self._tell(out, "response.output_item.added", output_index=index, item=empty)
        part = text_part("") if form is _MESSAGE else summary_part("")
        self._tell(out, f"{form.part}.added", **place, part=part)
        return run

    def _close_run(self, status: Status, out: list[bytes]) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        form, text = run.form, "".join(run.pieces)
        place = {"item_id": run.name, "output_index": run.index, form.place: 0}
        logprobs: dict[str, object] = {"logprobs": []} if form.has_logprobs else {}
        self._tell(out, f"{form.text}.done", **place, text=text, **logprobs)
        notes = annotations(text, self._sources) if self._sources and form is _MESSAGE else []
        for index, note in enumerate(notes):
            name = "response.output_text.annotation.added"
            self._tell(out, name, **place, annotation_index=index, annotation=note)
        part = text_part(text, notes) if form is _MESSAGE else summary_part(text)
        self._tell(out, f"{form.part}.done", **place, part=part)
        self._close_item(run.index, _text_item(form.kind, run.name, status, text, notes), out)

    def _new_index(self) -> int:
        self._output.append(None)
        return len(self._output) - 1

    def _close_item(self, index: int, item: Mapping[str, object], out: list[bytes]) -> None:
        self._output[index] = item
        self._tell(out, "response.output_item.done", output_index=index, item=item)

    # ---- web searches

    def _search(self, search: ev.WebSearch, out: list[bytes]) -> None:
        if search.id not in self._searches:
            self._start_search(search, out)
        if search.found is not None:
            index, _ = self._searches.pop(search.id)
            self._sources += search.found
            self._end_search(index, search, out)

    def _start_search(self, search: ev.WebSearch, out: list[bytes]) -> None:
        self._begin(out)
        self._close_run("completed", out)
        index = self._new_index()
        self._searches[search.id] = index, search
        name = item_id("web", self._meta, index)
        item = search_item(name, ev.WebSearch(search.id, search.query), over=False)
        self._tell(out, "response.output_item.added", output_index=index, item=item)
        for state in ("in_progress", "searching"):
            self._tell(out, f"response.web_search_call.{state}", output_index=index, item_id=name)

    def _end_search(self, index: int, search: ev.WebSearch, out: list[bytes]) -> None:
        name = item_id("web", self._meta, index)
        if search.found is not None and not search.failed:
            self._tell(out, "response.web_search_call.completed", output_index=index, item_id=name)
        self._close_item(index, search_item(name, search), out)

    # ---- calls

    def _start_call(self, call: str, name: str, out: list[bytes]) -> None:
        self._begin(out)
        self._close_run("completed", out)
        index = self._new_index()
        tool = self._echo.declared(name)
        opened = self._calls[call] = _Call(item_id(tool.kind, self._meta, index), index, tool)
        item = call_item(opened.name, "in_progress", call, tool, "")
        self._tell(out, "response.output_item.added", output_index=index, item=item)

    def _add_arguments(self, call: _Call, arguments: str, out: list[bytes]) -> None:
        """Send a function's arguments. A custom tool's input is JSON upstream, so its text is known only at the end."""
        if arguments and call.tool.kind == "function":
            call.sent += len(arguments)
            name = "response.function_call_arguments.delta"
            self._tell(out, name, item_id=call.name, output_index=call.index, delta=arguments)

    def _finish_call(self, call: _Call, call_id: str, arguments: str, out: list[bytes]) -> None:
        place = {"item_id": call.name, "output_index": call.index}
        if call.tool.kind == "custom":
            arguments = free_text(arguments)
            if arguments:
                self._tell(out, "response.custom_tool_call_input.delta", **place, delta=arguments)
            self._tell(out, "response.custom_tool_call_input.done", **place, input=arguments)
        elif call.tool.kind == "function":
            self._add_arguments(call, arguments[call.sent :], out)
            name = "response.function_call_arguments.done"
            self._tell(out, name, **place, name=call.tool.name, arguments=arguments)
        self._close_item(call.index, call_item(call.name, "completed", call_id, call.tool, arguments), out)

    # ---- the end

    def _finish(self, end: ev.TurnPaused | ev.TurnEnded | ev.TurnFailed, out: list[bytes]) -> None:
        self._begin(out)
        if isinstance(end, ev.TurnFailed):
            self._drop_run()
            self._complete(
                out,
                "failed",
                response_object(
                    self._meta,
                    self._echo,
                    status="failed",
                    output=self._done(),
                    usage=self._usage,
                    error=end.error,
                    notes=self._notes.items(),
                ),
            )
            return
        cause = cause_of(end.reason if isinstance(end, ev.TurnEnded) else ev.StopReason.END, called=bool(self._calls))
        status: Literal["completed", "incomplete"] = "completed" if cause is None else "incomplete"
        self._close_run(status, out)
        for index, search in self._searches.values():
            self._end_search(index, search, out)
        self._complete(
            out,
            status,
            response_object(
                self._meta,
                self._echo,
                status=status,
                output=self._done(),
                usage=self._usage,
                incomplete=cause,
                notes=self._notes.items(),
            ),
        )

    def _drop_run(self) -> None:
        """Add the open text as an incomplete item to the failed response, without the item's closing events."""
        run, self._run = self._run, None
        if run is not None:
            self._output[run.index] = _text_item(run.form.kind, run.name, "incomplete", "".join(run.pieces))

    def _done(self) -> list[Mapping[str, object]]:
        return [item for item in self._output if item is not None]

    def _complete(self, out: list[bytes], word: str, response: Mapping[str, object]) -> None:
        self._over = True
        body = _json(response)
        self._say(out, f"response.{word}", b'"response":' + body)
        keep(self._store, self._meta, self._echo, body, self._done())


def render(reply: Reply, request: TurnRequest, meta: ResponseMeta, store: ResponseStore) -> bytes:
    """The whole answer, equal to the object that ends the stream of the same events."""
    echo = echo_of(request)
    cause = cause_of(reply.reason, called=bool(reply.calls))
    status: Literal["completed", "incomplete"] = "completed" if cause is None else "incomplete"
    parts = list(_shown(reply, echo))
    output: list[Mapping[str, object]] = []
    sources: list[ev.WebSource] = []
    for index, part in enumerate(parts):
        match part:
            case ToolCall(id=call, name=name, arguments=arguments):
                tool = echo.declared(name)
                shown = free_text(arguments) if tool.kind == "custom" else arguments
                output.append(call_item(item_id(tool.kind, meta, index), "completed", call, tool, shown))
            case ev.WebSearch():
                output.append(search_item(item_id("web", meta, index), part))
                sources += part.found or ()
            case Text(text=text) | Reasoning(text=text):
                kind: Literal["message", "reasoning"] = "message" if isinstance(part, Text) else "reasoning"
                last = index == len(parts) - 1
                notes = annotations(text, sources) if sources and isinstance(part, Text) else []
                name = item_id(kind, meta, index)
                output.append(_text_item(kind, name, status if last else "completed", text, notes))
            case _:
                assert_never(part)
    body = _json(
        response_object(
            meta,
            echo,
            status=status,
            output=output,
            usage=reply.usage,
            incomplete=cause,
            notes=((note.key, note.value) for note in reply.notes),
        )
    )
    keep(store, meta, echo, body, output)
    return body


def _shown(reply: Reply, echo: RequestEcho) -> Iterator[ReplyPart]:
    """The parts of the answer. If reasoning is hidden, the texts before and after it are joined."""
    parts = reply.parts or (Reasoning(reply.reasoning), Text(reply.text), *reply.calls)
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCall | ev.WebSearch) or echo.show_reasoning:
            if text := "".join(texts):
                yield Text(text)
            texts = []
            if not isinstance(part, Reasoning) or part.text:
                yield part
    if text := "".join(texts):
        yield Text(text)


def _text_item(
    kind: Literal["message", "reasoning"],
    name: str,
    status: Status,
    text: str,
    notes: Sequence[Mapping[str, object]] = (),
) -> dict[str, object]:
    if kind == "message":
        return message_item(name, status, (text_part(text, notes),))
    return reasoning_item(name, (summary_part(text),))


def cause_of(reason: ev.StopReason, *, called: bool) -> str | None:
    """Why a response is incomplete. A response with calls is always complete, because the calls must be answered."""
    return None if called else INCOMPLETE.get(reason)


def keep(
    store: ResponseStore, meta: ResponseMeta, echo: RequestEcho, body: bytes, output: Sequence[Mapping[str, object]]
) -> None:
    if echo.store:
        name = response_id(meta)
        store.keep(name, body, echo.input, output, echo.previous, owner=echo.owner, passing=echo.passing)
