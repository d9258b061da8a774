"""When OpenTelemetry is opened, and what is said when it cannot be."""

import sys
from contextlib import AsyncExitStack

import pytest

from caretway.assembly import OpenTelemetry, open_telemetry
from caretway.config import Settings


async def opened() -> OpenTelemetry:
    async with AsyncExitStack() as stack:
        return open_telemetry(Settings(), stack)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


async def test_nobody_asked(caplog: pytest.LogCaptureFixture) -> None:
    assert await opened() == OpenTelemetry()
    assert caplog.text == ""


async def test_without_the_extra_it_is_said_what_to_type(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "caretway.observe.otel", None)
    assert await opened() == OpenTelemetry()
    assert "pip install" in caplog.text and "opentelemetry-sdk" in caplog.text


async def test_what_is_not_spoken_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert await opened() == OpenTelemetry()
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not spoken here" in caplog.text
