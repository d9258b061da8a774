"""Whether traces and metrics go to an OpenTelemetry collector, by the standard `OTEL_` variables: which signals, with
or without content, and what is not spoken here. What else those variables say the SDK of OpenTelemetry reads by itself.
"""

import os
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

SPOKEN: Final = "http/protobuf"
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_WITH_CONTENT: Final = frozenset({"true", "span_only", "span_and_event"})


class TelemetryPlan(Struct, frozen=True):
    traces: bool = False
    metrics: bool = False
    content: bool = False
    """Prompts and answers too."""
    problems: tuple[str, ...] = ()
    """What was asked for and is not done, and what to type."""

    @property
    def wanted(self) -> bool:
        return self.traces or self.metrics


def telemetry_plan(environ: Mapping[str, str]) -> TelemetryPlan:
    if _given(environ, "OTEL_SDK_DISABLED") == "true":
        return TelemetryPlan()
    problems = []
    wanted = {}
    for signal in ("TRACES", "METRICS"):
        wanted[signal], problem = _signal(environ, signal)
        if problem and problem not in problems:
            problems.append(problem)
    content = _given(environ, _CONTENT) in _WITH_CONTENT
    return TelemetryPlan(wanted["TRACES"], wanted["METRICS"], content and wanted["TRACES"], tuple(problems))


def process_telemetry() -> TelemetryPlan:
    return telemetry_plan(os.environ)


def _signal(environ: Mapping[str, str], signal: str) -> tuple[bool, str]:
    """Whether it is sent, or why not although it was asked for."""
    exporter = _given(environ, f"OTEL_{signal}_EXPORTER")
    chosen = {word.strip() for word in exporter.split(",")} - {""}
    if chosen and "otlp" not in chosen:
        if chosen == {"none"}:
            return False, ""
        return False, f"OTEL_{signal}_EXPORTER={exporter} is not known here; set it to otlp or none."
    named = any(_given(environ, f"OTEL_EXPORTER_OTLP_{which}ENDPOINT") for which in ("", f"{signal}_"))
    if not named and not chosen:
        return False, ""
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := _given(environ, name):
            told = f"{name}={protocol} is not spoken here; set it to {SPOKEN}, and the endpoint to that port (4318)."
            return (True, "") if protocol == SPOKEN else (False, told)
    return True, ""


def _given(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()
