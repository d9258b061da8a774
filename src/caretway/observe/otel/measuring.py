"""Tells OpenTelemetry how long answers took and how many tokens runs used: the metrics of its conventions, with bounded
names of models. Told at the end of a response or a run.
"""

from typing import Final

from opentelemetry.metrics import Meter

from ...core.records import Observer, RefusedRequest, RunRecord, TurnRecord
from ..families import Names
from . import conventions as names
from .spans import ServedPlaces, SpanFacts, Value, answer_span, request_span, run_span

MAX_MODELS: Final = 100


class Measuring(Observer):
    def __init__(self, meter: Meter, served: ServedPlaces) -> None:
        self._served = served
        self._models = Names(MAX_MODELS)
        histogram = meter.create_histogram
        self._duration = histogram(
            names.OPERATION_DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._first = histogram(
            names.OPERATION_FIRST_CHUNK,
            unit="s",
            description="Time to the first chunk of a streamed answer.",
            explicit_bucket_boundaries_advisory=names.FIRST_CHUNK_BUCKETS,
        )
        self._tokens = histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )
        self._requests = histogram(
            names.SERVER_DURATION,
            unit="s",
            description="Duration of HTTP server requests.",
            explicit_bucket_boundaries_advisory=names.SERVER_BUCKETS,
        )

    def response_ended(self, record: TurnRecord) -> None:
        facts, http = answer_span(record), request_span(record, self._served)
        seconds = record.total_ms / 1000
        told = self._labels(facts)
        self._duration.record(seconds, told)
        if (first := facts.attributes.get(names.FIRST_CHUNK)) is not None:
            self._first.record(float(str(first)), told)
        self._requests.record(seconds, _only(http, names.METHOD, names.ROUTE, names.STATUS, names.URL_SCHEME))

    def run_ended(self, record: RunRecord) -> None:
        if record.usage is None:
            return
        told = self._labels(run_span(record))
        for kind, count in (("input", record.usage.input_tokens), ("output", record.usage.output_tokens)):
            if count is not None:
                self._tokens.record(count, {**told, names.TOKEN_TYPE: kind})

    def request_refused(self, record: RefusedRequest) -> None:
        """Nothing was measured."""

    def _labels(self, facts: SpanFacts) -> dict[str, Value]:
        told = _only(facts, names.OPERATION, names.PROVIDER_NAME, names.ERROR_TYPE)
        for model in (names.REQUEST_MODEL, names.RESPONSE_MODEL):
            if model in facts.attributes:
                told[model] = self._models.label(str(facts.attributes[model]))
        return told


def _only(facts: SpanFacts, *wanted: str) -> dict[str, Value]:
    return {name: facts.attributes[name] for name in wanted if name in facts.attributes}
