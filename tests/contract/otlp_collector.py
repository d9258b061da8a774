"""A stand-in for an OpenTelemetry collector: takes OTLP over HTTP on a real socket, and decodes it with the published
protobuf messages. It can hold back its answers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan


@dataclass(frozen=True)
class SeenSpan:
    name: str
    kind: str
    attributes: dict[str, Any]
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    start: int
    end: int
    failed: bool

    @property
    def operation(self) -> str:
        return str(self.attributes.get("gen_ai.operation.name", "http"))


@dataclass
class Collector:
    endpoint: str = ""
    spans: list[SeenSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    """The newest of each, by name."""
    resource: dict[str, Any] = field(default_factory=dict)
    scopes: set[tuple[str, str]] = field(default_factory=set)
    raw: bytes = b""
    posts: int = 0
    may_answer: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, until: Callable[["Collector"], bool], timeout: float = 60) -> None:
        """Blocks: for a thread."""
        with self.changed:
            assert self.changed.wait_for(lambda: until(self), timeout), [span.name for span in self.spans]

    def take(self, path: str, body: bytes) -> None:
        with self.changed:
            self.raw += body
            self.posts += 1
            if path == "/v1/traces":
                self._take_traces(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                for sent in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scope in sent.scope_metrics:
                        self.metrics |= {metric.name: metric for metric in scope.metrics}
            else:
                raise AssertionError(path)
            self.changed.notify_all()

    def _take_traces(self, request: ExportTraceServiceRequest) -> None:
        for sent in request.resource_spans:
            self.resource = {pair.key: _value(pair.value) for pair in sent.resource.attributes}
            for scope in sent.scope_spans:
                self.scopes.add((scope.scope.name, scope.schema_url))
                self.spans += [_seen(span) for span in scope.spans]


def _seen(span: WireSpan) -> SeenSpan:
    return SeenSpan(
        span.name,
        WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        {pair.key: _value(pair.value) for pair in span.attributes},
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == 2,
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.headers["content-type"] == "application/x-protobuf"
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(self.path, body)
            collector.may_answer.wait()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        collector.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
