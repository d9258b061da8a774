"""Tells OpenTelemetry of responses, runs and tool steps: which span is whose parent, which are linked, the context of
the client's trace (`traceparent`) honoured; how many unfinished spans are remembered (bounded).

A request's trace holds the request, its answer, and the run that it opened, with the tool steps of that run. A later
request of the same run may belong to another trace: its answer has a link to the run. Everything is told at the end of
a response or a run, never between the deltas of a stream.
"""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...core.records import Observer, RefusedRequest, RunRecord, TurnRecord
from .spans import (
    ServedPlaces,
    SpanFacts,
    ToolStep,
    answer_span,
    opened_run,
    opened_step,
    refused_span,
    request_span,
    run_span,
    step_spans,
)

MAX_REMEMBERED: Final = 1024
"""Runs that go on, and spans that others may belong to."""
_NOBODY: Final = Context()
_KINDS: Final = {"SERVER": SpanKind.SERVER, "CLIENT": SpanKind.CLIENT, "INTERNAL": SpanKind.INTERNAL}
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_RUN_ENDS: Final = frozenset({"ended", "paused"})
T = TypeVar("T")


class _Newest(Generic[T]):
    """The newest few of something."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, T] = OrderedDict()

    def put(self, key: str, value: T) -> T | None:
        """Gives back what had to go for it."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        return self._kept.popitem(last=False)[1] if len(self._kept) > MAX_REMEMBERED else None

    def get(self, key: str) -> T | None:
        return self._kept.get(key)

    def pop(self, key: str) -> T | None:
        return self._kept.pop(key, None)

    def drain(self) -> list[T]:
        values = list(self._kept.values())
        self._kept.clear()
        return values


class Tracing(Observer):
    def __init__(self, tracer: Tracer, served: ServedPlaces) -> None:
        self._tracer = tracer
        self._served = served
        self._requests: _Newest[SpanContext] = _Newest()
        self._going: _Newest[Span] = _Newest()  # runs, by their id
        self._gone: _Newest[SpanContext] = _Newest()
        self._early: _Newest[list[RunRecord]] = _Newest()  # by request: over before their response was
        self._steps: _Newest[ToolStep] = _Newest()
        self._answered: _Newest[tuple[tuple[str, str], ...]] = _Newest()  # calls, by run

    # ---- what is told

    def response_ended(self, record: TurnRecord) -> None:
        parent = _PROPAGATOR.extract(record.trace, context=_NOBODY) if record.trace else _NOBODY
        request = self._tell(request_span(record, self._served), parent)
        inside = _below(request)
        self._requests.put(record.request_id, request)
        for over in self._early.pop(record.request_id) or ():
            self._gone.put(_base(over.run), self._tell(run_span(over), inside))
        run = self._run(record, inside)
        self._tell(answer_span(record), inside, run)
        self._step(record, run)

    def run_ended(self, record: RunRecord) -> None:
        base, request = _base(record.run), self._requests.get(record.origin.request_id)
        span = self._going.pop(base)
        if span is not None:
            _finish(span, run_span(record))
            self._gone.put(base, span.get_span_context())
        elif request is not None:
            if not record.again:
                self._gone.put(base, self._tell(run_span(record), _below(request)))
        else:
            told = self._early.get(record.origin.request_id) or []
            self._early.put(record.origin.request_id, [*told, record])
        step, run = self._steps.get(base), self._gone.get(base)
        if step is not None and run is not None and record.outcome not in _RUN_ENDS:
            self._steps.pop(base)
            self._tell_step(step, record.ended_at, run, record.outcome)

    def request_refused(self, record: RefusedRequest) -> None:
        if not record.turn or record.dialect not in self._served.routes:
            return
        parent = _PROPAGATOR.extract(record.trace, context=_NOBODY) if record.trace else _NOBODY
        request = self._tell(refused_span(record, self._served), parent)
        for over in self._early.pop(record.request_id) or ():
            self._tell(run_span(over), _below(request))

    def close(self) -> None:
        """Runs that go on are told as far as they are known."""
        for span in self._going.drain():
            span.end()

    # ---- runs and their steps

    def _run(self, record: TurnRecord, inside: Context) -> SpanContext:
        """The run that answered: one that goes on, one that is over, or a new one."""
        span = self._going.get(record.run)
        if span is not None:
            return span.get_span_context()
        gone = self._gone.get(record.run)
        if gone is not None:
            return gone
        span = self._start(opened_run(record), inside)
        forgotten = self._going.put(record.run, span)
        if forgotten is not None:
            forgotten.end()
        return span.get_span_context()

    def _step(self, record: TurnRecord, run: SpanContext) -> None:
        """The results of the step before came with this request; its own calls begin a new one."""
        if record.session == "resumed":
            before = self._steps.pop(record.run)
            if before is not None:
                self._answered.put(record.run, before.calls)
                self._tell_step(before, record.started_at, run)
        step = opened_step(record)
        if step is not None and step.calls != self._answered.get(record.run):  # an answer may be told twice
            self._steps.put(record.run, step)

    def _tell_step(self, step: ToolStep, end: float, run: SpanContext, error: str = "") -> None:
        for facts in step_spans(step, end, error):
            self._tell(facts, _below(run))

    # ---- spans

    def _tell(self, facts: SpanFacts, inside: Context, linked: SpanContext | None = None) -> SpanContext:
        span = self._start(facts, inside, linked)
        _finish(span, facts)
        return span.get_span_context()

    def _start(self, facts: SpanFacts, inside: Context, linked: SpanContext | None = None) -> Span:
        return self._tracer.start_span(
            facts.name,
            context=inside,
            kind=_KINDS[facts.kind],
            attributes=dict(facts.attributes),
            links=[Link(linked)] if linked is not None else (),
            start_time=_ns(facts.start),
        )


def _finish(span: Span, facts: SpanFacts) -> None:
    span.set_attributes(dict(facts.attributes))
    if facts.error:
        span.set_status(Status(StatusCode.ERROR))
    span.end(_ns(facts.end))


def _below(parent: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(parent), _NOBODY)


def _base(run: str) -> str:
    """A turn with several totals has a record for each: `RUN`, `RUN.2` ..."""
    return run.partition(".")[0]


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
