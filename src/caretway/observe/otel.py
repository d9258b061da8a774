"""Traces and metrics for OpenTelemetry, made from records of finished work and sent to an OTLP collector over HTTP.
Needs the extra `otel`; imported only if the `OTEL_` variables ask for it. The SDK reads the remaining variables itself.

Names follow the package `opentelemetry-semantic-conventions` in `VERSION`, which has the names for generative AI in a
private module; a test compares them. Nothing is reported between the deltas of a stream.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import __version__
from ..core.events import Tokens, Usage, WebSearch
from ..core.fold import Reply
from ..core.records import Observer, RefusedRequest, RunRecord, TurnRecord
from ..core.request import Image, Part, Reasoning, Text, ToolCall, ToolResult, TurnRequest, last_answer
from .metrics import Names

VERSION: Final = "0.66b2"
"""The version of the package `opentelemetry-semantic-conventions`."""
SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
LAST_WORDS_S: Final = 2.0
"""How long shutdown waits for unsent data."""
COMPLAINTS_EVERY_S: Final = 60.0
"""The minimum interval between warnings about a collector that accepts nothing."""
MAX_NAME_CHARS: Final = 128
"""The limit for a client's name in a span's name."""
MAX_REMEMBERED: Final = 1024
"""The limit for remembered runs, and for the requests that they may belong to."""
MAX_MODELS: Final = 100
"""The number of model names that get their own series in metrics."""
MAX_TEXT_CHARS: Final = 8192
"""The limit for one part of a message."""
MAX_PARTS: Final = 64
"""The limit for the newest parts of one request, and of one answer."""
PAUSED: Final = "paused"
_FINISHED: Final = {
    "end": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "refusal": "content_filter",
    PAUSED: "tool_call",
}
"""Outcome of an answer -> the convention's word. Every other outcome is an error."""
_GOOD_RUNS: Final = frozenset({"ended", "paused", "stopped", "hung_up", "expired", "evicted", "shutdown"})
"""Outcomes that are no failure of the run: it ended by itself, or was ended from outside."""
_ANSWERABLE: Final = frozenset({"ended", "paused"})
"""Outcomes of a run after which results of its calls may still arrive."""
_HISTOGRAMS: Final = {
    "gen_ai.client.operation.duration": (
        "s",
        "GenAI operation duration.",
        (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    ),
    "gen_ai.client.operation.time_to_first_chunk": (
        "s",
        "Time to the first chunk of a streamed answer.",
        (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ),
    "gen_ai.client.token.usage": (
        "{token}",
        "Number of input and output tokens used.",
        tuple(4.0**power for power in range(14)),  # 1 to 67,108,864
    ),
    "http.server.request.duration": (
        "s",
        "Duration of HTTP server requests.",
        (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ),
}
"""Metric -> (unit, description, buckets)."""
_NO_PARENT: Final = Context()
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_RUN: Final = "invoke_agent cursor"
_OF_RUNS: Final = (
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.conversation.id",
    "caretway.backend",
    "caretway.key",
    "caretway.run.id",
)
"""Attributes of an answer that also apply to its run."""
_UNNAMED: Final = "unknown_service"
Attributes = dict[str, Any]
Hide = Callable[[str], str]
T = TypeVar("T")
log = logging.getLogger(__name__)


# ---- where it goes


class Telemetry:
    """The selected observers and the SDK's threads behind them. A dead or slow collector does not delay requests: spans
    wait in a bounded queue."""

    def __init__(self, routes: Mapping[str, str], scheme: str, *, traces: bool, metrics: bool) -> None:
        """`routes`: the name of each API -> its route for answers."""
        self.observers: list[Observer] = []
        self._ends: list[Callable[[], None]] = []
        resource = _resource()
        for exporter in (OTLPSpanExporter, OTLPMetricExporter):
            logging.getLogger(exporter.__module__).addFilter(_SELDOM)
        if traces:
            provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            spans = Spans(provider.get_tracer("caretway", __version__, SCHEMA), routes, scheme)
            self.observers.append(spans)
            self._ends.append(partial(_end_spans, spans, provider))
        if metrics:
            reader = PeriodicExportingMetricReader(OTLPMetricExporter())
            meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
            self.observers.append(Histograms(meters.get_meter("caretway", __version__, SCHEMA), routes, scheme))
            self._ends.append(meters.shutdown)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        """Ends the SDK in daemon threads, because the SDK retries a dead collector for half a minute."""
        threads = [threading.Thread(target=end, name="caretway-otel-end", daemon=True) for end in self._ends]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + LAST_WORDS_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            log.warning("the OpenTelemetry collector did not take the last spans or metrics in time")


def _end_spans(spans: "Spans", provider: TracerProvider) -> None:
    spans.close()
    provider.shutdown()


class _Seldom(logging.Filter):
    """Passes one warning about a dead collector per interval, not one per attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created < self._next.get(record.name, 0.0):
            return False
        self._next[record.name] = record.created + COMPLAINTS_EVERY_S
        return True


_SELDOM: Final = _Seldom()


def _resource() -> Resource:
    """`OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over the defaults."""
    given = Resource.create()
    ours = {}
    if str(given.attributes.get("service.name", _UNNAMED)).startswith(_UNNAMED):
        ours["service.name"] = "caretway"
    if "service.version" not in given.attributes:
        ours["service.version"] = __version__
    return given.merge(Resource(ours))


# ---- spans


class _Run(msgspec.Struct):
    """A run with a span, and the calls of its last answer that have no results yet."""

    span: trace.Span
    over: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    """(id, name) of each call."""
    since: float = 0.0
    conversation: str = ""
    answered: tuple[tuple[str, str], ...] = ()
    """The calls of the newest answer whose results have arrived."""

    @property
    def context(self) -> trace.SpanContext:
        return self.span.get_span_context()


class Spans(Observer):
    """A request's trace holds the request, its answer (`chat`) and the run that it opened (`invoke_agent`) with that
    run's tool steps (`execute_tool`). A later request of the run may be in another trace: its answer links to the run.
    """

    def __init__(self, tracer: trace.Tracer, routes: Mapping[str, str], scheme: str = "http") -> None:
        self._tracer = tracer
        self._routes = routes
        self._scheme = scheme
        self._requests: OrderedDict[str, trace.SpanContext] = OrderedDict()
        self._early: OrderedDict[str, list[RunRecord]] = OrderedDict()  # by request: ended before their response
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def response_ended(self, record: TurnRecord) -> None:
        began, ended = record.started_at, _ended(record)
        inside = self._request(record, "POST", began, ended)
        answer = answer_attributes(record)
        run = self._runs.get(record.run)
        if run is None:
            opened = _only(answer, *_OF_RUNS) | {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "cursor"}
            run = self._add(record.run, _Run(self._span(_RUN, opened, inside, began)))
        name = f"chat {answer.get('gen_ai.request.model', '')}"
        self._span(name, answer, inside, began, ended, linked=run.context)
        if record.session == "resumed" and run.calls:
            run.answered = run.calls
            self._end_step(run, began)
        if record.outcome == PAUSED and record.called and record.called != run.answered:  # an answer may come twice
            run.calls, run.since, run.conversation = record.called, ended, record.conversation

    def run_ended(self, record: RunRecord) -> None:
        origin = record.origin.request_id
        run, request = self._runs.get(_base(record.run)), self._requests.get(origin)
        if run is not None and not run.over:
            run.over = True
            _end(run.span, run_attributes(record), record.ended_at)
        elif request is None:
            _remember(self._early, origin, [*self._early.get(origin, ()), record])
        elif not record.again:
            self._run(record, _below(request))
        if run is not None and run.over and record.outcome not in _ANSWERABLE:
            self._end_step(run, record.ended_at, record.outcome)

    def request_refused(self, record: RefusedRequest) -> None:
        if record.turn and record.dialect in self._routes:
            self._request(record, record.method, record.at, record.at)

    def close(self) -> None:
        """Ends the spans of unfinished runs."""
        for run in self._runs.values():
            if not run.over:
                run.span.end()
        self._runs.clear()

    def _request(self, record: TurnRecord | RefusedRequest, method: str, began: float, ended: float) -> Context:
        """Makes the span of a request and the spans of its runs that ended before it. Returns the context for child
        spans."""
        parent = _PROPAGATOR.extract(record.trace, context=_NO_PARENT) if record.trace else _NO_PARENT
        route = self._routes[record.dialect]
        attributes = request_attributes(record, method, route, self._scheme)
        span = self._span(f"{method} {route}", attributes, parent, began, ended, kind=trace.SpanKind.SERVER)
        _remember(self._requests, record.request_id, span.get_span_context())
        inside = _below(span.get_span_context())
        for over in self._early.pop(record.request_id, ()):
            self._run(over, inside)
        return inside

    def _run(self, record: RunRecord, inside: Context) -> None:
        span = self._span(_RUN, run_attributes(record), inside, record.started_at, record.ended_at)
        known = self._runs.get(_base(record.run))
        if known is None:
            self._add(_base(record.run), _Run(span, over=True))
        elif known.over:
            known.span = span

    def _add(self, key: str, run: _Run) -> _Run:
        forgotten = _remember(self._runs, key, run)
        if forgotten is not None and not forgotten.over:
            forgotten.span.end()
        return run

    def _end_step(self, run: _Run, at: float, error: str = "") -> None:
        """Makes one span for each call: from the answer that holds it to the request with its result, or to the end of
        the run."""
        for call, tool in run.calls:
            tool = tool[:MAX_NAME_CHARS]
            attributes = _given(
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": tool,
                    "gen_ai.tool.type": "function",
                    "gen_ai.tool.call.id": call,
                    "gen_ai.conversation.id": run.conversation,
                    "error.type": error,
                }
            )
            inside, ended = _below(run.context), max(run.since, at)
            self._span(f"execute_tool {tool}", attributes, inside, run.since, ended, kind=trace.SpanKind.INTERNAL)
        run.calls = ()

    def _span(
        self,
        name: str,
        attributes: Attributes,
        inside: Context,
        began: float,
        ended: float | None = None,
        *,
        kind: trace.SpanKind = trace.SpanKind.CLIENT,
        linked: trace.SpanContext | None = None,
    ) -> trace.Span:
        """Starts a span and ends it at `ended`; None leaves it open."""
        links = [trace.Link(linked)] if linked is not None else ()
        span = self._tracer.start_span(name, inside, kind, attributes, links, start_time=_ns(began))
        if ended is not None:
            _end(span, attributes, ended)
        return span


def _end(span: trace.Span, attributes: Attributes, at: float) -> None:
    span.set_attributes(attributes)
    if "error.type" in attributes and attributes.get("http.response.status_code", 500) >= 500:  # a 4xx is the client's
        span.set_status(trace.Status(trace.StatusCode.ERROR))
    span.end(_ns(at))


def _below(parent: trace.SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), _NO_PARENT)


def _remember(table: OrderedDict[str, T], key: str, value: T) -> T | None:
    """Adds an entry. Returns the entry that it displaced."""
    table[key] = value
    table.move_to_end(key)
    return table.popitem(last=False)[1] if len(table) > MAX_REMEMBERED else None


def _base(run: str) -> str:
    """The run of a record: a turn with several totals has the records `RUN`, `RUN.2` ..."""
    return run.partition(".")[0]


def _ended(record: TurnRecord) -> float:
    return record.started_at + record.total_ms / 1000


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


# ---- attributes


def request_attributes(record: TurnRecord | RefusedRequest, method: str, route: str, scheme: str) -> Attributes:
    attributes: dict[str, Any] = {
        "http.request.method": method,
        "http.route": route,
        "url.path": route,
        "url.scheme": scheme,
        "http.response.status_code": record.status or None,  # 0: the client hung up before there was one
        "user_agent.name": record.caller.client,
        "caretway.key": record.caller.key,
        "caretway.request.id": record.request_id,
    }
    if isinstance(record, RefusedRequest):
        attributes |= {"gen_ai.request.model": record.model, "error.type": record.code or record.kind}
    else:
        attributes |= {"gen_ai.conversation.id": record.conversation, "caretway.backend": record.backend}
        attributes["error.type"] = record.error if record.status >= 500 else ""
    return _given(attributes)


def answer_attributes(record: TurnRecord) -> Attributes:
    finished = _FINISHED.get(record.outcome)
    usage = record.usage or Usage()
    streamed = record.stream and record.first_event_ms is not None
    said, answered = record.content or (None, None)
    return _given(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "cursor",
            "gen_ai.request.model": (record.asked or record.model)[:MAX_NAME_CHARS],
            "gen_ai.conversation.id": record.conversation,
            "gen_ai.response.model": record.variant or record.model,
            "gen_ai.response.finish_reasons": [finished or "error"],
            "gen_ai.request.stream": record.stream,
            "gen_ai.response.time_to_first_chunk": (record.first_event_ms or 0.0) / 1000 if streamed else None,
            **_tokens(usage),
            "gen_ai.input.messages": said,
            "gen_ai.output.messages": answered,
            "caretway.session": record.session,
            "caretway.session.reason": record.reason,
            "caretway.usage.estimated": usage.estimated,
            "caretway.run.id": record.run,
            "caretway.backend": record.backend,
            "caretway.key": record.caller.key,
            "caretway.request.id": record.request_id,
            "error.type": "" if finished else record.error or record.outcome,
        }
    )


def run_attributes(record: RunRecord) -> Attributes:
    return _given(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "cursor",
            "gen_ai.agent.name": "cursor",
            "gen_ai.request.model": (record.origin.model or record.model)[:MAX_NAME_CHARS],
            "gen_ai.conversation.id": record.conversation,
            "gen_ai.response.model": record.variant or record.model,
            **(_tokens(record.usage) if record.usage is not None else {}),
            "caretway.backend": record.backend,
            "caretway.key": record.origin.caller.key,
            "caretway.session": record.session,
            "caretway.session.reason": record.reason,
            "caretway.run.id": record.run,
            "caretway.run.outcome": record.outcome,
            "caretway.run.responses": record.responses,
            "error.type": "" if record.outcome in _GOOD_RUNS else record.error or record.outcome,
        }
    )


def _tokens(usage: Tokens) -> dict[str, int | None]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def _given(attributes: Mapping[str, Any]) -> Attributes:
    """The attributes with a value."""
    return {name: value for name, value in attributes.items() if value is not None and value != ""}


# ---- metrics


class Histograms(Observer):
    """Records durations of answers and tokens of runs, with a bounded number of model names."""

    def __init__(self, meter: Meter, routes: Mapping[str, str], scheme: str) -> None:
        self._routes = routes
        self._scheme = scheme
        self._models = Names(MAX_MODELS)
        self._record = {
            name: meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets).record
            for name, (unit, description, buckets) in _HISTOGRAMS.items()
        }

    def response_ended(self, record: TurnRecord) -> None:
        answer = answer_attributes(record)
        labels, seconds = self._labels(answer), record.total_ms / 1000
        self._record["gen_ai.client.operation.duration"](seconds, labels)
        if (first := answer.get("gen_ai.response.time_to_first_chunk")) is not None:
            self._record["gen_ai.client.operation.time_to_first_chunk"](first, labels)
        request = request_attributes(record, "POST", self._routes[record.dialect], self._scheme)
        self._record["http.server.request.duration"](
            seconds, _only(request, "http.request.method", "http.route", "http.response.status_code", "url.scheme")
        )

    def run_ended(self, record: RunRecord) -> None:
        run = run_attributes(record)
        for kind in ("input", "output"):
            if (count := run.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                self._record["gen_ai.client.token.usage"](count, self._labels(run) | {"gen_ai.token.type": kind})

    def _labels(self, attributes: Attributes) -> Attributes:
        labels = _only(attributes, "gen_ai.operation.name", "gen_ai.provider.name", "error.type")
        for model in ("gen_ai.request.model", "gen_ai.response.model"):
            if model in attributes:
                labels[model] = self._models.label(attributes[model])
        return labels


def _only(attributes: Attributes, *names: str) -> Attributes:
    return {name: attributes[name] for name in names if name in attributes}


# ---- content


def content_json(request: TurnRequest, reply: Reply, hide: Hide) -> tuple[str, str]:
    """The new messages of a request and the answer, for traces with content. Secrets are removed and the length is
    bounded."""
    news = request.messages[last_answer(request.messages) :]
    said = [{"role": one.role.value, "parts": _parts(one.parts, hide)} for one in news[-MAX_PARTS:]]
    parts = [part for part in reply.parts if not isinstance(part, WebSearch)]
    parts = parts or [*([Text(reply.text)] if reply.text else []), *reply.calls]
    finish = "tool_call" if reply.paused else "error" if reply.error else "stop"
    answer = [{"role": "assistant", "parts": _parts(parts, hide), "finish_reason": finish}]
    return msgspec.json.encode(said).decode(), msgspec.json.encode(answer).decode()


def _parts(parts: Sequence[Part], hide: Hide) -> list[dict[str, str]]:
    return [_part(part, hide) for part in parts[-MAX_PARTS:]]


def _part(part: Part, hide: Hide) -> dict[str, str]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": _cut(text, hide)}
        case Reasoning(text=text):
            return {"type": "reasoning", "content": _cut(text, hide)}
        case ToolCall(id=call, name=name, arguments=arguments):
            return {"type": "tool_call", "id": call, "name": name, "arguments": _cut(arguments, hide)}
        case ToolResult(call_id=call):
            return {"type": "tool_call_response", "id": call, "response": _cut(part.text, hide)}
        case Image(data=data, mime_type=kind):
            return {"type": "text", "content": f"[{kind}, {len(data)} bytes]"}


def _cut(text: str, hide: Hide) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return hide(text)
    whole_words = text[:MAX_TEXT_CHARS].rpartition(" ")[0]  # a truncated secret could not be recognised
    return f"{hide(whole_words)} … [{len(text)} characters]"
