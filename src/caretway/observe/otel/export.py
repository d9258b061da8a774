"""Where spans and metrics go: an OTLP collector over HTTP, as the standard `OTEL_` variables say, which the SDK of
OpenTelemetry reads by itself. A collector that is dead or slow costs no request anything: spans wait in a bounded
queue, threads of the SDK send them, and the end of the gateway waits for them a moment only.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ... import __version__
from ...core.records import Observer
from . import conventions as names
from .measuring import Measuring
from .spans import ServedPlaces
from .tracing import Tracing

LAST_WORDS_S: Final = 2.0
"""How long the end of the gateway waits for what was not sent yet."""
COMPLAINTS_EVERY_S: Final = 60.0
"""How often the log says that a collector does not take what is sent."""
_UNNAMED: Final = "unknown_service"
log = logging.getLogger(__name__)


class _Seldom(logging.Filter):
    """A dead collector is news once in a while, and not at every try."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created < self._next.get(record.name, 0.0):
            return False
        self._next[record.name] = record.created + COMPLAINTS_EVERY_S
        return True


_SELDOM: Final = _Seldom()


class Telemetry:
    """The observers that were asked for, and the threads behind them."""

    def __init__(self, served: ServedPlaces, *, traces: bool, metrics: bool) -> None:
        resource = _resource()
        for exporter in (OTLPSpanExporter, OTLPMetricExporter):
            logging.getLogger(exporter.__module__).addFilter(_SELDOM)
        self.observers: list[Observer] = []
        self._ends: list[Callable[[], None]] = []
        if traces:
            spans = TracerProvider(resource=resource, shutdown_on_exit=False)
            spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            tracing = Tracing(spans.get_tracer("caretway", __version__, names.SCHEMA), served)
            self.observers.append(tracing)
            self._ends += [tracing.close, spans.shutdown]
        if metrics:
            reader = PeriodicExportingMetricReader(OTLPMetricExporter())
            meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
            self.observers.append(Measuring(meters.get_meter("caretway", __version__, names.SCHEMA), served))
            self._ends.append(meters.shutdown)

    async def aclose(self) -> None:
        """In threads of their own, which nobody has to wait for: a dead collector is tried for half a minute."""
        loop, waiting = asyncio.get_running_loop(), []
        for end in self._ends:
            done = loop.create_future()
            threading.Thread(target=_run, args=(end, loop, done), name="caretway-otel-end", daemon=True).start()
            waiting.append(done)
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=LAST_WORDS_S)
            if late:
                log.warning("the OpenTelemetry collector did not take the last spans or metrics in time")


def _run(end: Callable[[], None], loop: asyncio.AbstractEventLoop, done: "asyncio.Future[None]") -> None:
    try:
        end()
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set, done)


def _set(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


def _resource() -> Resource:
    """`OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first."""
    given = Resource.create()
    named = str(given.attributes.get(names.SERVICE_NAME, _UNNAMED))
    ours = {names.SERVICE_NAME: "caretway"} if named.startswith(_UNNAMED) else {}
    if names.SERVICE_VERSION not in given.attributes:
        ours[names.SERVICE_VERSION] = __version__
    return given.merge(Resource(ours))
