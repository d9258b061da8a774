"""Which `OTEL_` variables send what."""

import pytest

from caretway.config.loading import TelemetryPlan, telemetry_plan

AT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CASES: list[tuple[dict[str, str], TelemetryPlan]] = [
    ({}, TelemetryPlan()),
    (AT, TelemetryPlan(True, True)),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, TelemetryPlan()),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, TelemetryPlan(True, False)),
    ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c/v1/metrics"}, TelemetryPlan(False, True)),
    ({"OTEL_TRACES_EXPORTER": "otlp"}, TelemetryPlan(True, False)),
    ({"OTEL_TRACES_EXPORTER": "console, OTLP"}, TelemetryPlan(True, False)),
    (AT | {"OTEL_TRACES_EXPORTER": "none"}, TelemetryPlan(False, True)),
    (AT | {"OTEL_SDK_DISABLED": "TRUE"}, TelemetryPlan()),
    (AT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, TelemetryPlan(True, True)),
    (AT | {CONTENT: "true"}, TelemetryPlan(True, True, content=True)),
    (AT | {CONTENT: "span_only"}, TelemetryPlan(True, True, content=True)),
    (AT | {CONTENT: "no"}, TelemetryPlan(True, True)),
    (AT | {CONTENT: "true", "OTEL_TRACES_EXPORTER": "none"}, TelemetryPlan(False, True)),
    ({CONTENT: "true"}, TelemetryPlan()),
]


@pytest.mark.parametrize(("environ", "plan"), CASES, ids=lambda value: str(value)[:60])
def test_plans(environ: dict[str, str], plan: TelemetryPlan) -> None:
    assert telemetry_plan(environ) == plan


@pytest.mark.parametrize(
    ("environ", "report", "plan"),
    [
        (AT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", TelemetryPlan()),
        (
            AT | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json",
            TelemetryPlan(False, True),
        ),
        (AT | {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin", TelemetryPlan(False, True)),
    ],
)
def test_what_is_not_spoken_is_told_once(environ: dict[str, str], report: str, plan: TelemetryPlan) -> None:
    found = telemetry_plan(environ)
    (problem,) = found.problems
    assert problem.startswith(report)
    assert "set it to" in problem
    assert (found.traces, found.metrics) == (plan.traces, plan.metrics)
